//! Takeover of a TAP device from a process that has ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::client_namespace::is_own;
use super::drop_counter::DropCounter;
use super::{CHECKSUM_OFFLOAD, Tap, TapQueue, refused};
use crate::error::Error;
use crate::{ffi, link, virtio};

/// Takes over a TAP device by the descriptors of its queues, in its network namespace. Addresses,
/// MTU, carrier and queued frames are unchanged; offloads are set again, and earlier drops are not
/// counted.
///
/// # Errors
/// [`Error::Unfit`] when a descriptor is no queue of a TAP device, of one with another kind of
/// header, or of another device than the first; [`Error::Kernel`]. The caller makes the device
/// anew then, once all descriptors of the old one are closed.
pub fn adopt(files: Vec<OwnedFd>) -> Result<Tap, Error> {
    let first = files.first().ok_or_else(|| unfit("no queues of a TAP device", "none is kept"))?;
    let name = examine(first.as_fd())?;
    for file in &files {
        let of = examine(file.as_fd())?;
        if of != name {
            return Err(unfit(&format!("a queue of {name}"), &format!("it belongs to {of}")));
        }
        ffi::tun_set_offloads(file.as_fd(), CHECKSUM_OFFLOAD).map_err(|error| {
            refused(format!("setting the offloads of the TAP device {name}"), error)
        })?;
    }
    let subject = |action: &str| format!("{action} of the TAP device {name}");
    let index = link::index(&name).map_err(|error| refused(subject("finding the index"), error))?;
    let drops = DropCounter::from_now(&name)
        .map_err(|error| refused(subject("watching the losses"), error))?;
    let mut drops = Some(drops);
    let queues = files.into_iter().map(|file| TapQueue::new(file, drops.take())).collect();
    Ok(Tap { name, index, queues })
}

/// Device number of `/dev/net/tun`: major 10, minor `TUN_MINOR` of linux/miscdevice.h.
const TUN: (u32, u32) = (10, 200);

/// Returns the name of the TAP device of a queue that another process has sent. The device is in
/// the network namespace of the calling thread.
///
/// # Errors
/// [`Error::Unfit`] for any other descriptor, [`Error::Kernel`].
pub(crate) fn name_here(queue: BorrowedFd<'_>) -> Result<String, Error> {
    let subject = "a descriptor of a TAP device";
    // Before any request: those of this driver may mean something else to another one.
    let file = rustix::fs::fstat(queue).map_err(|error| unfit(subject, &error.to_string()))?;
    let number = (rustix::fs::major(file.st_rdev), rustix::fs::minor(file.st_rdev));
    let kind = rustix::fs::FileType::from_raw_mode(file.st_mode);
    if kind != rustix::fs::FileType::CharacterDevice || number != TUN {
        return Err(unfit(subject, "it is no queue of one"));
    }
    let name = examine(queue)?;
    let here = ffi::tun_namespace(queue).and_then(|namespace| is_own(namespace.as_fd()));
    let asking = |error| refused(format!("asking for the network namespace of {name}"), error);
    match here.map_err(asking)? {
        true => Ok(name),
        false => Err(unfit(subject, &format!("{name} is in another network namespace"))),
    }
}

/// Returns the interface name of a queue after checking its type.
fn examine(file: BorrowedFd<'_>) -> Result<String, Error> {
    let subject = "a kept descriptor of a TAP device";
    let (flags, name) = ffi::tun_attached(file)
        .map_err(|error| unfit(subject, &format!("it is no queue of one ({error})")))?;
    let wanted = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let header = ffi::tun_header(file).unwrap_or(0);
    if flags & wanted != wanted || flags & libc::IFF_TUN != 0 || header != virtio::LENGTH {
        return Err(unfit(subject, &format!("{name} has another kind of frames")));
    }
    Ok(name)
}

fn unfit(subject: &str, reason: &str) -> Error {
    let remedy = "close what was kept and make the device anew".to_owned();
    Error::Unfit { subject: subject.to_owned(), reason: reason.to_owned(), remedy }
}
