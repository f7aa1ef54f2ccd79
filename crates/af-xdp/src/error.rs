//! Why an AF_XDP port could not be opened, in words that say what to do.

use std::io;

use fastlane_steer::ProgramError;
use thiserror::Error;

use crate::Mode;

/// Why a device or its queues could not be opened.
#[derive(Debug, Error)]
pub enum Error {
    /// The steering program could not be loaded or attached.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The thread may not make AF_XDP sockets.
    #[error(
        "CAP_NET_RAW missing for AF_XDP on `{interface}`: run as root, or give the program its \
         capabilities with `setcap cap_bpf,cap_net_admin,cap_net_raw+ep PROGRAM`"
    )]
    NoPrivilege {
        /// The interface asked for.
        interface: String,
    },
    /// The kernel was built without AF_XDP.
    #[error(
        "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): use the driver `af-packet` for \
         `{interface}`"
    )]
    NoAfXdp {
        /// The interface asked for.
        interface: String,
    },
    /// The mode that the configuration insists on is not to be had.
    #[error("{mode} is not available on `{interface}` ({reason}); use \"mode\": \"auto\"")]
    ModeUnavailable {
        /// The interface asked for.
        interface: String,
        /// The mode asked for.
        mode: Mode,
        /// Who refuses, and how.
        reason: String,
    },
    /// Another socket is on the queue.
    #[error(
        "queue {queue} of `{interface}` is busy: another AF_XDP socket holds it; `ss --xdp -p` \
         shows whose it is"
    )]
    QueueBusy {
        /// The interface asked for.
        interface: String,
        /// The queue asked for.
        queue: u32,
    },
    /// There is no such queue, or not in both directions.
    #[error(
        "`{interface}` has no queue {queue} for both receiving and sending: `ethtool -l \
         {interface}` shows those that are, `ethtool -L {interface}` changes their number"
    )]
    NoQueue {
        /// The interface asked for.
        interface: String,
        /// The queue asked for.
        queue: u32,
    },
    /// The interface is not in the network namespace of the thread.
    #[error("no interface `{interface}` in this network namespace: `ip link` lists those that are")]
    NoInterface {
        /// The interface asked for.
        interface: String,
    },
    /// The kernel does not lock as much memory for this user.
    #[error(
        "out of locked memory: `ulimit -l` is {limit} KiB for all lanes together, the pool of one \
         needs {needed} KiB; raise the limit (systemd: LimitMEMLOCK=), give the program \
         CAP_IPC_LOCK, or configure fewer \"frames\""
    )]
    LockedMemory {
        /// RLIMIT_MEMLOCK in KiB.
        limit: u64,
        /// What the pool takes, in KiB.
        needed: u64,
    },
    /// AF_XDP cannot use frames of this size.
    #[error(
        "frames of {size} bytes cannot be used with AF_XDP: \"frame-size\" must be a power of two \
         from 2048 to {most} (the page size)"
    )]
    FrameSize {
        /// The pool's frame size in bytes.
        size: usize,
        /// The page size in bytes.
        most: usize,
    },
    /// A queue of a process that has ended cannot be taken over.
    #[error(
        "queue {queue} of `{interface}` cannot be taken over: {reason}; close what was kept of it \
         and open it anew"
    )]
    NotAdoptable {
        /// The interface asked for.
        interface: String,
        /// The queue asked for.
        queue: u32,
        /// Why not.
        reason: String,
    },
    /// The kernel does not let another process map all rings of a bound socket.
    #[error(
        "the queues of `{interface}` cannot be taken over: that needs Linux 6.4; close what was \
         kept of them and open them anew"
    )]
    AdoptionTooOld {
        /// The interface asked for.
        interface: String,
    },
    /// A ring cannot have this size.
    #[error("`{interface}`: {ring} of {size} places: it must be a power of two from 64 to 32768")]
    RingSize {
        /// The interface asked for.
        interface: String,
        /// Which ring, as the configuration calls it.
        ring: &'static str,
        /// The places asked for.
        size: u32,
    },
    /// The kernel refused for another reason.
    #[error("`{interface}`: {action}: {source}")]
    Kernel {
        /// The interface asked for.
        interface: String,
        /// What was being done.
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
}
