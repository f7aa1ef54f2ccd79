//! Why a program could not be loaded or attached, in words that say what to do.

use std::io;

use aya::{
    EbpfError,
    maps::MapError,
    programs::{ProgramError as AyaError, SocketFilterError, tc::TcError, xdp::XdpError},
    sys::SyscallError,
};
use thiserror::Error;

/// Why a steering program could not be loaded, attached or fed.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// The kernel refused for lack of privilege.
    #[error("{action}: {reason}")]
    NoPrivilege {
        /// What was being done.
        action: String,
        /// Which capability is missing, and what to do.
        reason: String,
    },
    /// There is no interface of this name in the network namespace of the calling thread.
    #[error("no interface `{interface}` in this network namespace: `ip link` lists those that are")]
    NoInterface {
        /// The name as given.
        interface: String,
    },
    /// Another XDP program, or the same in the other mode, is attached to the interface.
    #[error(
        "another XDP program is attached to `{interface}`: `bpftool net list dev {interface}` \
         shows it; stop its owner, or take it off with `ip link set dev {interface} xdp off`"
    )]
    InterfaceBusy {
        /// The interface asked for.
        interface: String,
    },
    /// The driver does not run XDP, or does not as the interface is set up (frames too large).
    #[error(
        "the driver of `{interface}` does not run XDP itself in the present setting ({source}): \
         use generic mode, or lower the MTU of an interface whose driver can"
    )]
    NoNativeXdp {
        /// The interface asked for.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The queue has no place in the table of sockets.
    #[error("queue {queue} is out of range: the table has {most} places")]
    QueueOutOfRange {
        /// The queue as given.
        queue: u32,
        /// [`MAX_QUEUES`](crate::MAX_QUEUES).
        most: u32,
    },
    /// What was kept of a program does not belong to one that could be taken over.
    #[error("the steering program cannot be taken over: {reason}; start without it")]
    NotAdoptable {
        /// Why not.
        reason: String,
    },
    /// The program was loaded by the process before, which alone could do this.
    #[error("{program}: it was taken over and stays as it is attached: close it and load anew")]
    Adopted {
        /// Its name.
        program: String,
    },
    /// The kernel refused for another reason.
    #[error("{action}: {source}")]
    Kernel {
        /// What was being done.
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The loader refused before the kernel was asked, or the kernel's verifier rejected a program.
    #[error("{action}: {reason}; this is a fault of Fastlane or an unsupported kernel (needs 6.1)")]
    Object {
        /// What was being done.
        action: String,
        /// The loader's words, the end of the verifier's log included.
        reason: String,
    },
}

impl ProgramError {
    /// Sorts an error of the loader into ours.
    pub(crate) fn new(action: impl Into<String>, error: AyaError) -> ProgramError {
        let action = action.into();
        match system_error(error) {
            Ok(source) => ProgramError::system(action, source),
            Err(reason) => ProgramError::Object { action, reason },
        }
    }

    /// The same for an error that the kernel gave.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> ProgramError {
        let action = action.into();
        match source.raw_os_error() {
            Some(EPERM | EACCES) => ProgramError::NoPrivilege { action, reason: refusal() },
            _ => ProgramError::Kernel { action, source },
        }
    }

    /// The number of the kernel's answer (errno), when the kernel gave one of the common kind.
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

/// The kernel's answer within the loader's error, or the loader's words.
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
            // The verifier answers EACCES to a faulty program, and to a sound one that uses what
            // the loading thread may not.
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

/// Sorts an error of opening the object.
pub(crate) fn open_error(error: EbpfError) -> ProgramError {
    let action = "creating the tables of the steering program";
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

/// Sorts an error of a map operation.
pub(crate) fn table_error(action: &str, error: MapError) -> ProgramError {
    ProgramError::new(action, AyaError::MapError(error))
}

/// The object, or a table, is not what it should be.
pub(crate) fn absent(name: &str) -> ProgramError {
    ProgramError::Object {
        action: format!("opening {name}"),
        reason: "it is not in the object".to_owned(),
    }
}

/// The error and its causes, in one line.
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

/// The last lines of a verifier's log, which name the instruction and the reason.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}

/// Why the calling thread was refused, by its capabilities (capabilities(7)).
fn refusal() -> String {
    match effective_capabilities().map(lacking) {
        None => "permission denied: CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are needed".to_owned(),
        Some(lacking) if lacking.is_empty() => {
            "permission denied though CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are there: they must \
             be held in the initial user namespace, and no security module may forbid bpf(2)"
                .to_owned()
        }
        Some(lacking) => format!(
            "{} missing: run as root, or give the program its capabilities with \
             `setcap cap_bpf,cap_net_admin,cap_net_raw,cap_perfmon+ep PROGRAM`",
            lacking.join(" and ")
        ),
    }
}

/// True when the thread surely lacks a capability that the programs need.
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

/// What is needed: to load programs, to attach them, and to compute with packet pointers in them.
fn lacking(effective: u64) -> Vec<&'static str> {
    const NET_ADMIN: u64 = 1 << 12;
    // CAP_SYS_ADMIN includes the younger two.
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
