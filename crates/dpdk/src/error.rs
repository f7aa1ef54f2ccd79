//! Why DPDK, or a device of it, could not be opened, in words that say what to do.

use std::path::PathBuf;

use thiserror::Error;

/// Why DPDK, or a device of it, could not be opened.
#[derive(Debug, Error)]
pub enum Error {
    /// The plugin is nowhere.
    #[error(
        "the DPDK plugin libfastlane_dpdk.so is not there; it was looked for in {searched}. \
         Install DPDK (`apt install dpdk libdpdk-dev`) and build it with `make dpdk-plugin`, or \
         name it in FASTLANE_DPDK_PLUGIN"
    )]
    NoPlugin {
        /// The places, separated by commas.
        searched: String,
    },
    /// The plugin is there, but cannot be opened.
    #[error(
        "the DPDK plugin {} cannot be opened: {reason}. If a library of DPDK is missing, install \
         it with `apt install dpdk`; if it is another version, build the plugin anew with `make \
         dpdk-plugin`", path.display()
    )]
    Broken {
        /// Where it is.
        path: PathBuf,
        /// What the loader says.
        reason: String,
    },
    /// The plugin was built for another version of Fastlane.
    #[error(
        "the DPDK plugin {} is not of this version of Fastlane ({reason}): build it with `make \
         dpdk-plugin`", path.display()
    )]
    OtherVersion {
        /// Where it is.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// DPDK does not start.
    #[error("DPDK does not start: {reason}; {remedy}")]
    Environment {
        /// What DPDK said, or why it was not even tried.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// There are too few huge pages.
    #[error(
        "DPDK wants {wanted} MiB of huge pages and {free} MiB are free: reserve more with \
         `sysctl -w vm.nr_hugepages={pages}`, or write \"huge-pages\": \"none\""
    )]
    NoHugePages {
        /// MiB wanted.
        wanted: usize,
        /// MiB free.
        free: usize,
        /// Pages of 2 MiB that would be enough.
        pages: usize,
    },
    /// There is no such memory.
    #[error(
        "DPDK has no {frames} frames of {room} bytes for a lane: {reason}; give it more memory or \
         fewer frames"
    )]
    NoMemory {
        /// Frames wanted.
        frames: usize,
        /// The longest packet of each.
        room: usize,
        /// What DPDK said.
        reason: String,
    },
    /// The queues of a lane can hold more frames than it has.
    #[error(
        "{device}: its lane needs {needed} DPDK frames (descriptors of all queues, cache and \
         bursts) and has {frames}: set at least {needed} frames, or fewer descriptors"
    )]
    FewFrames {
        /// The device as given.
        device: String,
        /// Frames that would be enough.
        needed: usize,
        /// Frames there are.
        frames: usize,
    },
    /// The device cannot be what it shall be.
    #[error("{device}: {reason}; {remedy}")]
    Unfit {
        /// The device as given.
        device: String,
        /// Why not.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// DPDK refused something about the device.
    #[error("{device}: DPDK refused: {reason}")]
    Refused {
        /// The device as given.
        device: String,
        /// The function, and its error.
        reason: String,
    },
}
