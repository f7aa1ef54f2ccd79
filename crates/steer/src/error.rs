//! Errors of loading and attaching a program.

use std::io;

use aya::{
    EbpfError,
    maps::MapError,
    programs::{ProgramError as AyaError, SocketFilterError, tc::TcError, xdp::XdpError},
    sys::SyscallError,
};
use thiserror::Error;

/// Reason why an eBPF program could not be loaded, attached or updated.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// Missing privilege.
    #[error("{action}: {reason}")]
    NoPrivilege {
        /// Attempted action.
        action: String,
        /// Missing capability, and the remedy.
        reason: String,
    },
    /// Unknown interface in the network namespace of the calling thread.
    #[error("no interface `{interface}` in this network namespace: `ip link` lists those that are")]
    NoInterface {
        /// Name of the interface.
        interface: String,
    },
    /// Interface with another XDP program, or with this one in another mode.
    #[error(
        "another XDP program is attached to `{interface}`: `bpftool net list dev {interface}` \
         shows it; stop its owner, or take it off with `ip link set dev {interface} xdp off`"
    )]
    InterfaceBusy {
        /// Name of the interface.
        interface: String,
    },
    /// Driver without XDP, or without XDP in the interface's present setting (frames too large).
    #[error(
        "the driver of `{interface}` does not run XDP itself in the present setting ({source}): \
         use generic mode, or lower the MTU of an interface whose driver can"
    )]
    NoNativeXdp {
        /// Name of the interface.
        interface: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// Queue number beyond the table of sockets.
    #[error("queue {queue} is out of range: the table has {most} slots")]
    QueueOutOfRange {
        /// Requested queue.
        queue: u32,
        /// Number of slots, [`MAX_QUEUES`](crate::MAX_QUEUES).
        most: u32,
    },
    /// Descriptors that belong to no program that can be taken over.
    #[error("the steering program cannot be taken over: {reason}; start without it")]
    NotAdoptable {
        /// Reason, with the property that differs.
        reason: String,
    },
    /// Action that only the process that loaded the program can perform.
    #[error("{program}: it was taken over and stays as it is attached: close it and load anew")]
    Adopted {
        /// Name of the program.
        program: String,
    },
    /// Another error of the kernel.
    #[error("{action}: {source}")]
    Kernel {
        /// Attempted action.
        action: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// Object that the loader refused, or a program that the kernel's verifier rejected.
    #[error("{action}: {reason}; this is a bug of Fastlane or an unsupported kernel (needs 6.1)")]
    Object {
        /// Attempted action.
        action: String,
        /// Message of the loader, with the end of the verifier's log.
        reason: String,
    },
}

impl ProgramError {
    /// Converts an error of the loader.
    #[must_use]
    pub fn new(action: impl Into<String>, error: AyaError) -> ProgramError {
        let action = action.into();
        match system_error(error) {
            Ok(source) => ProgramError::system(action, source),
            Err(reason) => ProgramError::Object { action, reason },
        }
    }

    /// Converts an error of a system call.
    #[must_use]
    pub fn system(action: impl Into<String>, source: io::Error) -> ProgramError {
        let action = action.into();
        match source.raw_os_error() {
            Some(EPERM | EACCES) => ProgramError::NoPrivilege { action, reason: refusal() },
            _ => ProgramError::Kernel { action, source },
        }
    }

    /// Converts an error of opening an object.
    #[must_use]
    pub fn opening(action: &str, error: EbpfError) -> ProgramError {
        open_error(action, error)
    }

    /// Returns the error number (errno) of the kernel, if there is one.
    pub(crate) fn number(&self) -> Option<i32> {
        match self {
            ProgramError::Kernel { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

// Error numbers of Linux, the same on all architectures that Fastlane runs on.
const EPERM: i32 = 1;
const EACCES: i32 = 13;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const ENODEV: i32 = 19;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const ERANGE: i32 = 34;
pub(crate) const EOPNOTSUPP: i32 = 95;

/// Returns the kernel's error in the loader's error, or the loader's message.
fn system_error(error: AyaError) -> Result<io::Error, String> {
    match error {
        AyaError::SyscallError(SyscallError { io_error, .. }) | AyaError::IOError(io_error) => {
            Ok(io_error)
        }
        AyaError::MapError(error) => map_error(error),
        AyaError::TcError(TcError::IoError(error)) => Ok(error),
        AyaError::SocketFilterError(SocketFilterError::SetsockoptError { io_error, .. }) => {
            Ok(io_error)
        }
        AyaError::LoadError { io_error, verifier_log } => match io_error.raw_os_error() {
            // The verifier returns EACCES for an invalid program, and for a valid one that uses
            // features for which the loading thread lacks a capability.
            Some(EPERM | EACCES) if lacks_any() => Ok(io_error),
            _ => Err(format!("{io_error}: {}", tail(&verifier_log.to_string()))),
        },
        AyaError::NetlinkError(error)
        | AyaError::TcError(TcError::NetlinkError(error))
        | AyaError::XdpError(XdpError::NetlinkError(error)) => netlink_error(&error),
        other => Err(chain(&other)),
    }
}

fn map_error(error: MapError) -> Result<io::Error, String> {
    match error {
        MapError::CreateError { io_error, .. }
        | MapError::SyscallError(SyscallError { io_error, .. })
        | MapError::IoError(io_error) => Ok(io_error),
        other => Err(chain(&other)),
    }
}

fn netlink_error(error: &aya::sys::NetlinkError) -> Result<io::Error, String> {
    match error.raw_os_error() {
        Some(number) => Ok(io::Error::from_raw_os_error(number)),
        None => Err(error.to_string()),
    }
}

/// Converts an error of opening an object.
fn open_error(action: &str, error: EbpfError) -> ProgramError {
    let sorted = match error {
        EbpfError::MapError(error) => map_error(error),
        EbpfError::ProgramError(error) => system_error(error),
        other => Err(chain(&other)),
    };
    match sorted {
        Ok(source) => ProgramError::system(action, source),
        Err(reason) => ProgramError::Object { action: action.to_owned(), reason },
    }
}

/// Converts an error of a map operation.
pub(crate) fn table_error(action: &str, error: MapError) -> ProgramError {
    ProgramError::new(action, AyaError::MapError(error))
}

/// Creates the error for a program or table that the object does not contain.
pub(crate) fn absent(name: &str) -> ProgramError {
    ProgramError::Object {
        action: format!("opening {name}"),
        reason: "it is not in the object".to_owned(),
    }
}

/// Returns the error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

/// Returns the last lines of a verifier's log, which name the instruction and the reason.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}

/// Returns the reason of a refusal, from the calling thread's capabilities (capabilities(7)).
fn refusal() -> String {
    match effective_capabilities().map(lacking) {
        None => "permission denied: CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are needed".to_owned(),
        Some(lacking) if lacking.is_empty() => {
            "permission denied though CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are there: they must \
             be held in the initial user namespace, and no security module may forbid bpf(2)"
                .to_owned()
        }
        Some(lacking) => format!(
            "{} missing: run as root, or by systemd with \
             `AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_NET_RAW CAP_PERFMON`",
            lacking.join(" and ")
        ),
    }
}

/// Returns true if the thread certainly lacks a capability that the programs need.
fn lacks_any() -> bool {
    effective_capabilities().is_some_and(|effective| !lacking(effective).is_empty())
}

fn effective_capabilities() -> Option<u64> {
    effective_in(&std::fs::read_to_string("/proc/thread-self/status").ok()?)
}

fn effective_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Returns the missing capabilities of those needed: to load programs, to attach them, and to use
/// packet pointers in them.
fn lacking(effective: u64) -> Vec<&'static str> {
    const NET_ADMIN: u64 = 1 << 12;
    // CAP_SYS_ADMIN includes CAP_PERFMON and CAP_BPF.
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON: u64 = 1 << 38;
    const BPF: u64 = 1 << 39;
    [
        ("CAP_BPF", BPF | SYS_ADMIN),
        ("CAP_NET_ADMIN", NET_ADMIN),
        ("CAP_PERFMON", PERFMON | SYS_ADMIN),
    ]
    .into_iter()
    .filter_map(|(name, any_of)| (effective & any_of == 0).then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let lacking_in = |status| effective_in(status).map(lacking);
        assert_eq!(
            lacking_in("Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t1\n"),
            Some(vec!["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"])
        );
        assert_eq!(lacking_in("CapEff:\t0000000000001000\n"), Some(vec!["CAP_BPF", "CAP_PERFMON"]));
        assert_eq!(lacking_in("CapEff:\t0000000000200000\n"), Some(vec!["CAP_NET_ADMIN"]));
        assert_eq!(lacking_in("CapEff:\t000000c000001000\n"), Some(vec![]));
        assert_eq!(lacking_in("nonsense"), None);
    }
}
