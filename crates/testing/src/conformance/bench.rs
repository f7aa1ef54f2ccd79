//! A port under test with its lanes and its peer, in one thread.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastlane_core::{Idle, Lane, LaneConfig, LossReader, Port, Statistics, now};
use fastlane_table::counters::{Counters, PortCounter};

use super::labeller::{Label, Labeller, SECOND_PORT};
use super::receipt::Receipt;
use crate::lists::{Frames, lists};
use crate::{LaneRig, Rig, Spec, Tag};

/// Entry of frames into the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The peer of the port under test.
    Peer,
    /// The second port.
    SecondPort,
    /// None: the application or Linux creates the frames.
    Internal,
}

/// The second port of the lanes, whose other end is the test itself.
#[derive(Default)]
struct SecondPort {
    /// Frames to the lanes.
    arrivals: Frames,
    /// Frames from the lanes.
    sent: Frames,
}

/// A port under test with its lanes and its peer.
pub(super) struct Bench<R: Rig> {
    // Declared first, so that the lanes are dropped before the device.
    lanes: Vec<Lane<Labeller>>,
    pub(super) rig: R,
    counters: Counters,
    /// Losses below the queues of the port under test.
    losses: Vec<LossReader>,
    second_port: SecondPort,
    pub(super) spec: Spec,
    pub(super) test: u32,
    label: Label,
    next: u32,
    /// Maximum number of frames in flight.
    pub(super) window: usize,
    /// Time without progress after which frames count as lost.
    pub(super) patience: Duration,
    pub(super) at_peer: Receipt,
    pub(super) at_second_port: Receipt,
    pub(super) at_kernel: Receipt,
}

/// Number of the next test of this process.
static NEXT_TEST: AtomicU32 = AtomicU32::new(0);

impl<R: Rig> Bench<R> {
    /// Opens the device and the port. Returns `None` after a skip by the rig.
    pub(super) fn open(spec: Spec, label: Label) -> Option<Self> {
        let rig = R::open(&spec)?;
        let number = NEXT_TEST.fetch_add(1, Ordering::Relaxed);
        // Distinct from other processes and earlier runs, as far as 32 bits allow.
        let test = (now() as u32 ^ std::process::id() << 16) & !0xff | number & 0xff;
        let mut bench = Self {
            lanes: Vec::new(),
            rig,
            counters: Counters::create(spec.lanes, 3).expect("memory for counters"),
            losses: Vec::new(),
            second_port: SecondPort::default(),
            spec,
            test,
            label,
            next: 0,
            window: R::BURST,
            patience: R::PATIENCE,
            at_peer: Receipt::default(),
            at_second_port: Receipt::default(),
            at_kernel: Receipt::default(),
        };
        bench.open_lanes();
        Some(bench)
    }

    /// Opens or reopens the port.
    pub(super) fn open_lanes(&mut self) {
        self.counters = Counters::create(self.spec.lanes, 3).expect("memory for counters");
        let rigs = self.rig.lanes(&self.spec);
        assert_eq!(rigs.len(), self.spec.lanes, "the rig returns an entry per lane");
        let kernel = rigs.iter().filter_map(|rig| rig.kernel.as_ref().map(|path| &path.queue));
        let queues = rigs.iter().flat_map(|rig| &rig.queues).chain(kernel);
        self.losses = queues.filter_map(|queue| queue.loss_reader()).collect();
        self.lanes = rigs.into_iter().enumerate().map(|(at, rig)| self.lane(at, rig)).collect();
    }

    fn lane(&self, lane: usize, rig: LaneRig) -> Lane<Labeller> {
        let LaneRig { pool, queues, kernel } = rig;
        let port = |number, queues, kernel| Port {
            queues,
            kernel,
            filter: None,
            counters: self.counters.port(lane, number),
        };
        let ports = vec![
            port(0, queues, kernel),
            port(
                1,
                vec![lists(SECOND_PORT, &self.second_port.arrivals, &self.second_port.sent)],
                None,
            ),
            port(2, Vec::new(), None),
        ];
        let parts = LaneConfig {
            burst: self.spec.burst,
            kernel_budget: self.spec.burst,
            idle: Idle::Busy,
            ..LaneConfig::new(pool, ports, self.counters.lane(lane))
        };
        let mut labeller = Labeller::new(self.test, self.label);
        labeller.has_kernel = self.spec.kernel;
        Lane::new(labeller, parts)
    }

    /// Calls `set` with the application of each lane.
    pub(super) fn applications(&mut self, set: impl Fn(&mut Labeller)) {
        self.lanes.iter_mut().for_each(|lane| set(lane.app()));
    }

    /// Runs one turn of each lane.
    pub(super) fn turn(&mut self) {
        for lane in &mut self.lanes {
            lane.turn();
        }
    }

    /// Returns the number of frames of this test that the applications have processed.
    pub(super) fn processed(&mut self) -> usize {
        self.processed_by_lane().iter().sum()
    }

    /// Returns the number of processed frames of this test by lane.
    pub(super) fn processed_by_lane(&mut self) -> Vec<usize> {
        self.lanes.iter_mut().map(|lane| lane.app().processed).collect()
    }

    fn dropped(&mut self) -> usize {
        self.lanes.iter_mut().map(|lane| lane.app().dropped).sum()
    }

    /// Reserves the next `count` numbers and resets all receipts to them.
    pub(super) fn begin(&mut self, count: usize) -> Range<u32> {
        let range = self.next..self.next + count as u32;
        self.next = range.end;
        self.at_peer = Receipt::new(range.clone());
        self.at_second_port = Receipt::new(range.clone());
        self.at_kernel = Receipt::new(range.clone());
        range
    }

    /// Builds the frame with this number.
    pub(super) fn frame(&self, sequence: u32, length: usize) -> Vec<u8> {
        Tag { test: self.test, sequence }.frame(self.rig.addresses(), length)
    }

    /// Sends one frame. Returns false if there is no space now.
    pub(super) fn send(&mut self, from: Entry, sequence: u32, length: usize) -> bool {
        if from == Entry::Internal {
            return true;
        }
        let frame = self.frame(sequence, length);
        if from == Entry::Peer {
            return self.rig.peer().send(&frame);
        }
        self.second_port.arrivals.push(&frame)
    }

    /// Records all frames that have left at any end. Waits at the peer for up to `within`.
    pub(super) fn collect(&mut self, within: Duration) {
        while let Some(frame) = self.second_port.sent.pop() {
            self.at_second_port.record(self.test, &frame);
        }
        if self.spec.kernel {
            while let Some(frame) = self.rig.kernel().and_then(|peer| peer.receive(Duration::ZERO))
            {
                self.at_kernel.record(self.test, &frame);
            }
        }
        let mut within = within;
        while let Some(frame) = self.rig.peer().receive(within) {
            self.at_peer.record(self.test, &frame);
            within = Duration::ZERO;
        }
    }

    fn arrived(&self) -> usize {
        self.at_peer.distinct() + self.at_second_port.distinct() + self.at_kernel.distinct()
    }

    /// Sends `count` frames with up to `window` in flight. Turns the lanes until each frame has
    /// left or was dropped on purpose, or until there is no more progress.
    pub(super) fn exchange(&mut self, from: Entry, count: usize, length: usize) {
        let range = self.begin(count);
        let (mut sent, gone) = (0, self.dropped());
        let mut moved = Instant::now();
        loop {
            let done = self.arrived() + self.dropped() - gone;
            if done >= count {
                return;
            }
            let before = sent;
            while sent < count
                && sent - done.min(sent) < self.window
                && self.send(from, range.start + sent as u32, length)
            {
                sent += 1;
            }
            self.turn();
            let quiet = moved.elapsed() > Duration::from_millis(2);
            self.collect(if quiet { Duration::from_millis(1) } else { Duration::ZERO });
            if sent > before || self.arrived() + self.dropped() - gone > done {
                moved = Instant::now();
            } else if moved.elapsed() > self.patience {
                return;
            }
        }
    }

    /// Turns and collects until the condition holds. Returns false if the patience ends before.
    pub(super) fn until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) -> bool {
        let end = Instant::now() + self.patience;
        while !holds(self) {
            if Instant::now() > end {
                return false;
            }
            self.turn();
            self.collect(Duration::from_micros(100));
        }
        true
    }

    /// Returns the first number of the next range.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Turns and collects until there was no progress for `quiet`.
    pub(super) fn settle(&mut self, quiet: Duration) {
        let mut moved = Instant::now();
        while moved.elapsed() < quiet {
            let before = (self.arrived(), self.processed(), self.at_peer.duplicates());
            self.turn();
            self.collect(Duration::from_micros(200));
            if before != (self.arrived(), self.processed(), self.at_peer.duplicates()) {
                moved = Instant::now();
            }
        }
    }

    /// Returns a counter of the port under test, summed over all lanes.
    pub(super) fn count(&self, counter: PortCounter) -> u64 {
        let mut losses = Statistics::default();
        self.losses.iter().for_each(|reader| losses += reader.read());
        losses.store(&self.counters.shared_port(usize::from(Spec::PORT.0)));
        self.counters.port_total(usize::from(Spec::PORT.0), counter)
    }

    /// Closes all lanes. Asserts that all frames are back and each received packet had one verdict.
    #[track_caller]
    pub(super) fn close(&mut self) {
        let missing: Vec<_> = self.lanes.iter_mut().map(Lane::close).collect();
        assert!(missing.iter().all(|n| *n == 0), "frames that did not come back: {missing:?}");
        self.lanes.clear();
        let verdicts = [
            PortCounter::VerdictReflect,
            PortCounter::VerdictForward,
            PortCounter::VerdictKernel,
            PortCounter::VerdictDrop,
            PortCounter::DropBadVerdict,
        ];
        for port in 0..2 {
            let total = |counter| self.counters.port_total(port, counter);
            let labelled: u64 = verdicts.into_iter().map(total).sum();
            assert_eq!(total(PortCounter::ReceivedPackets), labelled, "port {port}");
        }
    }
}

/// Reports that a case does not apply to this rig.
pub(super) fn not_applicable(case: &str, lacks: &str) {
    eprintln!("{case}: not applicable, the port has no {lacks}");
}
