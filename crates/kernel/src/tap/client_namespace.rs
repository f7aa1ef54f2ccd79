//! TAP devices for another process, in the network namespace of its connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{TapSettings, TapSwitch, configure, files, open, refused};
use crate::error::Error;
use crate::{ffi, link};

/// Creates a TAP device in the network namespace of `connection`, a Unix socket accepted from its
/// client. Returns a descriptor of each queue, and the switch of a device in the namespace of the
/// calling thread.
///
/// In another namespace than that of the calling thread the device is made here, configured, and
/// moved, which takes CAP_NET_ADMIN only. Addresses cannot be set there from outside.
///
/// # Errors
/// Those of [`open`]; [`Error::Unfit`] for addresses in another namespace.
pub fn open_for_client(
    settings: TapSettings,
    connection: BorrowedFd<'_>,
) -> Result<(Vec<OwnedFd>, Option<TapSwitch>), Error> {
    let asking = |error| refused("asking for the network namespace of a client".to_owned(), error);
    let namespace = ffi::socket_namespace(connection).map_err(asking)?;
    if is_own(namespace.as_fd()).map_err(asking)? {
        let duplicate = |error| refused("duplicating a queue of a TAP device".to_owned(), error);
        let tap = open(settings)?;
        let files = tap.queues.iter().filter_map(|queue| queue.kept());
        let files = files.map(|file| file.try_clone_to_owned().map_err(duplicate));
        return Ok((files.collect::<Result<_, _>>()?, Some(tap.switch())));
    }
    if !settings.addresses.is_empty() {
        return Err(Error::Unfit {
            subject: "addresses of a TAP device".to_owned(),
            reason: "they cannot be set in another network namespace".to_owned(),
            remedy: "let the network of the container set them, and leave `addresses` out"
                .to_owned(),
        });
    }
    // The wanted name may be taken here.
    let (wanted, up) = (settings.name.clone(), false);
    let settings = TapSettings { name: None, up, ..settings };
    let (name, files) = files(&settings)?;
    let subject = |action: &str| format!("{action} of the TAP device {name}");
    let index = link::index(&name).map_err(|error| refused(subject("finding the index"), error))?;
    configure(index, &settings).map_err(|(action, error)| refused(subject(&action), error))?;
    link::move_to(index, namespace.as_fd(), wanted.as_deref()).map_err(|error| {
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Error::NameTaken { interface: wanted.unwrap_or_default() }
            }
            _ => refused(subject("the move to the client's network namespace"), error),
        }
    })?;
    Ok((files, None))
}

/// Returns true if a network namespace is that of the calling thread.
fn is_own(namespace: BorrowedFd<'_>) -> std::io::Result<bool> {
    let own = rustix::fs::stat("/proc/thread-self/ns/net")?;
    let other = rustix::fs::fstat(namespace)?;
    Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
}
