//! Errors of opening an AF_XDP port. Each text names the remedy.

use std::io;

use fastlane_steer::ProgramError;
use thiserror::Error;

use crate::Mode;

/// Error of opening a device or its queues.
#[derive(Debug, Error)]
pub enum Error {
    /// The steering program could not be loaded or attached.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The thread has no permission to create AF_XDP sockets.
    #[error(
        "CAP_NET_RAW missing for AF_XDP on `{interface}`: run as root, or by systemd with \
         `AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_NET_RAW CAP_PERFMON`"
    )]
    NoPrivilege {
        /// Name of the interface.
        interface: String,
    },
    /// The kernel was built without AF_XDP.
    #[error(
        "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): use the driver `af-packet` for \
         `{interface}`"
    )]
    NoAfXdp {
        /// Name of the interface.
        interface: String,
    },
    /// The configured mode is not available.
    #[error("{mode} is not available on `{interface}` ({reason}); use \"mode\": \"auto\"")]
    ModeUnavailable {
        /// Name of the interface.
        interface: String,
        /// Configured mode.
        mode: Mode,
        /// Refusal of the driver or the kernel.
        reason: String,
    },
    /// Another socket is bound to the queue.
    #[error(
        "queue {queue} of `{interface}` is busy: another AF_XDP socket holds it; `ss --xdp -p` \
         shows its process"
    )]
    QueueBusy {
        /// Name of the interface.
        interface: String,
        /// Queue number.
        queue: u32,
    },
    /// The queue does not exist, or not in both directions.
    #[error(
        "`{interface}` has no queue {queue} for both receiving and sending: `ethtool -l \
         {interface}` shows the existing ones, `ethtool -L {interface}` changes their number"
    )]
    NoQueue {
        /// Name of the interface.
        interface: String,
        /// Queue number.
        queue: u32,
    },
    /// The interface does not exist in the network namespace of the thread.
    #[error(
        "no interface `{interface}` in this network namespace: `ip link` lists the existing ones"
    )]
    NoInterface {
        /// Name of the interface.
        interface: String,
    },
    /// The limit of locked memory of this user is too low.
    #[error(
        "out of locked memory: `ulimit -l` is {limit} KiB for all lanes together, the pool of one \
         needs {needed} KiB; raise the limit (systemd: LimitMEMLOCK=), give the program \
         CAP_IPC_LOCK, or configure fewer \"frames\""
    )]
    LockedMemory {
        /// RLIMIT_MEMLOCK in KiB.
        limit: u64,
        /// Size of the pool in KiB.
        needed: u64,
    },
    /// The frame size cannot be used with AF_XDP.
    #[error(
        "frames of {size} bytes cannot be used with AF_XDP: \"frame-size\" must be a power of two \
         from 2048 to 65536"
    )]
    FrameSize {
        /// Frame size of the pool in bytes.
        size: usize,
    },
    /// The device does not have this queue, or the kernel does not support frames that are larger
    /// than a page.
    #[error(
        "no queue {queue} on `{interface}` for frames of {size} bytes: frames larger than a page \
         need Linux 6.6, set \"frame-size\" to 4096 on an older one; `ethtool -l {interface}` \
         lists the queues"
    )]
    NoMultiBuffer {
        /// Name of the interface.
        interface: String,
        /// Queue number.
        queue: u32,
        /// Frame size of the pool in bytes.
        size: usize,
    },
    /// A queue of a process that has ended cannot be taken over.
    #[error(
        "queue {queue} of `{interface}` cannot be taken over: {reason}; close its descriptors \
         and open it anew"
    )]
    NotAdoptable {
        /// Name of the interface.
        interface: String,
        /// Queue number.
        queue: u32,
        /// Reason of the refusal.
        reason: String,
    },
    /// The kernel does not map all rings of a bound socket for another process.
    #[error(
        "the queues of `{interface}` cannot be taken over: that needs Linux 6.4; close their \
         descriptors and open them anew"
    )]
    AdoptionTooOld {
        /// Name of the interface.
        interface: String,
    },
    /// The ring size is invalid.
    #[error("`{interface}`: {ring} of {size} slots: it must be a power of two from 64 to 32768")]
    RingSize {
        /// Name of the interface.
        interface: String,
        /// Configuration key of the ring.
        ring: &'static str,
        /// Configured number of slots.
        size: u32,
    },
    /// The process that controls the steering program refused.
    #[error("{0}")]
    Agent(String),
    /// A system call failed for another reason.
    #[error("`{interface}`: {action}: {source}")]
    Kernel {
        /// Name of the interface.
        interface: String,
        /// Action that failed.
        action: String,
        /// Error of the system call.
        source: io::Error,
    },
}
