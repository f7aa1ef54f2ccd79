//! A program that outlives its process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{
    error::ProgramError,
    link,
    program::{Program, Settings},
    tables::Tables,
};

/// What must be kept of a program on an interface for a successor to take it over: as long as one
/// process has the link, the program runs, with its tables as they are.
#[derive(Debug)]
pub struct Kept<T> {
    /// The BPF link that holds the program on its interface.
    pub link: T,
    /// The table with the rules in force.
    pub steering: T,
    /// The table of AF_XDP sockets, which holds no references to them: they must be kept too.
    pub sockets: T,
    /// The counts.
    pub counts: T,
}

impl Program {
    /// What to keep, to be duplicated or passed to another process; `None` when the XDP program is
    /// on no interface. AF_PACKET has nothing to be kept: a socket's frames are lost with its ring.
    #[must_use]
    pub fn kept(&self) -> Option<Kept<BorrowedFd<'_>>> {
        let link = self.xdp_link.as_ref()?.as_fd();
        let [steering, sockets, counts] = self.tables.descriptors();
        Some(Kept { link, steering, sockets, counts })
    }

    /// Takes over the XDP program of a process that has ended, on the interface of this index,
    /// which is checked. It goes on meanwhile: rules and sockets are as they were, counts go on.
    /// `settings` are those that it was loaded with; they go with the rules when these are
    /// [replaced](Program::replace_rules).
    ///
    /// The successor cannot attach it anew, nor attach the other programs.
    ///
    /// # Errors
    /// [`ProgramError::NotAdoptable`] when the descriptors are not those of a program on that
    /// interface, [`ProgramError::Kernel`] when the kernel refuses.
    pub fn adopt(
        kept: Kept<OwnedFd>,
        interface: u32,
        settings: Settings,
    ) -> Result<Program, ProgramError> {
        let Kept { link, steering, sockets, counts } = kept;
        let on = link::interface(link.as_fd())
            .map_err(|source| ProgramError::system("asking for a kept BPF link", source))?;
        if on != Some(interface) {
            let reason = match on {
                Some(other) => format!("its BPF link is on interface {other}, not {interface}"),
                None => format!("interface {interface} is gone, or the descriptor is no BPF link"),
            };
            return Err(ProgramError::NotAdoptable { reason });
        }
        let tables = Tables::open([steering, sockets, counts]).map_err(|error| {
            let reason = format!("its tables are not those of this version ({error})");
            ProgramError::NotAdoptable { reason }
        })?;
        Ok(Program { programs: None, tables, settings, xdp_link: Some(link) })
    }
}
