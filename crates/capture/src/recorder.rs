//! Recorder: the observer of a lane that writes a capture.

use std::sync::Arc;

use fastlane_core::{Departure, Packet, PacketObserver, PacketOwnership, PortId, RawVerdict, now};
use fastlane_table::journal::{Cursor, RecordOffset};

use super::record::{self, Event};
use super::{Capture, CaptureMailbox, Selection, VerdictSet};

/// Observer that records the packets of a lane while a capture is active.
pub struct Recorder {
    mailbox: Arc<CaptureMailbox>,
    capture: Option<Arc<Capture>>,
    cursor: Cursor,
    /// Position of the ring at the start of the current burst.
    start: Cursor,
    port: PortId,
    /// Selected packets of the current burst.
    pending: Vec<Pending>,
    burst: usize,
    /// Time of this turn; 0 until the clock is read.
    time: u64,
    /// Number of packets to skip until the next of the sample.
    skip: u64,
}

/// Packet whose record is not complete.
struct Pending {
    /// Index in the burst.
    index: usize,
    /// Token of the frame.
    token: u64,
    /// Position of the record; `None` if the ring was full.
    offset: Option<RecordOffset>,
    /// Position of the ring behind the record.
    after: Cursor,
    /// Verdict at the time of the copy.
    verdict: Option<RawVerdict>,
    flags: u8,
}

impl Recorder {
    /// Creates a recorder for a lane whose bursts have at most `burst` packets.
    #[must_use]
    pub fn new(mailbox: Arc<CaptureMailbox>, burst: usize) -> Self {
        Self {
            mailbox,
            capture: None,
            cursor: Cursor::default(),
            start: Cursor::default(),
            port: PortId(0),
            pending: Vec::with_capacity(burst),
            burst,
            time: 0,
            skip: 0,
        }
    }

    #[cold]
    fn change(&mut self, capture: Option<Arc<Capture>>) {
        self.cursor = Cursor::default();
        self.skip = 0;
        if let Some(capture) = &capture {
            capture.ring.start();
        }
        self.capture = capture; // frees nothing: see `CaptureMailbox`
    }

    fn open(&mut self, port: PortId) {
        self.pending.clear();
        self.start = self.cursor;
        self.port = port;
    }

    fn selection(&self) -> Option<&Selection> {
        self.capture.as_ref().map(|capture| &capture.selection)
    }

    /// Copies a packet if the filter program and the sample select it.
    fn copy(&mut self, index: usize, packet: &Packet) {
        let Some(Capture { selection, ring }) = self.capture.as_deref() else { return };
        if selection.program.as_ref().is_some_and(|program| !program.accepts(packet.bytes())) {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.skip = selection.sample.saturating_sub(1);
        if self.pending.len() == self.burst {
            return ring.count_lost(); // unreachable: no run is longer than the burst
        }
        if self.time == 0 {
            self.time = now();
        }
        let captured = packet.len().min(selection.snap_length);
        let offset = ring.reserve(&mut self.cursor, record::words(captured));
        if let Some(offset) = offset {
            record::copy(ring, offset, packet, captured, self.time);
        }
        let (token, flags) = (packet.token(), record::flags(packet));
        let (after, verdict) = (self.cursor, verdict(packet));
        self.pending.push(Pending { index, token, offset, after, verdict, flags });
    }

    /// Completes the selected records and publishes them to the reader.
    fn publish(&mut self, end: impl Fn(&Pending) -> (Option<RawVerdict>, Event)) {
        let Some(Capture { selection, ring }) = self.capture.as_deref() else { return };
        let mut cursor = self.start;
        for pending in &self.pending {
            let (verdict, event) = end(pending);
            if !selection.selects_verdict(verdict) {
                continue;
            }
            let Some(offset) = pending.offset else {
                ring.count_lost();
                continue;
            };
            let completion =
                record::Completion { verdict, port: self.port, event, flags: pending.flags };
            record::complete(ring, offset, &completion);
            cursor = pending.after;
        }
        // The space behind the last selected record is free again.
        self.cursor = cursor;
        ring.publish(&self.cursor);
    }
}

impl PacketObserver for Recorder {
    /// Starts or ends a capture. Without one this is one load.
    #[inline]
    fn begin_turn(&mut self) -> bool {
        if let Some(capture) = self.mailbox.take() {
            self.change(capture);
        }
        self.time = 0; // cheaper than a test
        self.capture.is_some()
    }

    /// Copies the selected packets that have arrived at a port.
    #[cold]
    fn received(&mut self, port: PortId, packets: &[Packet]) {
        self.open(port);
        if self.selection().is_some_and(|it| it.arriving && it.selects_port(self.port)) {
            for (index, packet) in packets.iter().enumerate() {
                self.copy(index, packet);
            }
        }
    }

    /// Completes the records with the verdicts of the application, in any order of the packets.
    #[cold]
    fn labelled(&mut self, packets: &[Packet]) {
        self.publish(|pending| {
            let same = |packet: &&Packet| packet.token() == pending.token;
            let packet = packets.get(pending.index).filter(same);
            let packet = packet.or_else(|| packets.iter().find(same));
            (packet.map(Packet::verdict), Event::Arrived)
        });
    }

    /// Copies the selected packets that are about to leave by a port.
    #[cold]
    fn sending(&mut self, port: PortId, packets: &[Packet]) {
        self.open(port);
        if self.selection().is_some_and(|it| it.leaving && it.selects_port(self.port)) {
            for (index, packet) in packets.iter().enumerate() {
                if self.selection().is_some_and(|it| it.selects_verdict(verdict(packet))) {
                    self.copy(index, packet);
                }
            }
        }
    }

    /// Completes the records with the result of sending the packets.
    #[cold]
    fn sent(&mut self, departure: Departure) {
        self.publish(|pending| (pending.verdict, event(&departure, pending.index)));
    }
}

/// Returns the verdict of a packet that leaves, or `None` for a packet from Linux.
fn verdict(packet: &Packet) -> Option<RawVerdict> {
    (!packet.is_from_kernel()).then(|| packet.verdict())
}

impl Selection {
    fn selects_port(&self, port: PortId) -> bool {
        self.ports.is_empty() || self.ports.contains(&port)
    }

    fn selects_verdict(&self, verdict: Option<RawVerdict>) -> bool {
        match verdict {
            Some(verdict) => self.verdicts.contains(verdict),
            None => self.verdicts == VerdictSet::ALL,
        }
    }
}

/// Returns the event of one packet of a run that was sent.
fn event(departure: &Departure, index: usize) -> Event {
    match () {
        () if !departure.has_queue => Event::NoQueue,
        () if index >= departure.fitting => Event::NoFrame,
        () if index >= departure.taken => Event::Full,
        () if departure.packets < departure.taken => Event::SentUnlessLength,
        () => Event::Sent,
    }
}
