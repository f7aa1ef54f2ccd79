//! Pins of an attached program in a BPF file system: the program runs on while no process has its
//! descriptors, and another process can take it over.

use std::{
    fs,
    io::{self, ErrorKind},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::Path,
};

use crate::{ProgramHandover, link};

/// Names of the pins, in the order of the fields of [`ProgramHandover`].
const NAMES: [&str; 4] = ["link", "steering", "sockets", "counts"];

impl ProgramHandover<BorrowedFd<'_>> {
    /// Pins the program in a new directory of a BPF file system, which only its owner can read.
    ///
    /// # Errors
    /// Returns the refusal of the kernel; nothing is pinned then.
    pub fn pin(&self, directory: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(directory)?;
        let objects = [self.link, self.steering, self.sockets, self.counts];
        let pin = |(name, object)| link::pin(object, &directory.join(name));
        NAMES.into_iter().zip(objects).try_for_each(pin).inspect_err(|_| {
            let _ = unpin(directory);
        })
    }
}

impl ProgramHandover<OwnedFd> {
    /// Opens the pins of a directory.
    ///
    /// # Errors
    /// Returns an error if one is missing or the kernel refuses.
    pub fn from_pins(directory: &Path) -> io::Result<Self> {
        let open = |name| link::open_pin(&directory.join(name));
        let [link, steering, sockets, counts] = NAMES;
        Ok(Self {
            link: open(link)?,
            steering: open(steering)?,
            sockets: open(sockets)?,
            counts: open(counts)?,
        })
    }

    /// Returns the index of the interface to which the program is attached, or `None` if the
    /// interface was removed.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub fn interface(&self) -> io::Result<Option<u32>> {
        link::interface(self.link.as_fd())
    }
}

/// Removes the pins of a directory, and the directory. The program is detached when the last
/// descriptor of its link is closed.
///
/// # Errors
/// Returns the error of the first pin that cannot be removed. An absent one is none.
pub fn unpin(directory: &Path) -> io::Result<()> {
    let absent = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    };
    for name in NAMES {
        fs::remove_file(directory.join(name)).or_else(absent)?;
    }
    fs::remove_dir(directory).or_else(absent)
}
