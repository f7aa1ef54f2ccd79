//! Holding of packets: the seam of `fastlane-hold`.

use std::fmt::Debug;

use crate::{Burst, HoldKey, Packet, Pool};

/// Buffer for packets labelled [`Hold`](crate::Verdict::Hold), of one lane.
///
/// A lane resumes packets in *rounds*. A packet that is held during a round is not shown before the
/// next one, so a round ends whatever the application does.
pub trait HoldBuffer: Debug + Send {
    /// Copies packets that arrived by the queue of this number; their frames are not taken. Returns
    /// the number of copies: the other packets exceed a limit or cannot be copied whole.
    fn hold(&mut self, key: HoldKey, queue: usize, run: &[Packet]) -> usize;

    /// Requests all packets of a key that are held now, and returns their number.
    fn request(&mut self, key: HoldKey) -> usize;

    /// Returns true if packets are requested.
    fn has_requests(&self) -> bool;

    /// Begins a round: packets held until now can be shown in it.
    fn begin_round(&mut self);

    /// Fills an empty burst with the next requested packets. They are labelled as on arrival, are
    /// of one key, one port and one queue, and are in order.
    fn next_burst(&mut self, burst: &mut Burst, pool: &mut Pool) -> Resume;

    /// Drops the packets that [`next_burst`](Self::next_burst) would return next, and the other
    /// requested ones of their key. Returns their number.
    fn drop_next(&mut self) -> usize;

    /// Drops all packets of a key and returns their number.
    fn discard(&mut self, key: HoldKey) -> usize;

    /// Drops all packets and returns their number.
    fn discard_all(&mut self) -> usize;

    /// Returns the number of packets of a key.
    fn count(&self, key: HoldKey) -> usize;

    /// Returns the number of packets.
    fn packets(&self) -> usize;
}

/// Result of [`HoldBuffer::next_burst`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The burst has packets that arrived by the queue of this number.
    Burst(usize),
    /// Packets are requested, but no frame is free.
    NoFrame,
    /// The round has ended.
    Done,
}

/// Hold buffer of a lane, if it has one, and what the lane must know each turn without a call.
#[derive(Debug)]
pub(crate) struct Hold {
    buffer: Option<Box<dyn HoldBuffer>>,
    requested: bool,
    changed: bool,
    used: bool,
}

impl Hold {
    pub(crate) fn new(buffer: Option<Box<dyn HoldBuffer>>) -> Self {
        Self { buffer, requested: false, changed: false, used: false }
    }

    /// Returns true if a packet was ever held.
    #[inline]
    pub(crate) fn was_used(&self) -> bool {
        self.used
    }

    /// Returns true if packets are requested.
    #[inline]
    pub(crate) fn has_requests(&self) -> bool {
        self.requested
    }

    /// Returns true if the number of packets has changed since the last call.
    #[inline]
    pub(crate) fn has_changed(&mut self) -> bool {
        self.changed && std::mem::take(&mut self.changed)
    }

    #[cold]
    pub(crate) fn hold(&mut self, key: HoldKey, queue: usize, run: &[Packet]) -> usize {
        let held = self.buffer.as_mut().map_or(0, |buffer| buffer.hold(key, queue, run));
        self.changed |= held > 0;
        self.used |= held > 0;
        held
    }

    pub(crate) fn request(&mut self, key: HoldKey) -> usize {
        let requested = self.buffer.as_mut().map_or(0, |buffer| buffer.request(key));
        self.requested |= requested > 0;
        requested
    }

    pub(crate) fn begin_round(&mut self) {
        self.buffer.iter_mut().for_each(|buffer| buffer.begin_round());
    }

    pub(crate) fn next_burst(&mut self, burst: &mut Burst, pool: &mut Pool) -> Resume {
        let resume =
            self.buffer.as_mut().map_or(Resume::Done, |buffer| buffer.next_burst(burst, pool));
        self.changed |= matches!(resume, Resume::Burst(_));
        if resume == Resume::Done {
            self.requested = self.buffer.as_ref().is_some_and(|buffer| buffer.has_requests());
        }
        resume
    }

    pub(crate) fn drop_next(&mut self) -> usize {
        let dropped = self.buffer.as_mut().map_or(0, |buffer| buffer.drop_next());
        self.changed |= dropped > 0;
        dropped
    }

    pub(crate) fn discard(&mut self, key: HoldKey) -> usize {
        let dropped = self.buffer.as_mut().map_or(0, |buffer| buffer.discard(key));
        self.changed |= dropped > 0;
        dropped
    }

    pub(crate) fn discard_all(&mut self) -> usize {
        let dropped = self.buffer.as_mut().map_or(0, |buffer| buffer.discard_all());
        self.changed |= dropped > 0;
        dropped
    }

    pub(crate) fn count(&self, key: HoldKey) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.count(key))
    }

    pub(crate) fn packets(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.packets())
    }
}
