//! A port under test with its lanes and its peer, in one thread.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastlane_core::{Idle, Lane, LaneConfig, Port, now};
use fastlane_table::counters::{Counters, PortCounter};

use super::labeller::{BASKET, Label, Labeller};
use super::receipt::Receipt;
use crate::lists::{Frames, lists};
use crate::{LaneRig, Rig, Spec, Tag};

/// Where frames go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Peer,
    Basket,
    /// The application makes them, or Linux sends them: nothing is put in by the bench.
    Elsewhere,
}

/// The suite's own second port, whose other end is the test itself.
#[derive(Default)]
struct Basket {
    /// Frames that the lanes will receive.
    arrivals: Frames,
    /// Frames that the lanes have sent.
    sent: Frames,
}

pub(super) struct Bench<R: Rig> {
    // The lanes go before the device.
    lanes: Vec<Lane<Labeller>>,
    pub(super) rig: R,
    pub(super) counters: Counters,
    basket: Basket,
    pub(super) spec: Spec,
    pub(super) test: u32,
    label: Label,
    next: u32,
    /// Frames that may be under way at once.
    pub(super) window: usize,
    /// How long nothing may happen.
    pub(super) patience: Duration,
    pub(super) at_peer: Receipt,
    pub(super) at_basket: Receipt,
    pub(super) at_kernel: Receipt,
}

/// Numbers the tests of this process.
static NEXT_TEST: AtomicU32 = AtomicU32::new(0);

impl<R: Rig> Bench<R> {
    /// `None` when the machine cannot; the rig has said so.
    pub(super) fn open(spec: Spec, label: Label) -> Option<Self> {
        let rig = R::open(&spec)?;
        let number = NEXT_TEST.fetch_add(1, Ordering::Relaxed);
        // Unlike those of other processes and of earlier runs, as far as 32 bits go.
        let test = (now() as u32 ^ std::process::id() << 16) & !0xff | number & 0xff;
        let mut bench = Self {
            lanes: Vec::new(),
            rig,
            counters: Counters::create(spec.lanes, 3).expect("memory for counters"),
            basket: Basket::default(),
            spec,
            test,
            label,
            next: 0,
            window: R::BURST,
            patience: R::PATIENCE,
            at_peer: Receipt::default(),
            at_basket: Receipt::default(),
            at_kernel: Receipt::default(),
        };
        bench.open_lanes();
        Some(bench)
    }

    /// Opens the port, at first or again.
    pub(super) fn open_lanes(&mut self) {
        self.counters = Counters::create(self.spec.lanes, 3).expect("memory for counters");
        let rigs = self.rig.lanes(&self.spec);
        assert_eq!(rigs.len(), self.spec.lanes, "the rig answers for each lane");
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
            port(1, vec![lists(BASKET, &self.basket.arrivals, &self.basket.sent)], None),
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

    /// Sets every lane's application up.
    pub(super) fn applications(&mut self, set: impl Fn(&mut Labeller)) {
        self.lanes.iter_mut().for_each(|lane| set(lane.app()));
    }

    /// One turn of each lane.
    pub(super) fn turn(&mut self) {
        for lane in &mut self.lanes {
            lane.turn();
        }
    }

    /// Frames of this test that the applications were shown.
    pub(super) fn seen(&mut self) -> usize {
        self.seen_by_lane().iter().sum()
    }

    /// The same for each lane.
    pub(super) fn seen_by_lane(&mut self) -> Vec<usize> {
        self.lanes.iter_mut().map(|lane| lane.app().seen).collect()
    }

    fn gone(&mut self) -> usize {
        self.lanes.iter_mut().map(|lane| lane.app().gone).sum()
    }

    /// Claims the next numbers, and expects them at all ends.
    pub(super) fn begin(&mut self, count: usize) -> Range<u32> {
        let range = self.next..self.next + count as u32;
        self.next = range.end;
        self.at_peer = Receipt::new(range.clone());
        self.at_basket = Receipt::new(range.clone());
        self.at_kernel = Receipt::new(range.clone());
        range
    }

    /// The frame with this number.
    pub(super) fn frame(&self, sequence: u32, length: usize) -> Vec<u8> {
        Tag { test: self.test, sequence }.frame(self.rig.addresses(), length)
    }

    /// Puts one frame in; false when there is no space now.
    pub(super) fn send(&mut self, from: Entry, sequence: u32, length: usize) -> bool {
        if from == Entry::Elsewhere {
            return true;
        }
        let frame = self.frame(sequence, length);
        if from == Entry::Peer {
            return self.rig.peer().send(&frame);
        }
        self.basket.arrivals.push(&frame)
    }

    /// Notes all that has come out of any end; waits at the peer for as long as `within`.
    pub(super) fn collect(&mut self, within: Duration) {
        while let Some(frame) = self.basket.sent.pop() {
            self.at_basket.note(self.test, &frame);
        }
        if self.spec.kernel {
            while let Some(frame) = self.rig.kernel().and_then(|peer| peer.receive(Duration::ZERO))
            {
                self.at_kernel.note(self.test, &frame);
            }
        }
        let mut within = within;
        while let Some(frame) = self.rig.peer().receive(within) {
            self.at_peer.note(self.test, &frame);
            within = Duration::ZERO;
        }
    }

    fn came(&self) -> usize {
        self.at_peer.distinct() + self.at_basket.distinct() + self.at_kernel.distinct()
    }

    /// Sends `count` frames, as many at once as the rig allows, and turns until each of them has
    /// come out somewhere or was labelled to come out nowhere, or nothing happens any more.
    pub(super) fn exchange(&mut self, from: Entry, count: usize, length: usize) {
        let range = self.begin(count);
        let (mut sent, gone) = (0, self.gone());
        let mut moved = Instant::now();
        loop {
            let done = self.came() + self.gone() - gone;
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
            if sent > before || self.came() + self.gone() - gone > done {
                moved = Instant::now();
            } else if moved.elapsed() > self.patience {
                return;
            }
        }
    }

    /// Turns and collects until the condition holds, or for as long as the patience lasts.
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

    /// The number that the next range begins with.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Turns and collects until nothing has come for `quiet`.
    pub(super) fn settle(&mut self, quiet: Duration) {
        let mut moved = Instant::now();
        while moved.elapsed() < quiet {
            let before = (self.came(), self.seen(), self.at_peer.duplicates());
            self.turn();
            self.collect(Duration::from_micros(200));
            if before != (self.came(), self.seen(), self.at_peer.duplicates()) {
                moved = Instant::now();
            }
        }
    }

    /// A counter of the port under test, over all lanes.
    pub(super) fn count(&self, counter: PortCounter) -> u64 {
        self.counters.port_total(usize::from(Spec::PORT.0), counter)
    }

    /// Closes all lanes. All frames are back, and each received packet had one verdict.
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

/// For a case that is not for this rig.
pub(super) fn not_for_this_rig(case: &str, lacks: &str) {
    eprintln!("{case}: the port has no {lacks}, nothing to show");
}
