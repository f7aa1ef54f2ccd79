//! Changing packets with other lanes.

use fastlane_table::counters::LaneCounter;

use super::{DRAIN, Lane, Way};
use crate::exchange::{Exchange, ExchangeConfig};
use crate::{App, Packet, PacketOwnership, now};

impl<A: App> Lane<A> {
    /// Lets the lane change packets with others. To be called before its first turn.
    pub fn exchange(&mut self, parts: ExchangeConfig) {
        let burst = self.burst.room();
        self.turn.shards = Some((parts.shards.clone(), parts.lane));
        let exchange = Exchange::new(parts, &mut self.egress.ports, burst);
        self.egress.exchange = Some(Box::new(exchange));
        if self.way == Way::Alone {
            self.way = Way::WithOthers;
        }
    }

    /// Keeps of the burst, which arrived at a port, what belongs to this lane.
    #[inline(never)]
    pub(super) fn sort(&mut self, port: usize) {
        let Some(exchange) = &mut self.egress.exchange else { return };
        let (app, turn) = (&mut self.app, &self.turn);
        if exchange.assign(port, &mut self.burst, |packet| app.shard(packet, turn)) {
            return; // all of them stay
        }
        let (arrived_at, pool) = (&self.egress.ports[port], &mut self.turn.pool);
        let parked = exchange.send_away(arrived_at, &mut self.burst, pool);
        if parked > 0 {
            self.turn.counters.add(LaneCounter::ParkedPackets, parked);
        }
    }

    /// Does what other lanes have passed, and what was parked and is so no more.
    #[inline(never)]
    pub(super) fn serve(&mut self) -> usize {
        let Some(exchange) = &mut self.egress.exchange else { return 0 };
        exchange.begin();
        let lanes = exchange.lanes();
        let mut work = 0;
        while let Some(exchange) = self.egress.exchange.as_mut().filter(|it| it.may_unpark()) {
            exchange.unpark(&self.egress.ports, &mut self.burst, &mut self.turn.pool);
            if self.burst.is_empty() {
                break;
            }
            work += self.burst.len();
            self.show_passed();
        }
        for lane in 0..lanes {
            let Some(exchange) = &mut self.egress.exchange else { break };
            exchange.receive(lane, &mut self.burst, &mut self.turn.pool);
            if self.burst.is_empty() {
                continue;
            }
            work += self.burst.len();
            if self.burst.packets().iter().any(Packet::is_labelled) {
                self.carry_passed(lane);
            } else {
                self.show_passed();
            }
        }
        work
    }

    /// Shows what others have passed, and carries out the verdicts.
    fn show_passed(&mut self) {
        self.show_runs();
        self.resume();
        let (pool, hold) = (&mut self.turn.pool, &mut self.turn.hold);
        self.egress.dispatch(0, &mut self.burst, pool, hold);
    }

    /// As [`show_passed`](Self::show_passed), where another lane has labelled some packets already.
    fn carry_passed(&mut self, lane: usize) {
        self.show_runs();
        self.resume();
        for run in self.burst.packets().chunk_by(Packet::same_run) {
            if !run[0].is_labelled() {
                self.egress.count_verdict(run);
            }
        }
        self.burst.packets().iter_mut().for_each(|packet| packet.set_labelled(false));
        let (pool, hold) = (&mut self.turn.pool, &mut self.turn.hold);
        // By one queue what comes from one lane: so it stays in order.
        self.egress.dispatch_uncounted(lane, &mut self.burst, pool, hold);
    }

    /// Shows each run of packets of one port that nobody has labelled.
    fn show_runs(&mut self) {
        let alike = |one: &Packet, other: &Packet| {
            one.port() == other.port() && one.is_labelled() == other.is_labelled()
        };
        self.turn.begin_burst();
        for run in self.burst.packets().chunk_by_mut(alike) {
            if run[0].is_labelled() {
                continue;
            }
            let port = usize::from(run[0].port().0);
            if self.egress.recorder.is_on() {
                self.egress.recorder.arrived(port, run);
            }
            self.app.process(run, &mut self.turn);
            if self.egress.recorder.is_on() {
                self.egress.recorder.labelled(run);
            }
        }
    }

    /// Ends in good order, within a bounded time: what was passed to this lane is still done, and
    /// what it has passed is read.
    pub(super) fn leave(&mut self) {
        let end = now() + DRAIN;
        self.flush();
        for done in [false, true] {
            let Some(exchange) = &mut self.egress.exchange else { return };
            exchange.leave(done);
            while self.egress.exchange.as_mut().is_some_and(|it| it.is_busy(done)) && now() < end {
                if self.serve() == 0 {
                    std::thread::yield_now();
                }
                self.flush();
            }
        }
    }

    /// Returns how many frames of the parked packets are missing.
    pub(super) fn close_exchange(&mut self) -> usize {
        let exchange = self.egress.exchange.take();
        let close =
            |mut exchange: Box<Exchange>| exchange.close(&self.egress.ports, &mut self.turn.pool);
        exchange.map_or(0, close)
    }
}
