//! The socket of the agent: accepts clients, within limits, and ends on a signal.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastlane::agent::seqpacket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags, sockopt};
use rustix::process::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Error;
use crate::client::{Client, Peer, refuse};
use crate::config::{self, Plan};
use crate::registry::{Orphans, Registry};
use crate::shared::{Shared, Slot};

/// Stack of the thread of a client, in bytes.
const STACK: usize = 256 << 10;
/// Pause after an error of accept(2), for example because descriptors are exhausted.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs the agent with the configuration at `path` until SIGINT or SIGTERM. The programs of its
/// clients stay pinned.
///
/// # Errors
/// Returns an error if the start fails.
pub fn run(path: &Path) -> Result<(), Error> {
    let plan = config::load(path)?;
    check_capabilities()?;
    let refuse = |error: io::Error| socket_error(&plan.socket, error.to_string());
    let (stop, signals) = UnixStream::pair().map_err(refuse)?;
    for signal in [SIGINT, SIGTERM] {
        let signals = signals.try_clone().map_err(refuse)?;
        signal_hook::low_level::pipe::register(signal, signals).map_err(refuse)?;
    }
    prepare_pins(&plan.pins)?;
    let listener = listen(&plan.socket)?;
    let registry = Arc::<Registry>::default();
    let orphans = Orphans::find(&plan.pins, &registry);
    let orphans = orphans.map_err(|error| pins_error(&plan.pins, error.to_string()))?;
    let (clients, pins) = (Mutex::default(), plan.pins.clone());
    let shared = Arc::new(Shared { registry, orphans, pins, clients });
    tracing::info!("the agent listens at {}", plan.socket.display());
    serve(&plan, &shared, &listener, &stop);
    let _ = std::fs::remove_file(&plan.socket); // the next agent replaces it anyway
    Ok(())
}

/// Checks the capabilities that every client needs.
fn check_capabilities() -> Result<(), Error> {
    use rustix::thread::CapabilitySet as Set;
    let has = rustix::thread::capabilities(None).map(|sets| sets.effective);
    let has = has.unwrap_or(Set::empty());
    let missing: Vec<&str> = [
        ("CAP_NET_ADMIN", Set::NET_ADMIN),
        ("CAP_NET_RAW", Set::NET_RAW),
        ("CAP_BPF", Set::BPF | Set::SYS_ADMIN),
        ("CAP_PERFMON", Set::PERFMON | Set::SYS_ADMIN),
    ]
    .into_iter()
    .filter_map(|(name, set)| (!has.intersects(set)).then_some(name))
    .collect();
    if !has.intersects(Set::IPC_LOCK) {
        tracing::warn!(
            "without CAP_IPC_LOCK the memory of all clients counts against RLIMIT_MEMLOCK of the \
             agent"
        );
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Error::NoPrivilege { missing: missing.join(", ") }),
    }
}

/// Creates the directory of the pins, which must be in a BPF file system.
fn prepare_pins(path: &Path) -> Result<(), Error> {
    /// `BPF_FS_MAGIC` of linux/magic.h.
    const BPF_FS: u64 = 0xcafe_4a11;
    let refuse = |error: io::Error| pins_error(path, error.to_string());
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(refuse)?;
    let system = rustix::fs::statfs(path).map_err(|error| refuse(error.into()))?;
    if system.f_type as u64 != BPF_FS {
        let _ = std::fs::remove_dir(path); // only if it is empty
        return Err(pins_error(path, "it is in no BPF file system".to_owned()));
    }
    Ok(())
}

fn pins_error(path: &Path, reason: String) -> Error {
    Error::Pins { path: path.to_owned(), reason }
}

fn socket_error(path: &Path, reason: String) -> Error {
    Error::Socket { path: path.to_owned(), reason }
}

/// Creates the socket. Every user may connect; the agent looks at who it is.
fn listen(path: &Path) -> Result<OwnedFd, Error> {
    let refuse = |error: io::Error| socket_error(path, error.to_string());
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(refuse)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let reason = "another file is there; remove it, or name another `socket`";
            return Err(socket_error(path, reason.to_owned()));
        }
        Ok(_) if seqpacket::connect(path).is_ok() => {
            return Err(socket_error(path, "another agent listens there; end it first".to_owned()));
        }
        Ok(_) => std::fs::remove_file(path).map_err(refuse)?,
        Err(_) => {}
    }
    let socket = seqpacket::socket().map_err(refuse)?;
    let bound = SocketAddrUnix::new(path)
        .and_then(|address| rustix::net::bind(&socket, &address))
        .and_then(|()| rustix::net::listen(&socket, 128));
    bound.map_err(|error| refuse(error.into()))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(refuse)?;
    Ok(socket)
}

/// Accepts clients until a signal arrives.
fn serve(plan: &Plan, shared: &Arc<Shared>, listener: &OwnedFd, stop: &UnixStream) {
    loop {
        let left = shared.orphans.expire();
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut files =
            [listener.as_fd(), stop.as_fd()].map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN));
        if poll(&mut files, left.as_ref()).is_err() {
            continue; // a signal, which `stop` tells next
        }
        if !files[1].revents().is_empty() {
            return;
        }
        if files[0].revents().is_empty() {
            continue;
        }
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => admit(plan, shared, socket),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                tracing::warn!("a client cannot be accepted: {error}");
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Serves a client in a thread of its own if its user may use a pool.
fn admit(plan: &Plan, shared: &Arc<Shared>, socket: OwnedFd) {
    let Ok(credentials) = sockopt::socket_peercred(&socket) else { return };
    let process = u32::try_from(Pid::as_raw(Some(credentials.pid))).unwrap_or(0);
    let (user, group) = (credentials.uid.as_raw(), credentials.gid.as_raw());
    let peer = Peer { process, user };
    let pools = plan.pools.iter().filter(|pool| pool.admits(user, group)).cloned();
    let pools: Vec<_> = pools.collect();
    let Some(slot) = (match pools.is_empty() {
        true => None,
        false => Slot::take(shared, user),
    }) else {
        let reason = match pools.is_empty() {
            true => format!("user {user} (group {group}) may use no pool of the agent"),
            false => format!("user {user} has too many connections to the agent"),
        };
        tracing::debug!("process {process}: {reason}");
        return refuse(&socket, &reason);
    };
    let client = Client::new(Arc::clone(shared), peer, pools);
    let serve = move || {
        client.serve(&socket);
        drop(slot);
    };
    let thread = thread::Builder::new().name(format!("client-{process}")).stack_size(STACK);
    if let Err(error) = thread.spawn(serve) {
        tracing::warn!("no thread for process {process}: {error}");
    }
}
