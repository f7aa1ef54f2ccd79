//! Pins of the tier in a BPF file system: tables, the programs, and a link for each interface.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fastlane_steer::link;

use crate::tables_reader::NAMES;
use crate::tier_programs::TierPrograms;

/// Version of the layout of the tables. Pins of another one are not adopted.
const LAYOUT: u32 = 8;

/// Begin of the name of the pin of the XDP program, before its version.
const PROGRAM: &str = "program";
/// Begin of the name of the pin of the program for the ingress. Earlier versions have no such
/// program.
const INGRESS: &str = "ingress";
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

    /// Returns the path of a table.
    pub(crate) fn table(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}-{LAYOUT}"))
    }

    /// Opens the tables.
    pub(crate) fn tables(&self) -> io::Result<[OwnedFd; NAMES.len()]> {
        let opened: Result<Vec<OwnedFd>, io::Error> =
            NAMES.into_iter().map(|name| link::open_pin(&self.table(name))).collect();
        opened?.try_into().map_err(|_| io::Error::other("a table is missing"))
    }

    /// Opens a table of whatever layout, if there is one.
    pub(crate) fn any_table(&self, name: &str) -> io::Result<Option<OwnedFd>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) => return absent(error).map(|()| None),
            Ok(entries) => entries,
        };
        for entry in entries {
            let entry = entry?;
            let found = entry.file_name();
            let layout =
                found.to_str().and_then(|found| found.strip_prefix(name)?.strip_prefix('-'));
            if layout.is_some_and(|layout| layout.parse::<u32>().is_ok()) {
                return link::open_pin(&entry.path()).map(Some);
            }
        }
        Ok(None)
    }

    fn program(&self, name: &str, version: u64) -> PathBuf {
        self.0.join(format!("{name}-{version:016x}"))
    }

    /// Opens the programs of a version, if they are pinned. There are those of two versions if a
    /// successor of another one was killed while it exchanged the first ones.
    pub(crate) fn programs_of(&self, version: u64) -> io::Result<Option<TierPrograms>> {
        let open = |name| match link::open_pin(&self.program(name, version)) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(error) => absent(error).map(|()| None),
        };
        let (xdp, ingress) = (open(PROGRAM)?, open(INGRESS)?);
        Ok(xdp.zip(ingress).map(|(xdp, ingress)| TierPrograms { xdp, ingress }))
    }

    /// Pins the programs of this version, if they are not pinned, and removes the pins of others.
    pub(crate) fn replace_programs(&self, programs: &TierPrograms, version: u64) -> io::Result<()> {
        let own = [(PROGRAM, &programs.xdp), (INGRESS, &programs.ingress)];
        let own = own.map(|(name, program)| (self.program(name, version), program));
        for (path, program) in &own {
            if !path.exists() {
                link::pin(program.as_fd(), path)?;
            }
        }
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_program = [PROGRAM, INGRESS].iter().any(|begin| name.starts_with(begin));
            if is_program && own.iter().all(|(own, _)| *own != path) {
                fs::remove_file(&path).or_else(absent)?;
            }
        }
        Ok(())
    }

    /// Pins the programs and their tables in a new directory.
    pub(crate) fn create(
        &self,
        programs: &TierPrograms,
        version: u64,
        tables: &[OwnedFd; NAMES.len()],
    ) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        self.replace_programs(programs, version)?;
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

#[cfg(test)]
mod tests {
    use fastlane_mirror::flows::FlowKey;
    use fastlane_table::EntryId;

    use super::*;
    use crate::encoding::{FlowHash, digest};

    /// Returns the definitions of the source that tables and those who share them depend on: keys,
    /// values, numbers and sizes, without comments and white space.
    fn layout(source: &str) -> String {
        let (_, rest) = source.split_once("enum outcome {").expect("the outcomes");
        let (definitions, _) = rest.split_once("// A parsed packet.").expect("the end of tables");
        let lines = definitions.lines().map(|line| line.split("//").next().unwrap_or_default());
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn other_tables_have_another_layout_number() {
        let source = include_str!("../bpf/flows.bpf.c");
        let found = digest(layout(source).as_bytes());
        assert_eq!(
            (LAYOUT, found),
            (8, 0x2ed8_0d4d_b997_2f32),
            "the tables of bpf/flows.bpf.c differ from those of layout 8: a successor must not \
             adopt them, so raise LAYOUT, and write the new numbers here"
        );
    }

    #[test]
    fn another_hash_has_another_layout_number() {
        let mut key = FlowKey { ports: [4000, 53], protocol: 17, version: 4, ..FlowKey::default() };
        let first = |key: &FlowKey| {
            let hash = FlowHash::new(key, 1);
            (hash.first_slot(1 << 32), hash.slot(EntryId(4), 1000))
        };
        (key.source[3], key.destination[3]) = (1, 2);
        let slot = first(&key);
        (key.source[15], key.destination[15], key.version) = (3, 4, 6);
        assert_eq!(
            (LAYOUT, slot, first(&key)),
            (8, (982_973_143, 4_233_188_357), (3_316_062_063, 188_221_445)),
            "flows of layout 8 are in other slots: raise LAYOUT, and write the new numbers here"
        );
    }

    #[test]
    fn comments_are_not_of_the_layout() {
        let source = include_str!("../bpf/flows.bpf.c");
        let commented = source.replace("struct flow {", "struct flow { // of two addresses");
        assert_eq!(layout(source), layout(&commented));
        let wider = source.replace("__u32 more[4][3];", "__u32 more[4][4];");
        assert_ne!(layout(source), layout(&wider));
    }
}
