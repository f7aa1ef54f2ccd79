//! A service manager for the stories of restarts, as systemd is one:
//! `manager SOCKET LIMIT WORDS...`. It starts a command, keeps up to `LIMIT` descriptors for it,
//! and starts it again with them whenever it has ended. It says what it is told.

use std::io::{IoSliceMut, Result, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, FdFlags, dup2, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// The most descriptors that are given to the command.
const PLACES: usize = 64;
/// Becomes the command, with its own process id in `LISTEN_PID`.
const SHELL: &str = "export LISTEN_PID=$$; exec \"$@\"";

fn main() -> Result<()> {
    // The numbers from 3 on are ours from the start, so that nothing else is there.
    let mut places = (0..PLACES).map(|_| nothing()).collect::<Result<Vec<_>>>()?;
    assert!(places.iter().zip(3..).all(|(place, number)| place.as_raw_fd() == number));
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, limit, command @ ..] = &words[..] else { panic!("manager SOCKET LIMIT WORDS") };
    let limit: usize = limit.parse().expect("a number");
    let socket = UnixDatagram::bind(address)?;
    socket.set_read_timeout(Some(Duration::from_millis(5)))?;
    let mut store = Vec::new();
    loop {
        let mut service = start(address, limit, command, &store, &mut places)?;
        say(&format!("service {} with {} descriptors", service.id(), store.len()))?;
        let status = loop {
            hear(&socket, limit, &mut store)?;
            if let Some(status) = service.try_wait()? {
                break status;
            }
        };
        while hear(&socket, limit, &mut store)? {}
        say(&format!("ended, {status}"))?;
    }
}

/// Says it in one piece: the command writes there, too.
fn say(what: &str) -> Result<()> {
    std::io::stderr().write_all(format!("manager: {what}\n").as_bytes())
}

/// A descriptor that is good for nothing.
fn nothing() -> Result<OwnedFd> {
    Ok(open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Starts the command with what is kept for it. It ends when this process does.
fn start(
    address: &str,
    limit: usize,
    command: &[String],
    store: &[(String, OwnedFd)],
    places: &mut [OwnedFd],
) -> Result<Child> {
    for ((_, descriptor), place) in store.iter().zip(&mut *places) {
        dup2(descriptor, place)?; // and it is not closed on exec
    }
    let names: Vec<&str> = store.iter().map(|(name, _)| &**name).collect();
    let mut shell = Command::new("setpriv");
    shell.args(["--pdeathsig", "KILL", "--", "sh", "-c", SHELL, "sh"]).args(command);
    shell.env("NOTIFY_SOCKET", address).env("FDSTORE", limit.to_string());
    shell.env("LISTEN_FDS", store.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
    let child = shell.spawn();
    for place in places.iter_mut().take(store.len()) {
        dup2(nothing()?, place)?;
        fcntl_setfd(place, FdFlags::CLOEXEC)?;
    }
    child
}

/// Deals with a message; false when none came.
fn hear(socket: &UnixDatagram, limit: usize, store: &mut Vec<(String, OwnedFd)>) -> Result<bool> {
    let (mut text, mut space) = ([0; 4096], [MaybeUninit::uninit(); 4096]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let length = match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
        Ok(received) => received.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let came = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let came: Vec<OwnedFd> = came.flatten().collect();
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let name = value("FDNAME").unwrap_or("stored");
    if value("FDSTOREREMOVE").is_some() {
        store.retain(|(kept, _)| kept != name);
    } else if value("FDSTORE").is_some() {
        assert_eq!(value("FDPOLL"), Some("0"), "{text}");
        let room = limit - store.len();
        store.extend(came.into_iter().take(room).map(|descriptor| (name.to_owned(), descriptor)));
    }
    say(&format!("{}; {} kept", text.replace('\n', " "), store.len()))?;
    Ok(true)
}
