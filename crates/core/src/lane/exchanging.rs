//! Exchange of packets with other lanes.

use fastlane_table::counters::LaneCounter;

use super::{DRAIN, Lane, Phase};
use crate::exchange::{ClaimAll, Exchange};
use crate::packet::same_run;
use crate::{App, Packet, PacketOwnership, now};

impl<A: App> Lane<A> {
    /// Joins an exchange of packets with other lanes. Call it before the first turn.
    pub fn join(&mut self, exchange: Box<dyn Exchange>) {
        for port in (0..self.egress.ports.len()).filter(|port| exchange.distributes(*port)) {
            self.egress.ports.set_default_filter(port, ClaimAll);
        }
        self.turn.shards = Some(exchange.ownership());
        self.egress.exchange = Some(exchange);
        if self.phase == Phase::Alone {
            self.phase = Phase::Exchanging;
        }
        self.update_layers();
    }

    /// Passes packets of other lanes to them. What arrived at `port` and belongs to this lane stays
    /// in the burst.
    #[inline(never)]
    pub(super) fn distribute(&mut self, port: usize) {
        let Some(exchange) = &mut self.egress.exchange else { return };
        let (app, turn) = (&mut self.app, &self.turn);
        if exchange.assign(port, self.burst.packets(), &mut |packet| app.shard(packet, turn)) {
            return; // all of them stay
        }
        let (counters, pool) = (&self.egress.ports.counters[port], &mut self.turn.pool);
        let parked = exchange.send_away(counters, &mut self.burst, pool);
        if parked > 0 {
            self.turn.counters.add(LaneCounter::ParkedPackets, parked);
        }
    }

    /// Processes packets that other lanes have passed, and packets whose shard has migrated.
    #[inline(never)]
    pub(super) fn serve(&mut self) -> usize {
        let Some(exchange) = &mut self.egress.exchange else { return 0 };
        exchange.begin_turn();
        let mut work = 0;
        while let Some(exchange) = &mut self.egress.exchange {
            let (counters, pool) = (&self.egress.ports.counters, &mut self.turn.pool);
            let Some(lane) = exchange.next_burst(counters, &mut self.burst, pool) else { break };
            work += self.burst.len();
            if self.burst.packets().iter().any(Packet::is_labelled) {
                self.process_labelled(lane);
            } else {
                self.process_passed();
            }
        }
        work
    }

    /// Shows passed packets to the application and carries out its verdicts.
    fn process_passed(&mut self) {
        self.show_runs();
        self.resume();
        let (pool, hold) = (&mut self.turn.pool, &mut self.turn.hold);
        self.egress.dispatch(0, &mut self.burst, pool, hold);
    }

    /// Processes a burst of which another lane has labelled some packets.
    fn process_labelled(&mut self, lane: usize) {
        self.show_runs();
        self.resume();
        for run in self.burst.packets().chunk_by(same_run) {
            if !run[0].is_labelled() {
                self.egress.count_verdict(run);
            }
        }
        self.burst.packets().iter_mut().for_each(|packet| packet.set_labelled(false));
        let (pool, hold) = (&mut self.turn.pool, &mut self.turn.hold);
        // All packets of one lane leave by one queue, so they stay in order.
        self.egress.dispatch_uncounted(lane, &mut self.burst, pool, hold);
    }

    /// Shows each run of packets of one port that no lane has labelled.
    fn show_runs(&mut self) {
        let alike = |one: &Packet, other: &Packet| {
            one.port() == other.port() && one.is_labelled() == other.is_labelled()
        };
        self.turn.begin_burst();
        for run in self.burst.packets().chunk_by_mut(alike) {
            if run[0].is_labelled() {
                continue;
            }
            let port = run[0].port();
            self.egress.observe(|observer| observer.received(port, run));
            self.app.process(run, &mut self.turn);
            self.egress.observe(|observer| observer.labelled(run));
        }
    }

    /// Leaves the exchange within a bounded time: packets that were passed to this lane are still
    /// processed, and other lanes read what it has passed.
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

    /// Closes the exchange. Returns the number of frames that are missing in its memory.
    pub(super) fn close_exchange(&mut self) -> usize {
        let Some(mut exchange) = self.egress.exchange.take() else { return 0 };
        exchange.close(&self.egress.ports.counters, &mut self.turn.pool)
    }
}
