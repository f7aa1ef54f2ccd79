//! Pins of the tier in a BPF file system: tables, the program, and a link for each interface.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fastlane_steer::link;

use crate::tables::NAMES;

/// Version of the layout of the tables. Pins of another one are not adopted.
const LAYOUT: u32 = 2;

/// Name of the pin of the program.
const PROGRAM: &str = "program";
/// Begin of the names of pinned links, before the index of the interface.
const LINK: &str = "link-";

/// Directory of pins, which only its owner can read.
#[derive(Clone, Debug)]
pub(crate) struct Pins(PathBuf);

impl Pins {
    pub(crate) fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn table(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}-{LAYOUT}"))
    }

    /// Opens the tables.
    pub(crate) fn tables(&self) -> io::Result<[OwnedFd; NAMES.len()]> {
        let [flows, states, status, entrances, exits, lanes, outcomes] =
            NAMES.map(|name| link::open_pin(&self.table(name)));
        Ok([flows?, states?, status?, entrances?, exits?, lanes?, outcomes?])
    }

    /// Opens the program.
    pub(crate) fn program(&self) -> io::Result<OwnedFd> {
        link::open_pin(&self.0.join(PROGRAM))
    }

    /// Pins the program and its tables in a new directory.
    pub(crate) fn create(
        &self,
        program: BorrowedFd<'_>,
        tables: &[OwnedFd; NAMES.len()],
    ) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        link::pin(program, &self.0.join(PROGRAM))?;
        let pin = |(name, table): (&str, &OwnedFd)| link::pin(table.as_fd(), &self.table(name));
        NAMES.into_iter().zip(tables).try_for_each(pin)
    }

    /// Pins the link of an interface.
    pub(crate) fn pin_link(&self, interface: u32, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        link::pin(descriptor, &self.0.join(format!("{LINK}{interface}")))
    }

    /// Removes the pin of the link of an interface.
    pub(crate) fn unpin_link(&self, interface: u32) -> io::Result<()> {
        fs::remove_file(self.0.join(format!("{LINK}{interface}"))).or_else(absent)
    }

    /// Opens the links, each with the interface in its name and the one that it is attached to.
    pub(crate) fn links(&self) -> io::Result<Vec<PinnedLink>> {
        let mut links = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(LINK));
            let Some(named) = number.and_then(|number| number.parse().ok()) else { continue };
            let descriptor = link::open_pin(&self.0.join(&name))?;
            let attached = link::interface(descriptor.as_fd())?;
            links.push(PinnedLink { named, attached, descriptor });
        }
        Ok(links)
    }

    /// Removes all pins. The program is detached when the last descriptors of its links are closed.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) => return absent(error),
            Ok(entries) => entries,
        };
        for entry in entries {
            fs::remove_file(entry?.path()).or_else(absent)?;
        }
        fs::remove_dir(&self.0).or_else(absent)
    }
}

/// Link that was pinned.
#[derive(Debug)]
pub(crate) struct PinnedLink {
    /// Interface in the name of the pin.
    pub(crate) named: u32,
    /// Interface of the link; `None` if it was removed.
    pub(crate) attached: Option<u32>,
    pub(crate) descriptor: OwnedFd,
}

/// Takes an absent file for a removed one.
fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
