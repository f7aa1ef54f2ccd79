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

/// Begin of the names of pinned re-entry programs.
const REENTRY: &str = "reentry-";

/// Pins the link of a re-entry program beside the pins of a port, under a number, in place of one
/// that is there.
pub(crate) fn pin_reentry(link: BorrowedFd<'_>, directory: &Path, number: usize) -> io::Result<()> {
    let path = directory.join(format!("{REENTRY}{number}"));
    fs::remove_file(&path).or_else(absent)?;
    link::pin(link, &path)
}

/// Removes the pins of a directory, and the directory. The program is detached when the last
/// descriptor of its link is closed.
///
/// # Errors
/// Returns the error of the first pin that cannot be removed. An absent one is none.
pub fn unpin(directory: &Path) -> io::Result<()> {
    for name in NAMES {
        fs::remove_file(directory.join(name)).or_else(absent)?;
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|it| it.file_name().to_string_lossy().starts_with(REENTRY)) {
        fs::remove_file(entry.path()).or_else(absent)?;
    }
    fs::remove_dir(directory).or_else(absent)
}

/// Takes an absent file for a removed one.
fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
