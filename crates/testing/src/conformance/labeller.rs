//! The application of the suite.

use std::ops::Range;

use fastlane_core::{App, Packet, PortId, RawVerdict, Turn, Verdict};

use crate::frame::{is_plain, swap};
use crate::{Addresses, Spec, Tag};

/// ID of the second port.
pub(super) const SECOND_PORT: PortId = PortId(1);
/// ID of a port without queues.
pub(super) const NO_QUEUE: PortId = PortId(2);

/// Function from a sequence number to a verdict.
pub(super) type Label = fn(u32) -> RawVerdict;

pub(super) fn reflect(_: u32) -> RawVerdict {
    Verdict::Reflect.into()
}

pub(super) fn to_second_port(_: u32) -> RawVerdict {
    Verdict::Forward(SECOND_PORT).into()
}

pub(super) fn to_port(_: u32) -> RawVerdict {
    Verdict::Forward(Spec::PORT).into()
}

pub(super) fn to_kernel(_: u32) -> RawVerdict {
    Verdict::Kernel.into()
}

/// Application that swaps the addresses of this test's frames, labels them by their number and
/// drops all other frames.
pub(super) struct Labeller {
    pub(super) test: u32,
    pub(super) label: Label,
    /// Reorders the slice of packets.
    pub(super) shuffles: bool,
    /// Sends a copy of each frame to the port under test.
    pub(super) copies: bool,
    /// Numbers of the frames still to be created and sent to the port under test.
    pub(super) creates: Range<u32>,
    /// Swaps the IPv4 addresses and UDP ports, too.
    pub(super) echoes: bool,
    /// The port has a path into Linux.
    pub(super) has_kernel: bool,
    /// Number of frames of this test.
    pub(super) processed: usize,
    /// Number of those among them that leave nowhere.
    pub(super) dropped: usize,
}

impl Labeller {
    pub(super) fn new(test: u32, label: Label) -> Self {
        Self {
            test,
            label,
            shuffles: false,
            copies: false,
            creates: 0..0,
            echoes: false,
            has_kernel: false,
            processed: 0,
            dropped: 0,
        }
    }

    fn process_one(&mut self, packet: &mut Packet, turn: &mut Turn) {
        packet.set_verdict(Verdict::Drop);
        if is_plain(packet.bytes()) {
            swap(packet.bytes_mut());
            packet.set_verdict(Verdict::Reflect);
            return;
        }
        let Some((tag, _)) = Tag::find(packet.bytes()).filter(|(tag, _)| tag.test == self.test)
        else {
            return;
        };
        let verdict = (self.label)(tag.sequence);
        packet.set_raw_verdict(verdict);
        if verdict != to_kernel(0) {
            swap(packet.bytes_mut()); // Linux accepts only its own address
        }
        if self.echoes
            && let Some(rest) = packet.bytes_mut().get_mut(26..38)
        {
            rest[..8].rotate_left(4); // IPv4 addresses
            rest[8..].rotate_left(2); // UDP ports, behind a header without options
        }
        if self.copies
            && let Some(copy) = turn.copy(packet)
        {
            copy.set_verdict(Verdict::Forward(Spec::PORT));
        }
        self.processed += 1;
        let leaves = [reflect(0), to_second_port(0), to_port(0)].contains(&verdict)
            || self.has_kernel && verdict == to_kernel(0);
        self.dropped += usize::from(!leaves);
    }
}

impl App for Labeller {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in &mut *packets {
            self.process_one(packet, turn);
        }
        if self.shuffles {
            let third = packets.len() / 3;
            packets.reverse();
            packets.rotate_left(third);
        }
    }

    fn turn(&mut self, turn: &mut Turn) {
        while !self.creates.is_empty() {
            let Some(packet) = turn.new_packet(Spec::PORT) else { return };
            let tag = Tag { test: self.test, sequence: self.creates.start };
            let length = Tag::SHORTEST.max(60) + self.creates.start as usize % 200;
            let frame = tag.frame(Addresses::default(), length);
            if let Some(bytes) = packet.append(length) {
                bytes.copy_from_slice(&frame);
                swap(packet.bytes_mut());
            }
            self.creates.start += 1;
        }
    }
}
