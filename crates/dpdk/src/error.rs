//! Errors of opening DPDK or one of its devices. Each text names the remedy.

use std::path::PathBuf;

use thiserror::Error;

/// Error of opening DPDK or one of its devices.
#[derive(Debug, Error)]
pub enum Error {
    /// The plugin was not found.
    #[error(
        "the DPDK plugin libfastlane_dpdk.so was not found in {searched}. \
         Install DPDK (`apt install dpdk libdpdk-dev`) and build it with `make dpdk-plugin`, or \
         name it in FASTLANE_DPDK_PLUGIN"
    )]
    NoPlugin {
        /// Paths that were searched, separated by commas.
        searched: String,
    },
    /// The plugin exists, but cannot be opened.
    #[error(
        "the DPDK plugin {} cannot be opened: {reason}. If a library of DPDK is missing, install \
         it with `apt install dpdk`; if its version differs, build the plugin again with `make \
         dpdk-plugin`", path.display()
    )]
    Broken {
        /// Path of the plugin.
        path: PathBuf,
        /// Error of the dynamic loader.
        reason: String,
    },
    /// The plugin was built for another version of Fastlane.
    #[error(
        "the DPDK plugin {} was built for another version of Fastlane ({reason}): \
         build it again with `make dpdk-plugin`",
        path.display()
    )]
    OtherVersion {
        /// Path of the plugin.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
    /// EAL arguments of a program with privileges that its caller may lack.
    #[error(
        "the EAL arguments `{arguments}` are refused, because they can load code into a program \
         that has file capabilities or is set-user-ID; remove them, or give the capabilities by \
         `AmbientCapabilities` of systemd"
    )]
    PrivilegedArguments {
        /// The arguments, separated by spaces.
        arguments: String,
    },
    /// DPDK failed to start.
    #[error("DPDK does not start: {reason}; {remedy}")]
    Environment {
        /// Error of DPDK, or the reason why it was not started.
        reason: String,
        /// Remedy for the operator.
        remedy: String,
    },
    /// Too few huge pages are free.
    #[error(
        "DPDK needs {wanted} MiB of huge pages and {free} MiB are free: reserve more with \
         `sysctl -w vm.nr_hugepages={pages}`, or write \"huge-pages\": \"none\""
    )]
    NoHugePages {
        /// Required memory in MiB.
        wanted: usize,
        /// Free huge pages in MiB.
        free: usize,
        /// Sufficient number of pages of 2 MiB.
        pages: usize,
    },
    /// The frames of a lane cannot be allocated.
    #[error(
        "DPDK cannot allocate {frames} frames of {room} bytes for a lane: {reason}; reserve more \
         huge pages or configure fewer frames"
    )]
    NoMemory {
        /// Required number of frames.
        frames: usize,
        /// Maximum length of a packet in a frame.
        room: usize,
        /// Error of DPDK.
        reason: String,
    },
    /// The queues of a lane can hold more frames than the lane has.
    #[error(
        "{device}: its lane needs {needed} DPDK frames (descriptors of all queues, cache and \
         bursts) and has {frames}: set at least {needed} frames, or fewer descriptors"
    )]
    FewFrames {
        /// Configured device.
        device: String,
        /// Sufficient number of frames.
        needed: usize,
        /// Configured number of frames.
        frames: usize,
    },
    /// The device does not support the settings.
    #[error("{device}: {reason}; {remedy}")]
    Unfit {
        /// Configured device.
        device: String,
        /// Reason of the refusal.
        reason: String,
        /// Remedy for the operator.
        remedy: String,
    },
    /// DPDK refused an operation on the device.
    #[error("{device}: DPDK refused: {reason}")]
    Refused {
        /// Configured device.
        device: String,
        /// Function of DPDK, and its error.
        reason: String,
    },
}
