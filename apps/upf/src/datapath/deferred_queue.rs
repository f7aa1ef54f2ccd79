//! Queue of work that is deferred until all packets of a batch are labelled.

use std::net::IpAddr;

use super::dl_buffer::BufferDecision;
use super::encap::{GtpuFields, TunnelRoute};
use super::icmp::IcmpError;
use super::lookup::SessionCharge;
use super::next_hop::Egress;
use super::routes::BATCH;
use crate::rules::layout::message::SessionEvent;
use crate::rules::layout::session_rules::Direction;
use crate::session::{InstanceId, SessionIndex};

/// Capacity of a queue: per packet two events, a hold, the packet itself and its copies.
const CAPACITY: usize = 8 * BATCH;

/// An item of deferred work. Packets are given by their indices in the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeferredWork {
    /// Error indication for a packet of an unknown tunnel.
    ErrorIndication { ue_packet: u8 },
    /// Notification that a required extension header is not supported.
    Notification { ue_packet: u8 },
    /// Message to the slow path about an event of a session.
    Event(SessionEvent),
    /// Resumes held packets ahead of those labelled now, or discards them.
    EndHold(SessionIndex, BufferDecision),
    /// ICMP error to the sender of a packet that cannot be forwarded; with the network instance to
    /// which a packet of a UE goes, as far as it is known.
    IcmpError { ue_packet: u8, icmp_error: IcmpError, instance: Option<InstanceId> },
    /// HTTP redirect response.
    Redirect { ue_packet: u8 },
    /// Packet to another UE of a network instance.
    ToUe { ue_packet: u8, instance: InstanceId, due: SessionCharge },
    /// Copy of the last `length` octets of a packet (DUPL).
    Copy { ue_packet: u8, length: u32, route: TunnelRoute, outer: GtpuFields },
    /// Packet that leaves in fragments.
    Fragments { ue_packet: u8, fragmentation: Fragmentation },
    /// Packet to a control plane function that no port leads to.
    ToControl(ControlPacket),
    /// Request to resolve a neighbour.
    Resolve(IpAddr),
}

/// Egress of a packet that is sent in fragments of at most `room` octets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragmentation {
    pub(crate) out: Egress,
    pub(crate) room: u32,
    /// Charge that is due for the whole packet.
    pub(crate) due: SessionCharge,
    pub(crate) direction: Direction,
    /// Type of service of a packet without a tunnel, in the bits of `mask`.
    pub(crate) marking: u8,
    pub(crate) mask: u8,
}

impl Fragmentation {
    /// Creates the fragmentation of a packet for a tunnel, whose outer header has the type of
    /// service.
    pub(crate) fn tunnelled(
        out: Egress,
        room: u32,
        due: SessionCharge,
        direction: Direction,
    ) -> Self {
        Self { out, room, due, direction, marking: 0, mask: 0 }
    }
}

/// A packet for a control plane function that no port leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlPacket {
    /// Index in the batch.
    pub(crate) ue_packet: u8,
    /// True if the GTP-U message goes on with its extension headers.
    pub(crate) is_relayed: bool,
    /// Length of the inner packet in octets.
    pub(crate) length: u32,
    /// Address of the control plane function.
    pub(crate) peer: IpAddr,
    pub(crate) outer: GtpuFields,
    pub(crate) due: SessionCharge,
}

/// Queue of deferred work. It never grows beyond its initial capacity.
#[derive(Default)]
pub(crate) struct DeferredQueue(Vec<DeferredWork>);

impl DeferredQueue {
    /// Creates an empty queue.
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(CAPACITY))
    }

    /// Appends an item if there is room.
    #[inline]
    pub(crate) fn push(&mut self, deferred: DeferredWork) {
        if self.0.len() < self.0.capacity() {
            self.0.push(deferred);
        }
    }

    /// Returns true if there is room for a copy. The rest is reserved: two events, a hold and the
    /// packet itself per packet. Rules may ask for any number of copies.
    pub(crate) fn has_room_for_copies(&self) -> bool {
        self.0.len() < CAPACITY - 4 * BATCH
    }

    /// Returns the items in the order in which they were appended.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DeferredWork> {
        self.0.iter()
    }

    /// Removes all items.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns true if nothing is deferred.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
