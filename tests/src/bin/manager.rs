//! A service manager for the stories of restarts, as systemd is one: `manager SOCKET LIMIT
//! WORDS...`. It starts a command, holds up to `LIMIT` descriptors for it and restarts it with
//! them. It logs all notifications.

use std::io::{IoSliceMut, Result, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, FdFlags, dup2, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Maximum number of descriptors for the command.
const MAX_DESCRIPTORS: usize = 64;
/// Script that executes the command with its own process ID in `LISTEN_PID`.
const SHELL: &str = "export LISTEN_PID=$$; exec \"$@\"";

fn main() -> Result<()> {
    // Reserve the numbers from 3 on before anything else opens a descriptor.
    let mut reserved =
        (0..MAX_DESCRIPTORS).map(|_| reserve_descriptor()).collect::<Result<Vec<_>>>()?;
    assert!(reserved.iter().zip(3..).all(|(slot, number)| slot.as_raw_fd() == number));
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, limit, command @ ..] = &words[..] else { panic!("manager SOCKET LIMIT WORDS") };
    let limit: usize = limit.parse().expect("a number");
    let socket = UnixDatagram::bind(address)?;
    socket.set_read_timeout(Some(Duration::from_millis(5)))?;
    let mut store = Vec::new();
    loop {
        let mut service = start(address, limit, command, &store, &mut reserved)?;
        log(&format!("service {} with {} descriptors", service.id(), store.len()))?;
        let status = loop {
            handle_notification(&socket, limit, &mut store)?;
            if let Some(status) = service.try_wait()? {
                break status;
            }
        };
        while handle_notification(&socket, limit, &mut store)? {}
        log(&format!("ended, {status}"))?;
    }
}

/// Logs a line with one write, because the command writes to the same pipe.
fn log(what: &str) -> Result<()> {
    std::io::stderr().write_all(format!("manager: {what}\n").as_bytes())
}

/// Opens a descriptor that reserves a number.
fn reserve_descriptor() -> Result<OwnedFd> {
    Ok(open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Starts the command with the stored descriptors. It ends with this process.
fn start(
    address: &str,
    limit: usize,
    command: &[String],
    store: &[(String, OwnedFd)],
    reserved: &mut [OwnedFd],
) -> Result<Child> {
    for ((_, descriptor), slot) in store.iter().zip(&mut *reserved) {
        dup2(descriptor, slot)?; // without close-on-exec
    }
    let names: Vec<&str> = store.iter().map(|(name, _)| &**name).collect();
    let mut shell = Command::new("setpriv");
    shell.args(["--pdeathsig", "KILL", "--", "sh", "-c", SHELL, "sh"]).args(command);
    shell.env("NOTIFY_SOCKET", address).env("FDSTORE", limit.to_string());
    shell.env("LISTEN_FDS", store.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
    let child = shell.spawn();
    for slot in reserved.iter_mut().take(store.len()) {
        dup2(reserve_descriptor()?, slot)?;
        fcntl_setfd(slot, FdFlags::CLOEXEC)?;
    }
    child
}

/// Handles a notification. Returns false if there was none.
fn handle_notification(
    socket: &UnixDatagram,
    limit: usize,
    store: &mut Vec<(String, OwnedFd)>,
) -> Result<bool> {
    let (mut text, mut space) = ([0; 4096], [MaybeUninit::uninit(); 4096]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let length = match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
        Ok(received) => received.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(received) => Some(received),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let name = value("FDNAME").unwrap_or("stored");
    if value("FDSTOREREMOVE").is_some() {
        store.retain(|(kept, _)| kept != name);
    } else if value("FDSTORE").is_some() {
        assert_eq!(value("FDPOLL"), Some("0"), "{text}");
        let room = limit - store.len();
        store.extend(
            descriptors.into_iter().take(room).map(|descriptor| (name.to_owned(), descriptor)),
        );
    }
    log(&format!("{}; {} kept", text.replace('\n', " "), store.len()))?;
    Ok(true)
}
