//! What a lane does for a capture.

use std::sync::Arc;

use fastlane_table::journal::{Cursor, RecordOffset};

use super::record::{self, Event};
use super::{Capture, CaptureMailbox, Labels, Selection};
use crate::{Packet, PacketOwnership, PortId, RawVerdict, now};

/// The part of a lane that copies packets for whoever looks on.
pub(crate) struct Recorder {
    mailbox: Arc<CaptureMailbox>,
    capture: Option<Arc<Capture>>,
    cursor: Cursor,
    /// Where the burst in hand begins.
    begun: Cursor,
    port: PortId,
    /// What was selected of the burst in hand; never more than the burst.
    pending: Vec<Pending>,
    most: usize,
    /// Of this turn; 0 until it is read.
    time: u64,
    /// Packets to pass over until the next of the sample.
    pass_over: u64,
}

/// A packet of which the end is not known yet.
struct Pending {
    /// Its place in the burst.
    index: usize,
    /// Its frame.
    token: u64,
    /// Its record; `None` when there was no room.
    place: Option<RecordOffset>,
    /// How far the ring was written when its record was.
    after: Cursor,
    /// When it was copied.
    label: Option<RawVerdict>,
    flags: u8,
}

/// How a run of packets left.
#[derive(Clone, Copy)]
pub(crate) struct Departure {
    /// Whether the lane has a queue of the port.
    pub(crate) has_queue: bool,
    /// How many the port could be shown.
    pub(crate) fitting: usize,
    /// Of these, how many it took.
    pub(crate) taken: usize,
    /// Of these, how many are on their way.
    pub(crate) packets: usize,
}

impl Recorder {
    pub(crate) fn new(burst: usize) -> Self {
        Self {
            mailbox: Arc::default(),
            capture: None,
            cursor: Cursor::default(),
            begun: Cursor::default(),
            port: PortId(0),
            pending: Vec::with_capacity(burst),
            most: burst,
            time: 0,
            pass_over: 0,
        }
    }

    pub(crate) fn listen(&mut self, mailbox: Arc<CaptureMailbox>) {
        self.mailbox = mailbox;
    }

    /// Looks for a capture to begin or to end: one load.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if let Some(capture) = self.mailbox.take() {
            self.change(capture);
        }
        self.time = 0; // cheaper than to ask whether it is needed
    }

    #[cold]
    fn change(&mut self, capture: Option<Arc<Capture>>) {
        self.cursor = Cursor::default();
        self.pass_over = 0;
        if let Some(capture) = &capture {
            capture.ring.start();
        }
        self.capture = capture; // frees nothing: see `CaptureMailbox`
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.capture.is_some()
    }

    /// Copies what is selected of the packets that have arrived at a port.
    #[cold]
    pub(crate) fn arrived(&mut self, port: usize, packets: &[Packet]) {
        self.open(port);
        if self.selection().is_some_and(|it| it.arriving && it.wants_port(self.port)) {
            for (index, packet) in packets.iter().enumerate() {
                self.copy(index, packet);
            }
        }
    }

    /// Completes the copies with the labels that the application has given, in whatever order the
    /// packets are now.
    #[cold]
    pub(crate) fn labelled(&mut self, packets: &[Packet]) {
        self.publish(|pending| {
            let same = |packet: &&Packet| packet.token() == pending.token;
            let packet = packets.get(pending.index).filter(same);
            let packet = packet.or_else(|| packets.iter().find(same));
            (packet.map(Packet::verdict), Event::Arrived)
        });
    }

    /// Copies what is selected of the packets that are about to leave by a port.
    #[cold]
    pub(crate) fn leaving(&mut self, port: usize, packets: &[Packet]) {
        self.open(port);
        if self.selection().is_some_and(|it| it.leaving && it.wants_port(self.port)) {
            for (index, packet) in packets.iter().enumerate() {
                if self.selection().is_some_and(|it| it.wants_label(label(packet))) {
                    self.copy(index, packet);
                }
            }
        }
    }

    /// Completes the copies with what became of the packets.
    #[cold]
    pub(crate) fn departed(&mut self, departure: Departure) {
        self.publish(|pending| (pending.label, departure.event(pending.index)));
    }

    fn open(&mut self, port: usize) {
        self.pending.clear();
        self.begun = self.cursor;
        self.port = PortId(port as u16);
    }

    fn selection(&self) -> Option<&Selection> {
        self.capture.as_ref().map(|capture| &capture.selection)
    }

    /// Copies a packet if the program and the sample want it.
    fn copy(&mut self, index: usize, packet: &Packet) {
        let Some(Capture { selection, ring }) = self.capture.as_deref() else { return };
        if selection.program.as_ref().is_some_and(|program| !program.accepts(packet.bytes())) {
            return;
        }
        if self.pass_over > 0 {
            self.pass_over -= 1;
            return;
        }
        self.pass_over = selection.sample.saturating_sub(1);
        if self.pending.len() == self.most {
            return ring.count_lost(); // not reached: no run is longer than the burst
        }
        if self.time == 0 {
            self.time = now();
        }
        let captured = packet.len().min(selection.snap_length);
        let place = ring.reserve(&mut self.cursor, record::words(captured));
        if let Some(place) = place {
            record::copy(ring, place, packet, captured, self.time);
        }
        let (token, flags) = (packet.token(), record::flags(packet));
        let (after, label) = (self.cursor, label(packet));
        self.pending.push(Pending { index, token, place, after, label, flags });
    }

    /// Completes the copies that are wanted, and shows them to the reader.
    fn publish(&mut self, end: impl Fn(&Pending) -> (Option<RawVerdict>, Event)) {
        let Some(Capture { selection, ring }) = self.capture.as_deref() else { return };
        let mut cursor = self.begun;
        for pending in &self.pending {
            let (label, event) = end(pending);
            if !selection.wants_label(label) {
                continue;
            }
            let Some(place) = pending.place else {
                ring.count_lost();
                continue;
            };
            record::complete(ring, place, label, self.port, event, pending.flags);
            cursor = pending.after;
        }
        // What lies behind the last one that is wanted is free again.
        self.cursor = cursor;
        ring.publish(&self.cursor);
    }
}

/// The label of a packet that leaves; what Linux sends has none.
fn label(packet: &Packet) -> Option<RawVerdict> {
    (!packet.is_from_kernel()).then(|| packet.verdict())
}

impl Selection {
    fn wants_port(&self, port: PortId) -> bool {
        self.ports.is_empty() || self.ports.contains(&port)
    }

    fn wants_label(&self, label: Option<RawVerdict>) -> bool {
        match label {
            Some(label) => self.labels.contain(label),
            None => self.labels == Labels::ALL,
        }
    }
}

impl Departure {
    /// A run for a port of which the lane has no queue.
    pub(crate) const NOWHERE: Self = Self { has_queue: false, fitting: 0, taken: 0, packets: 0 };

    /// What became of one packet of the run.
    fn event(&self, index: usize) -> Event {
        match () {
            () if !self.has_queue => Event::NoQueue,
            () if index >= self.fitting => Event::NoFrame,
            () if index >= self.taken => Event::Full,
            () if self.packets < self.taken => Event::SentUnlessLength,
            () => Event::Sent,
        }
    }
}
