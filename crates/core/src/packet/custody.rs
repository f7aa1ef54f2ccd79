//! Packets that change hands: between drivers, bursts and lanes.

use super::{FROM_KERNEL, LABELLED, NO_FRAME, PARTIAL, Packet, PortId, STEERED};
use crate::{Frame, RawVerdict, Verdict};

/// What only a driver may do with a packet: the facade does not pass this trait on, so that an
/// application can neither keep nor lose a frame.
pub trait Custody: Sized {
    /// Takes the frame out, to hand it to a device or back to the pool. What is left is empty, and
    /// a second call finds nothing.
    fn take_frame(&mut self) -> Option<Frame>;

    /// Takes the whole packet out of a burst. What is left is empty.
    #[must_use]
    fn take(&mut self) -> Self;

    /// Says from which port the packet comes from now on.
    fn set_port(&mut self, port: PortId);

    /// Whether the application has seen the packet in another lane, so that this one is to carry
    /// its verdict out and nothing else.
    fn is_labelled(&self) -> bool;

    /// Says so.
    fn set_labelled(&mut self, labelled: bool);
}

impl Custody for Packet {
    #[inline]
    fn take_frame(&mut self) -> Option<Frame> {
        let token = std::mem::replace(&mut self.token, NO_FRAME);
        self.length = 0;
        self.headroom = 0;
        self.tailroom = 0;
        self.flags = 0;
        (token != NO_FRAME).then(|| Frame::from_token(token))
    }

    #[inline]
    fn take(&mut self) -> Self {
        let taken = Self { ..*self };
        *self = Self {
            data: taken.data,
            token: NO_FRAME,
            length: 0,
            headroom: 0,
            tailroom: 0,
            port: PortId(0),
            flags: 0,
            verdict: RawVerdict(0),
        };
        taken
    }

    #[inline]
    fn set_port(&mut self, port: PortId) {
        self.port = port;
    }

    #[inline]
    fn is_labelled(&self) -> bool {
        self.flags & LABELLED != 0
    }

    #[inline]
    fn set_labelled(&mut self, labelled: bool) {
        self.flags = self.flags & !LABELLED | if labelled { LABELLED } else { 0 };
    }
}

impl Packet {
    /// As [`Custody::take`], as a packet that arrives at `port`. One store for each field of the
    /// new place: to change fields first and to move the packet then costs 3 ns, because processors
    /// do not forward narrow stores to a wider load.
    #[inline]
    pub(crate) fn take_as_arrived(&mut self, port: PortId) -> Self {
        if self.flags & (FROM_KERNEL | STEERED | LABELLED) != 0 {
            // Rare: every store counts here.
            self.flags &= !(FROM_KERNEL | STEERED | LABELLED);
        }
        Self { port, verdict: RawVerdict::from(Verdict::Kernel), ..self.take() }
    }

    /// Takes over the content, the port and the labels of a packet of the same length, or of one
    /// that nobody can send if this one is empty.
    pub(crate) fn be_copy_of(&mut self, original: &Self) {
        if self.length == original.length {
            self.bytes_mut().copy_from_slice(original.bytes());
        }
        self.flags = original.flags & !PARTIAL;
        self.set_partial_checksum(original.partial_checksum());
        self.port = original.port;
        self.verdict = original.verdict;
    }
}
