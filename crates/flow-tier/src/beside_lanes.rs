//! Interfaces of both tiers. The fast path attaches the program that steers to its lanes; the tier
//! exchanges it on that link for its own, which calls it for what it does not forward. So lanes
//! lose no packet when the tier comes or goes, and the link ends with the fast path.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fastlane_netlink::xdp_program;
use fastlane_steer::{ProgramArray, ProgramError, link, program_links, program_name};

use crate::encoding::Entrance;
use crate::entrances::Entrances;
use crate::error::TierError;
use crate::kernel_tier::KernelTier;
use crate::pins::Pins;
use crate::program::PROGRAM;
use crate::tables::Tables;
use crate::tier_port::TierPort;

/// Name of the program that steers to lanes (`crates/steer/bpf/steer.bpf.c`).
const STEERING: &str = "fastlane_xdp";

impl KernelTier {
    /// Puts the program before the one that steers to lanes. Does nothing if lanes do not have the
    /// interface.
    ///
    /// # Errors
    /// Returns [`TierError::Program`] if another program is attached, or the kernel refuses.
    pub(crate) fn precede_lanes(&mut self, port: &TierPort) -> Result<(), TierError> {
        let action = format!("adding `{}` to both tiers", port.interface);
        let failed = |error| ProgramError::system(action.as_str(), error);
        let own = link::program_id(self.programs.xdp.as_fd()).map_err(failed)?;
        self.beside_lanes.remove(&port.index);
        if self.has(port.index) {
            // It was of the kernel tier alone. Lanes find no interface with a program.
            return self.detach(port.index);
        }
        let Some(attached) = xdp_program(port.index).map_err(failed)? else { return Ok(()) };
        let index = self.tables.lanes_index(port.index).map_err(failed)?;
        let entrance = port.entrance(Some(index));
        if attached == own {
            self.tables.entrances.set(&entrance).map_err(failed)?;
        } else {
            if program_name(attached).as_deref() != Some(STEERING) {
                let interface = port.interface.clone();
                return Err(ProgramError::InterfaceBusy { interface }.into());
            }
            let steering = link::open_program(attached).map_err(failed)?;
            self.tables.lanes.set(index.into(), steering.as_fd()).map_err(failed)?;
            self.tables.entrances.set(&entrance).map_err(failed)?;
            exchange(port.index, attached, steering.as_fd(), self.programs.xdp.as_fd())
                .map_err(failed)?;
        }
        self.beside_lanes.insert(port.index);
        Ok(())
    }

    /// Refuses an interface whose packets lanes or another tier get first, by XDP.
    ///
    /// # Errors
    /// Returns [`TierError::Program`] then.
    pub(crate) fn refuse_taken(&self, port: &TierPort) -> Result<(), TierError> {
        let name = xdp_program(port.index).ok().flatten().and_then(program_name);
        if name.is_some_and(|name| [STEERING, PROGRAM].contains(&&*name)) {
            let interface = port.interface.clone();
            return Err(ProgramError::InterfaceBusy { interface }.into());
        }
        Ok(())
    }
}

impl Tables {
    /// Returns the index in `lanes` of an interface, which may be a free one.
    fn lanes_index(&self, interface: u32) -> io::Result<u16> {
        let mut taken = Vec::new();
        for entrance in self.entrances.all()? {
            match entrance.lanes {
                Some(index) if entrance.interface == interface => return Ok(index),
                index => taken.extend(index),
            }
        }
        Ok((0..).find(|index| !taken.contains(index)).unwrap_or_default())
    }

    /// Returns the interfaces of both tiers.
    pub(crate) fn beside_lanes(&self) -> io::Result<impl Iterator<Item = u32> + use<>> {
        let found = self.entrances.all()?.into_iter();
        Ok(found.filter(|it| it.lanes.is_some()).map(|it| it.interface))
    }

    /// Gives an interface back to the program that steers to lanes, if the tier's is on it.
    pub(crate) fn return_to_lanes(&self, interface: u32) -> io::Result<()> {
        // A kill may have left two of them, and only one with a program of lanes.
        let found = self.entrances.all()?;
        let mut own = found.iter().filter(|it| it.interface == interface);
        own.try_for_each(|entrance| give_back(entrance, &self.lanes))
    }

    /// Gives all interfaces of both tiers back to the programs that steer to lanes, by the pinned
    /// tables of a tier. Their layout may be another one: the table of programs ends with its pin,
    /// so lanes would get nothing any more.
    pub(crate) fn return_all(pins: &Pins) -> io::Result<()> {
        let tables = (pins.any_table("entrances")?, pins.any_table("lanes")?);
        let (Some(entrances), Some(lanes)) = tables else { return Ok(()) };
        let lanes = ProgramArray::new(lanes.as_fd())?;
        let found = Entrances::of_any_layout(entrances)?;
        found.iter().try_for_each(|entrance| give_back(entrance, &lanes))
    }

    /// Exchanges the program of another version on an interface of both tiers, if it is on it.
    pub(crate) fn renew_beside_lanes(
        &self,
        interface: u32,
        program: BorrowedFd<'_>,
    ) -> io::Result<()> {
        match tier_program(interface) {
            Some(attached) if attached != link::program_id(program)? => {
                let old = link::open_program(attached)?;
                exchange(interface, attached, old.as_fd(), program)
            }
            _ => Ok(()),
        }
    }
}

fn give_back(entrance: &Entrance, lanes: &ProgramArray) -> io::Result<()> {
    let Entrance { interface, lanes: Some(index), .. } = *entrance else { return Ok(()) };
    let Some(attached) = tier_program(interface) else { return Ok(()) };
    let (program, steering) =
        (link::open_program(attached)?, link::open_program(lanes.get(index.into())?)?);
    exchange(interface, attached, program.as_fd(), steering.as_fd())
}

/// Returns the program on an interface if it is that of a tier, of whatever version. Otherwise the
/// fast path has ended, or the interface was removed.
fn tier_program(interface: u32) -> Option<u32> {
    let attached = xdp_program(interface).ok().flatten()?;
    (program_name(attached).as_deref() == Some(PROGRAM)).then_some(attached)
}

/// Exchanges the program on the link by which it is attached to an interface.
fn exchange(
    interface: u32,
    id: u32,
    old: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    for number in program_links(id) {
        let link = link::open_link(number)?;
        if link::interface(link.as_fd())? == Some(interface) {
            return link::exchange(link.as_fd(), old, program);
        }
    }
    Err(io::Error::other("its XDP program is on no BPF link"))
}
