//! Reassembly of outer packets: GTP-U that reaches this UPF in IP fragments, because a link in
//! front of it is too short for its tunnel (TS 29.281 clause 13).
//!
//! A [`Reassembler`] has a fixed number of slots, one for each packet that is incomplete. Memory is
//! allocated at the start. A slot ends with its time, or when a newer packet needs it. Fragments
//! that overlap end their packet, also in IPv4 (RFC 5722 clause 4); exact copies do no harm. The
//! packet is completed in the frame of the fragment that arrives last, so it needs no frame of its
//! own and keeps its position in the burst.

use fastlane::Packet;
use fastlane::wire::{Ethernet, GtpU, IpProtocol, Ipv4, Ipv6, checksum, header_mut};

use self::outer_fragment::{OuterFragment, PacketId};
use super::lane_tables::LaneTables;
use crate::rules::layout::drop_reason::DropReason;

mod outer_fragment;

pub(crate) use outer_fragment::shard;

/// Slots of a set: those in which a packet may be.
const WAYS: usize = 4;
/// Maximum length of what the fragments of a packet carry, in octets.
const MAX_PAYLOAD: usize = 9216;
/// Fragments begin at multiples of a block.
const BLOCK: usize = 8;
/// Words of a bitmap of all blocks.
const WORDS: usize = MAX_PAYLOAD / BLOCK / 64;
/// Maximum length of the headers in front: Ethernet, IP, options or extension headers.
const MAX_FRONT: usize = 128;

/// Effect of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The frame is the whole packet now.
    Whole,
    /// Other fragments are missing.
    Incomplete,
    /// The packet is refused.
    Refused,
    /// The packet is not GTP-U.
    Linux,
}

/// Returns the words of a bitmap of blocks with the bits of those from octet `offset`, a multiple
/// of a block, to `end`.
fn masks(offset: usize, end: usize) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
    let below = |bits: usize| u64::MAX.checked_shl(bits as u32).map_or(u64::MAX, |mask| !mask);
    (first / 64..last.div_ceil(64)).map(move |word| {
        let start = word * 64;
        (word, below(last.saturating_sub(start)) & !below(first.saturating_sub(start)))
    })
}

/// Returns the number of blocks of a bitmap from octet `offset` to `end`.
fn count_of(bitmap: &[u64; WORDS], offset: usize, end: usize) -> usize {
    let of = |(word, mask): (usize, u64)| {
        bitmap.get(word).map_or(0, |blocks| (blocks & mask).count_ones() as usize)
    };
    masks(offset, end).map(of).sum()
}

/// Sets the blocks of a bitmap from octet `offset` to `end`.
fn set(bitmap: &mut [u64; WORDS], offset: usize, end: usize) {
    for (word, mask) in masks(offset, end) {
        if let Some(blocks) = bitmap.get_mut(word) {
            *blocks |= mask;
        }
    }
}

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Empty,
    /// Fragments are missing.
    Incomplete,
    /// The rest of the packet is dropped.
    Refused,
    /// The rest of the packet is Linux's.
    Linux,
}

/// A packet of which fragments have arrived.
#[derive(Clone, Debug)]
struct Slot {
    id: PacketId,
    state: SlotState,
    /// Expiry in ns of `CLOCK_MONOTONIC`.
    until: u64,
    /// Length of the payload; 0 as long as the last fragment is missing.
    total: usize,
    /// Octets of the payload that have arrived.
    received: usize,
    /// End of the part that reaches farthest.
    reach: usize,
    /// Blocks that have arrived.
    blocks: [u64; WORDS],
    /// Blocks with which a fragment begins.
    starts: [u64; WORDS],
    front: [u8; MAX_FRONT],
    front_length: usize,
    /// True if a fragment was marked (RFC 3168 clause 5.3).
    is_congested: bool,
}

impl Slot {
    const EMPTY: Self = Self {
        id: PacketId { source: 0, destination: 0, identification: 0, is_v6: false },
        state: SlotState::Empty,
        until: 0,
        total: 0,
        received: 0,
        reach: 0,
        blocks: [0; WORDS],
        starts: [0; WORDS],
        front: [0; MAX_FRONT],
        front_length: 0,
        is_congested: false,
    };

    /// Begins a packet.
    fn begin(&mut self, id: PacketId, until: u64) {
        *self = Self { id, state: SlotState::Incomplete, until, ..Self::EMPTY };
    }

    /// Returns true if one fragment has brought all octets from `offset` to `end`, and no others.
    fn has(&self, offset: usize, end: usize) -> bool {
        let next = end.next_multiple_of(BLOCK);
        count_of(&self.blocks, offset, end) == (end - offset).div_ceil(BLOCK)
            && count_of(&self.starts, offset, offset + BLOCK) == 1
            && count_of(&self.starts, offset, end) == 1
            && count_of(&self.blocks, next, next + BLOCK)
                == count_of(&self.starts, next, next + BLOCK)
    }

    /// Adds a sound fragment whose payload ends at `end`; false if the packet is to be refused.
    fn add(&mut self, payload: &mut [u8], fragment: &OuterFragment<'_>, end: usize) -> bool {
        let Some(place) = payload.get_mut(fragment.offset..end) else { return false };
        let is_end_right = match fragment.is_last {
            true => end >= self.reach && (self.total == 0 || self.total == end),
            false => self.total == 0 || end < self.total,
        };
        if count_of(&self.blocks, fragment.offset, end) > 0 || !is_end_right {
            // Only an exact copy does no harm.
            return self.has(fragment.offset, end)
                && fragment.is_last == (self.total == end)
                && *place == *fragment.payload;
        }
        place.copy_from_slice(fragment.payload);
        set(&mut self.blocks, fragment.offset, end);
        set(&mut self.starts, fragment.offset, fragment.offset + BLOCK);
        self.received += fragment.payload.len();
        self.reach = self.reach.max(end);
        self.is_congested |= fragment.ecn == 3;
        if fragment.is_last {
            self.total = end;
        }
        if fragment.offset == 0
            && let Some(front) = self.front.get_mut(..fragment.front.len())
        {
            front.copy_from_slice(fragment.front);
            self.front_length = front.len();
            if let Some(next_header) = fragment.next_header.and_then(|at| front.get_mut(at)) {
                *next_header = IpProtocol::UDP;
            }
        }
        true
    }

    /// Writes the whole packet to a frame; false if it does not fit or its congestion marks
    /// contradict each other.
    fn write(&mut self, payload: &[u8], packet: &mut Packet) -> bool {
        let (Some(front), Some(payload)) =
            (self.front.get_mut(..self.front_length), payload.get(..self.total))
        else {
            return false;
        };
        let length = front.len() - Ethernet::LENGTH + payload.len();
        let Ok(ip_length) = u16::try_from(length) else { return false };
        if self.id.is_v6 {
            let Some(ip) = header_mut::<Ipv6>(front, Ethernet::LENGTH) else { return false };
            if self.is_congested && ip.traffic_class() & 3 == 0 {
                return false;
            }
            let mark = if self.is_congested { 3 << 20 } else { 0 };
            ip.version_class_flow.set(ip.version_class_flow.get() | mark);
            ip.payload_length.set(ip_length - Ipv6::LENGTH as u16);
        } else {
            let Some(ip) = header_mut::<Ipv4>(front, Ethernet::LENGTH) else { return false };
            if self.is_congested && ip.type_of_service & 3 == 0 {
                return false;
            }
            ip.type_of_service |= if self.is_congested { 3 } else { 0 };
            ip.total_length.set(ip_length);
            ip.flags_fragment_offset.set(0);
            ip.header_checksum.set(0);
            let sum = checksum::checksum(front.get(Ethernet::LENGTH..).unwrap_or_default());
            if let Some(ip) = header_mut::<Ipv4>(front, Ethernet::LENGTH) {
                ip.header_checksum.set(sum);
            }
        }
        if !resize(packet, front.len() + payload.len()) {
            return false;
        }
        let Some((head, rest)) = packet.bytes_mut().split_at_mut_checked(front.len()) else {
            return false;
        };
        head.copy_from_slice(front);
        rest.copy_from_slice(payload);
        true
    }
}

/// Gives a packet this length, with any content; false if its frame is too short.
fn resize(packet: &mut Packet, length: usize) -> bool {
    packet.set_partial_checksum(None);
    let Some(more) = length.checked_sub(packet.len()) else { return packet.truncate(length) };
    let behind = more.min(packet.tailroom());
    if more - behind > packet.headroom() {
        return false;
    }
    packet.append(behind).is_some() && packet.prepend(more - behind).is_some()
}

/// Incomplete outer packets of a lane.
pub(crate) struct Reassembler {
    /// Sets of [`WAYS`] slots.
    slots: Vec<Slot>,
    /// Payloads of the slots.
    payloads: Vec<u8>,
    /// Time that a packet has for all its fragments, in ns.
    lifetime: u64,
    /// Number of slots in use.
    used: usize,
    /// Next slot that is checked for its expiry.
    next: usize,
}

impl Reassembler {
    /// Creates a reassembler of up to `packets` packets at a time, rounded up to whole sets, each
    /// of which has `ms` milliseconds.
    pub(crate) fn new(packets: u32, ms: u64) -> Self {
        let slots = (packets as usize).next_multiple_of(WAYS);
        // Written once, so that no lane waits for a page.
        let payloads = vec![0xff; slots * MAX_PAYLOAD];
        let lifetime = ms * 1_000_000;
        Self { slots: vec![Slot::EMPTY; slots], payloads, lifetime, used: 0, next: 0 }
    }

    /// Adds a fragment of an outer packet, which it may complete.
    #[cold]
    pub(crate) fn add(&mut self, packet: &mut Packet, now: u64, tables: &LaneTables) -> Progress {
        let is_gtpu = |port| port == GtpU::PORT;
        self.add_if(packet, now, tables, is_gtpu)
    }

    /// Adds a fragment of any IPv4 packet, which it may complete.
    #[cold]
    pub(crate) fn add_any(
        &mut self,
        packet: &mut Packet,
        now: u64,
        tables: &LaneTables,
    ) -> Progress {
        self.add_if(packet, now, tables, |_| true)
    }

    fn add_if(
        &mut self,
        packet: &mut Packet,
        now: u64,
        tables: &LaneTables,
        takes_port: impl Fn(u16) -> bool,
    ) -> Progress {
        let Some(fragment) = OuterFragment::read(packet.bytes()) else { return Progress::Refused };
        let Some(index) = self.slot_of(fragment.id, now, tables) else { return Progress::Refused };
        let Some(slot) = self.slots.get_mut(index) else { return Progress::Refused };
        let payload = self.payloads.get_mut(index * MAX_PAYLOAD..).unwrap_or_default();
        match slot.state {
            SlotState::Refused => return Progress::Refused,
            SlotState::Linux => return Progress::Linux,
            SlotState::Empty | SlotState::Incomplete => {}
        }
        if fragment.offset == 0 && fragment.port().is_some_and(|port| !takes_port(port)) {
            let is_begun = slot.received > 0;
            slot.state = SlotState::Linux;
            if is_begun {
                // Its later fragments came first and are lost.
                count(tables, DropReason::ReassemblyRefused);
            }
            return Progress::Linux;
        }
        let is_too_short = fragment.offset == 0 && fragment.port().is_none();
        let end = fragment.end().filter(|_| !is_too_short);
        if !end.is_some_and(|end| slot.add(payload, &fragment, end)) {
            slot.state = SlotState::Refused;
            count(tables, DropReason::ReassemblyRefused);
            return Progress::Refused;
        }
        if slot.total == 0 || slot.received < slot.total {
            return Progress::Incomplete;
        }
        let is_whole = slot.write(payload, packet);
        slot.state = SlotState::Empty;
        self.used -= 1;
        let (progress, reason) = match is_whole {
            true => (Progress::Whole, DropReason::Reassembled),
            false => (Progress::Refused, DropReason::ReassemblyRefused),
        };
        count(tables, reason);
        progress
    }

    /// Returns the slot of a packet; a new one, in place of the oldest of its set, if it has none.
    fn slot_of(&mut self, id: PacketId, now: u64, tables: &LaneTables) -> Option<usize> {
        let sets = self.slots.len() / WAYS;
        let first = (id.hash() as usize).checked_rem(sets)? * WAYS;
        for index in first..first + WAYS {
            self.end_if_expired(index, now, tables);
        }
        let set = self.slots.get(first..first + WAYS)?;
        let is_it = |slot: &Slot| slot.state != SlotState::Empty && slot.id == id;
        if let Some(way) = set.iter().position(is_it) {
            return Some(first + way);
        }
        let age = |slot: &Slot| if slot.state == SlotState::Empty { 0 } else { slot.until };
        let (way, oldest) = set.iter().enumerate().min_by_key(|(_, slot)| age(slot))?;
        match oldest.state {
            SlotState::Empty => self.used += 1,
            SlotState::Incomplete => count(tables, DropReason::ReassemblyNoRoom),
            SlotState::Refused | SlotState::Linux => {}
        }
        self.slots.get_mut(first + way)?.begin(id, now.saturating_add(self.lifetime));
        Some(first + way)
    }

    fn end_if_expired(&mut self, index: usize, now: u64, tables: &LaneTables) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        if slot.state == SlotState::Empty || slot.until > now {
            return;
        }
        if slot.state == SlotState::Incomplete {
            count(tables, DropReason::ReassemblyTimeout);
        }
        slot.state = SlotState::Empty;
        self.used -= 1;
    }

    /// Returns true if no packet is incomplete.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Ends some of the packets whose time is over.
    #[cold]
    pub(crate) fn expire(&mut self, now: u64, tables: &LaneTables) {
        for _ in 0..WAYS {
            self.end_if_expired(self.next, now, tables);
            self.next = if self.next + 1 < self.slots.len() { self.next + 1 } else { 0 };
        }
    }
}

/// Counts a packet whose fragments have been counted.
fn count(tables: &LaneTables, reason: DropReason) {
    tables.count(reason, 1, 0);
}
