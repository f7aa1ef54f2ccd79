//! The application of the suite.

use std::ops::Range;

use fastlane_core::{App, Packet, PortId, RawVerdict, Turn, Verdict};

use crate::frame::{is_plain, swap};
use crate::{Addresses, Spec, Tag};

/// The suite's own second port.
pub(super) const BASKET: PortId = PortId(1);
/// A port that no lane has a queue of.
pub(super) const NOWHERE: PortId = PortId(2);

/// Which verdict the frame with this number gets.
pub(super) type Label = fn(u32) -> RawVerdict;

pub(super) fn reflect(_: u32) -> RawVerdict {
    Verdict::Reflect.into()
}

pub(super) fn to_basket(_: u32) -> RawVerdict {
    Verdict::Forward(BASKET).into()
}

pub(super) fn to_port(_: u32) -> RawVerdict {
    Verdict::Forward(Spec::PORT).into()
}

pub(super) fn to_kernel(_: u32) -> RawVerdict {
    Verdict::Kernel.into()
}

/// Swaps the addresses of the test's own frames and labels them by their number; drops all others.
pub(super) struct Labeller {
    pub(super) test: u32,
    pub(super) label: Label,
    /// Hands the packets back in another order than they came.
    pub(super) shuffles: bool,
    /// Sends a copy of each frame to the port under test.
    pub(super) copies: bool,
    /// Frames still to be made and sent to the port under test.
    pub(super) makes: Range<u32>,
    /// Answers datagrams: swaps the IPv4 addresses and the UDP ports, too.
    pub(super) answers: bool,
    /// There is a way into Linux.
    pub(super) has_kernel: bool,
    /// Frames of this test that were shown.
    pub(super) seen: usize,
    /// Those of them that were labelled to come out nowhere.
    pub(super) gone: usize,
}

impl Labeller {
    pub(super) fn new(test: u32, label: Label) -> Self {
        Self {
            test,
            label,
            shuffles: false,
            copies: false,
            makes: 0..0,
            answers: false,
            has_kernel: false,
            seen: 0,
            gone: 0,
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
            swap(packet.bytes_mut()); // what Linux gets keeps its address
        }
        if self.answers
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
        self.seen += 1;
        let comes_out = [reflect(0), to_basket(0), to_port(0)].contains(&verdict)
            || self.has_kernel && verdict == to_kernel(0);
        self.gone += usize::from(!comes_out);
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
        while !self.makes.is_empty() {
            let Some(packet) = turn.new_packet(Spec::PORT) else { return };
            let tag = Tag { test: self.test, sequence: self.makes.start };
            let length = Tag::SHORTEST.max(60) + self.makes.start as usize % 200;
            let frame = tag.frame(Addresses::default(), length);
            if let Some(place) = packet.append(length) {
                place.copy_from_slice(&frame);
                swap(packet.bytes_mut());
            }
            self.makes.start += 1;
        }
    }
}
