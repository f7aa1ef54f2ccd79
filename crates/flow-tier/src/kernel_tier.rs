//! The kernel tier: loads the program or adopts a running one, attaches it, and writes its tables.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use aya::Ebpf;
use fastlane_mirror::Prefix;
use fastlane_mirror::flows::{FlowKey, FlowStatus, FlowTier, TierFlow, TierTotals};
use fastlane_steer::ProgramError;
use fastlane_table::EntryId;

use crate::encoding::Status;
use crate::error::{TierError, system, table};
use crate::pins::Pins;
use crate::program::{self, LoadedPrograms, OPENING};
use crate::slots::{SlotWrite, Slots, slot_words};
use crate::tables::Tables;
use crate::tier_outcome::OutcomeCount;
use crate::tier_port::TierPort;
use crate::tier_programs::{TierLink, TierPrograms};

/// Time after a heartbeat in which remembered next hops hold, in nanoseconds. After it each packet
/// is looked up, as nobody follows the routes.
const HOPS_TIME: u64 = 1_000_000_000;

/// Number of serial numbers that are reserved at once, so that few insertions write the status.
const SERIALS: u32 = 1 << 16;

/// Action whose failure is reported.
const RETURNING: &str = "giving an interface of the kernel tier back to lanes";

/// Origin of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// The program was loaded.
    Loaded,
    /// The pinned program of a predecessor and its tables were adopted.
    Adopted,
    /// The tables of a predecessor of another version were adopted, and its program was replaced.
    Renewed,
}

/// Kernel tier: the program, its tables and its links. Without pins it ends with this value; with
/// them it stays until they are [removed](Self::remove).
#[derive(Debug)]
pub struct KernelTier {
    pub(crate) object: Option<Ebpf>,
    pub(crate) programs: TierPrograms,
    pub(crate) tables: Tables,
    pins: Option<Pins>,
    /// Links by the index of the interface.
    links: BTreeMap<u32, TierLink>,
    /// Interfaces of both tiers that have the program, on links of the fast path.
    pub(crate) beside_lanes: BTreeSet<u32>,
    slots: Slots,
    /// Serial number of the last insertion.
    last_serial: u32,
    /// Status as the program reads it.
    status: Status,
    /// Number of insertions that found no slot.
    full: u64,
}

impl KernelTier {
    /// Loads the program, with room for `capacity` directions of flows, without pins.
    ///
    /// # Errors
    /// Returns [`TierError::Program`] without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON.
    pub fn load(capacity: usize) -> Result<Self, TierError> {
        let LoadedPrograms { object, programs } = LoadedPrograms::load(capacity, None)?;
        let descriptors = Tables::descriptors(&object);
        let descriptors = descriptors.map_err(|error| ProgramError::system(OPENING, error))?;
        let mut tables = Tables::open(descriptors).map_err(|error| table(OPENING, error))?;
        // Keys whose slots are close cannot be chosen by who does not know it.
        let seed = RandomState::new().build_hasher().finish();
        let status = Status { seed, ..Status::default() }.words();
        tables.status.set(0, status, 0).map_err(|error| table(OPENING, error))?;
        Self::new(Some(object), programs, tables, None)
    }

    /// Adopts the program that a predecessor has pinned in a directory, with its flows, or loads it
    /// and pins it there. The program of another version is exchanged from one packet to the next,
    /// if its tables are the same. One with other tables, or with room for another number of flows,
    /// is replaced: Linux handles everything meanwhile.
    ///
    /// # Errors
    /// Returns [`TierError::Pins`] if the directory is in no BPF file system, and the errors of
    /// [`load`](Self::load).
    pub fn open(capacity: usize, directory: &Path) -> Result<(Self, Adoption), TierError> {
        let pins = Pins::new(directory);
        if let Some(adopted) = Self::adopt(&pins, capacity) {
            return Ok(adopted);
        }
        let failed = |reason| TierError::Pins { path: directory.to_owned(), reason };
        return_to_lanes(&pins)?;
        pins.remove().map_err(failed)?;
        let mut tier = Self::load(capacity)?;
        let descriptors = tier.object.as_ref().map(Tables::descriptors).transpose();
        if let Some(descriptors) = descriptors.map_err(failed)? {
            let created = pins.create(&tier.programs, program::version(), &descriptors);
            created.map_err(|reason| {
                let _ = pins.remove();
                failed(reason)
            })?;
        }
        tier.pins = Some(pins);
        Ok((tier, Adoption::Loaded))
    }

    /// Adopts what is pinned, if all of it is there and as it must be.
    fn adopt(pins: &Pins, capacity: usize) -> Option<(Self, Adoption)> {
        let tables = Tables::open(pins.tables().ok()?).ok()?;
        if tables.reader.capacity() != capacity
            || tables.reader.slot_words() != slot_words(capacity)
        {
            return None;
        }
        let (object, programs, adoption) = match pins.programs_of(program::version()).ok()? {
            Some(programs) => (None, programs, Adoption::Adopted),
            None => {
                let loaded = LoadedPrograms::load(capacity, Some(pins)).ok()?;
                (Some(loaded.object), loaded.programs, Adoption::Renewed)
            }
        };
        // Pinned before they are attached: whoever comes next finds what it is to exchange.
        pins.replace_programs(&programs, program::version()).ok()?;
        let links = pins.links().ok()?;
        let mut tier = Self::new(object, programs, tables, Some(pins.clone())).ok()?;
        for link in links {
            if link.attached == Some(link.named) {
                let renewed = tier.programs.renew(link.descriptor).ok()?;
                tier.links.insert(link.named, renewed);
            } else {
                pins.unpin_link(link.named).ok()?;
            }
        }
        for interface in &tier.beside_lanes {
            tier.tables.renew_beside_lanes(*interface, tier.programs.xdp.as_fd()).ok()?;
        }
        Some((tier, adoption))
    }

    fn new(
        object: Option<Ebpf>,
        programs: TierPrograms,
        mut tables: Tables,
        pins: Option<Pins>,
    ) -> Result<Self, TierError> {
        let reading = "reading the flows of the kernel tier";
        let failed = |error| ProgramError::system(reading, error);
        let status = tables.reader.status().map_err(failed)?;
        let (found, capacity) = (tables.reader.all().map_err(failed)?, tables.reader.capacity());
        let taken_over =
            Slots::take_over(status.seed, capacity, &found, |write| tables.write(write));
        let slots = taken_over.map_err(failed)?;
        let beside_lanes = tables.beside_lanes().map_err(failed)?.collect();
        // States of flows that were removed are left, so the numbers of present ones do not tell.
        // Only a predecessor of an earlier version has reserved none.
        let last_serial = match status.last_serial {
            0 => slots.last_serial(),
            last => last,
        };
        Ok(Self {
            object,
            programs,
            beside_lanes,
            tables,
            pins,
            links: BTreeMap::new(),
            slots,
            last_serial,
            status: Status { last_serial, ..status },
            full: 0,
        })
    }

    /// Attaches the program to an interface, if it is not attached there. To one of both tiers it
    /// is attached [when lanes have it](Self::has). Flows may then arrive on it and, if it
    /// [transmits](Self::transmits) redirected frames, leave by it. Call it again if the Ethernet
    /// address has changed, or an interface may have begun to transmit.
    ///
    /// # Errors
    /// Returns [`TierError::Program`] if another XDP program is attached, or the interface is
    /// removed; [`TierError::Pins`] if the link cannot be pinned.
    pub fn attach(&mut self, port: &TierPort) -> Result<(), TierError> {
        let TierPort { index, has_lanes, .. } = *port;
        if port.may_be_native() && !self.has(index) {
            self.remove_mute_exits()?;
        }
        if has_lanes {
            self.precede_lanes(port)?;
            return self.set_exit(port);
        }
        let action = || format!("adding `{}` to the kernel tier", port.interface);
        let refused = |error| ProgramError::system(action(), error);
        if self.beside_lanes.remove(&index) {
            self.tables.return_to_lanes(index).map_err(refused)?;
        }
        let is_ingress = port.is_at_ingress();
        let is_linked = |it: &TierLink| it.is_ingress == is_ingress;
        if is_ingress && !self.links.contains_key(&index) {
            self.refuse_taken(port)?;
        }
        self.tables.entrances.set(&port.entrance(None)).map_err(refused)?;
        // With another hook than before, it is attached there before it leaves the old one.
        if !self.links.get(&index).is_some_and(is_linked) {
            let link = self.programs.attach(port)?;
            if let Some(pins) = &self.pins {
                let pinned = pins
                    .unpin_link(index)
                    .and_then(|()| pins.pin_link(index, link.descriptor.as_fd()));
                pinned
                    .map_err(|reason| TierError::Pins { path: pins.path().to_owned(), reason })?;
            }
            // Others may have descriptors of the old one.
            if let Some(old) = self.links.insert(index, link) {
                old.detach().map_err(refused)?;
            }
        }
        self.set_exit(port)
    }

    /// Lets no flow leave by interfaces that only Linux transmits on, before frames of a native
    /// program arrive, which would be lost there.
    fn remove_mute_exits(&mut self) -> Result<(), TierError> {
        let interfaces: Vec<u32> = self.interfaces().collect();
        for interface in interfaces {
            let transmits = fastlane_netlink::transmits_redirected(interface).unwrap_or(true);
            if !transmits && self.transmits(interface) {
                self.remove_exit(interface)?;
            }
        }
        Ok(())
    }

    /// Lets flows leave by an interface that transmits redirected frames and is not closed, and by
    /// no other: Linux would drop them, or not see them. Kernels before 6.3 do not
    /// tell which transmit; there all do.
    fn set_exit(&mut self, port: &TierPort) -> Result<(), TierError> {
        let index = port.index;
        let transmits = self.is_able(index) && !port.is_closed;
        let is_exit = self.transmits(index);
        if transmits && !is_exit {
            let action = format!("adding `{}` to the exits of the kernel tier", port.interface);
            let inserted = self.tables.exits.insert(index, index, None, 0);
            inserted.map_err(|error| {
                ProgramError::system(action, io::Error::other(error.to_string()))
            })?;
        } else if !transmits && is_exit {
            self.remove_exit(index)?;
        }
        // This port may be the first one whose frames only a driver can transmit.
        let others: Vec<u32> = self.interfaces().filter(|it| *it != index).collect();
        for other in others {
            if self.transmits(other) && !self.is_able(other) {
                self.remove_exit(other)?;
            }
        }
        Ok(())
    }

    /// Returns true if an interface transmits what the program redirects to it. That is up to its
    /// driver, unless the program gets socket buffers on all interfaces where flows arrive, at
    /// their ingress or in generic mode: then Linux transmits it like any packet.
    fn is_able(&self, interface: u32) -> bool {
        let has_buffers = |it| {
            self.links.get(&it).is_some_and(|link| link.is_ingress)
                || fastlane_netlink::has_generic_xdp(it).unwrap_or(false)
        };
        fastlane_netlink::transmits_redirected(interface).unwrap_or(true)
            || self.interfaces().all(has_buffers)
    }

    fn remove_exit(&mut self, interface: u32) -> Result<(), TierError> {
        let _ = self.tables.exits.remove(interface); // Linux may have removed it
        let forgotten = self.forget_hops();
        let action = "forgetting the next hops of the kernel tier";
        forgotten.map_err(|error| ProgramError::system(action, error).into())
    }

    /// Returns true if flows leave by an interface.
    #[must_use]
    pub fn transmits(&self, interface: u32) -> bool {
        self.tables.exits.get(interface, 0).is_ok()
    }

    /// Returns the interfaces to which the program is attached, by their indexes.
    pub fn interfaces(&self) -> impl Iterator<Item = u32> {
        self.links.keys().chain(&self.beside_lanes).copied()
    }

    /// Returns true if the program is attached to an interface.
    #[must_use]
    pub fn has(&self, interface: u32) -> bool {
        self.links.contains_key(&interface) || self.beside_lanes.contains(&interface)
    }

    /// Detaches the program from an interface. One of both tiers is given back to lanes.
    ///
    /// # Errors
    /// Returns [`TierError::Pins`] if its pin cannot be removed.
    pub fn detach(&mut self, interface: u32) -> Result<(), TierError> {
        if self.beside_lanes.remove(&interface) {
            let returned = self.tables.return_to_lanes(interface);
            returned.map_err(|error| ProgramError::system(RETURNING, error))?;
        }
        let action = "removing an interface from the kernel tier";
        let removed = self.tables.entrances.remove(interface);
        removed.map_err(|error| ProgramError::system(action, error))?;
        let _ = self.tables.exits.remove(interface); // Linux may have removed it
        if let Some(link) = self.links.remove(&interface) {
            let _ = link.detach(); // Linux may have removed the interface
        }
        let Some(pins) = &self.pins else { return Ok(()) };
        let failed = |reason| TierError::Pins { path: pins.path().to_owned(), reason };
        pins.unpin_link(interface).map_err(failed)
    }

    /// Forgets all remembered next hops, from the next packet on: routes, neighbours, links or
    /// addresses have changed.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub fn forget_hops(&mut self) -> io::Result<()> {
        let generation = self.status.generation.wrapping_add(1).max(1); // 0 means none
        self.set_status(Status { generation, ..self.status })
    }

    /// Sets the MTUs of IPv4 routes by prefix, in place of those before. They hold for next hops
    /// that are looked up from now on; others are to be [forgotten](Self::forget_hops).
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub fn set_route_mtus(&mut self, mtus: BTreeMap<Prefix, u32>) -> io::Result<()> {
        self.tables.route_mtus.set(mtus)
    }

    fn set_status(&mut self, status: Status) -> io::Result<()> {
        self.tables.status.set(0, status.words(), 0).map_err(system)?;
        self.status = status;
        Ok(())
    }

    /// Returns the serial number of the next insertion, which no earlier one had, not even one of a
    /// predecessor.
    fn next_serial(&mut self) -> io::Result<u32> {
        if self.last_serial == self.status.last_serial {
            let last_serial = self.last_serial.wrapping_add(SERIALS).max(1);
            self.set_status(Status { last_serial, ..self.status })?;
        }
        self.last_serial = self.last_serial.wrapping_add(1).max(1); // 0 means none
        Ok(self.last_serial)
    }

    /// Returns the number of directions of flows that found no slot so far, and are Linux's.
    #[must_use]
    pub fn full(&self) -> u64 {
        self.full
    }

    /// Returns the packets of each outcome.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub fn outcomes(&self) -> io::Result<Vec<OutcomeCount>> {
        self.tables.reader.outcomes()
    }

    /// Removes the pins of a tier in a directory, and gives interfaces of both tiers back to lanes.
    /// It ends with the last process that has it open.
    ///
    /// # Errors
    /// Returns [`TierError::Pins`] if one cannot be removed, [`TierError::Program`] if an interface
    /// cannot be given back.
    pub fn remove(directory: &Path) -> Result<(), TierError> {
        let pins = Pins::new(directory);
        return_to_lanes(&pins)?;
        let failed = |reason| TierError::Pins { path: directory.to_owned(), reason };
        pins.remove().map_err(failed)
    }
}

/// Gives the interfaces of both tiers back to lanes, if a tier is pinned.
fn return_to_lanes(pins: &Pins) -> Result<(), TierError> {
    let returned = Tables::return_all(pins);
    Ok(returned.map_err(|error| ProgramError::system(RETURNING, error))?)
}

impl FlowTier for KernelTier {
    fn insert(&mut self, flow: &TierFlow) -> io::Result<()> {
        let serial = self.next_serial()?;
        let write = |write: SlotWrite<'_>| self.tables.write(write);
        self.full += u64::from(!self.slots.replace(flow, serial, write)?);
        Ok(())
    }

    fn remove(&mut self, key: &FlowKey) -> io::Result<()> {
        self.slots.remove(key, |write| self.tables.write(write))
    }

    fn flows(&self) -> io::Result<Vec<TierFlow>> {
        Ok(self.slots.flows().copied().collect())
    }

    fn totals(&self, entry: EntryId) -> io::Result<TierTotals> {
        match self.slots.serial(entry) {
            None => Ok(TierTotals::default()),
            Some(serial) => self.tables.reader.totals(entry.0, serial),
        }
    }

    fn publish(&mut self, status: &FlowStatus) -> io::Result<()> {
        let FlowStatus { heartbeat, grace, is_active, .. } = *status;
        let deadline = if is_active == 1 { heartbeat.saturating_add(grace) } else { 0 };
        let hops_until = heartbeat.saturating_add(HOPS_TIME);
        let generation = self.status.generation.max(1);
        self.set_status(Status { deadline, hops_until, generation, ..self.status })
    }
}
