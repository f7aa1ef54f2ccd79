//! Follower of connections: keeps the table of flows as Linux has it, and Linux as the lanes do.

use std::collections::VecDeque;
use std::io;
use std::ops::DerefMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fastlane_table::{LaneState, State, TableError};

use super::flow_state::FLOW_WORDS;
use super::flow_table::{Closing, FlowTable, FlowWriter, SECOND};
use super::judged_rules::JudgedRules;
use super::policy_timeouts::PolicyTimeouts;
use super::{FlowPolicy, FlowStatistics, FlowTier, FlowTimeouts, Suitability};
use crate::Error;
use crate::conntrack::{
    Connection, ConntrackChange, ConntrackEvent, ConntrackListener, ConntrackWriter, Groups, Heard,
};
use crate::ipsec::PolicyReader;

mod flow_resync;

use flow_resync::Proof;

/// Maximum number of datagrams of events in one step.
const EVENT_BATCH: usize = 4096;
/// Maximum number of such batches until no event is left.
const DRAIN_BATCHES: usize = 256;
/// Maximum number of connections that are prepared in one step. Each causes an event, so the number
/// is halved when events are lost.
const TOUCH_BATCH: usize = 256;
/// Time after which Linux sees no more packets of a flow that lanes forward, in nanoseconds.
const SETTLE_TIME: u64 = 200_000_000;
/// Time in which a sweep visits all flows, in nanoseconds, and its bounds.
const SWEEP_TIME: [u64; 2] = [1_000_000_000, 10_000_000_000];
/// Time between two steps without events.
const STEP: Duration = Duration::from_millis(100);

/// Settings of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// Connections that lanes may forward.
    pub policy: FlowPolicy,
    /// Receive buffer for events in bytes. Beyond it events are lost and everything is read again.
    pub receive_buffer: usize,
    /// True if a change of the nftables rule set clears the marks, so that the rules judge each
    /// connection again.
    pub rejudges: bool,
    /// Rules by which a predecessor's flows were judged: [`FlowStatus::rules`], 0 if unknown.
    ///
    /// [`FlowStatus::rules`]: super::FlowStatus::rules
    pub rules: u64,
}

/// Follower of the connections of a network namespace, the only writer of a table of flows.
pub struct FlowFollower<T> {
    settings: FlowSettings,
    listener: ConntrackListener,
    writer: ConntrackWriter,
    ipsec: PolicyReader,
    table: FlowTable<T>,
    lanes: Vec<LaneState<FLOW_WORDS>>,
    statistics: FlowStatistics,
    timeouts: FlowTimeouts,
    /// Connections that are to be prepared.
    touches: VecDeque<ConntrackChange>,
    touch_batch: usize,
    /// TCP connections that became flows, in order of the time at which they are prepared again:
    /// their last packets by Linux have set the greatest acknowledgement.
    settling: VecDeque<(u64, ConntrackChange)>,
    policy_timeouts: PolicyTimeouts,
    events: Vec<ConntrackEvent>,
    rules: JudgedRules,
    must_resync: bool,
    /// True if a flow found no room since the last resync.
    lacks_room: bool,
    /// True if Linux has refused a change of a flow since the last resync. It may have removed the
    /// connection without a report.
    was_refused: bool,
    next_resync: u64,
    /// Position and time of the sweep.
    sweep: (usize, u64),
    /// Proof that Linux reports taken-over flows, while it lasts.
    proof: Option<Proof>,
}

impl<T: DerefMut<Target = FlowWriter>> FlowFollower<T> {
    /// Subscribes to the events of the network namespace of the calling thread, and takes over the
    /// tables of the lanes and of the tier inside the kernel, if there is one. Flows that a
    /// predecessor left stay if Linux still has them and its rules are those that judged them;
    /// otherwise the tables are empty, and all must be [judged again](Self::must_rejudge). `now` is
    /// in nanoseconds of `CLOCK_MONOTONIC`, as everywhere in this type.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket or a dump.
    pub fn open(
        settings: FlowSettings,
        table: T,
        tier: Option<Box<dyn FlowTier>>,
        state: &State<FLOW_WORDS>,
        now: u64,
    ) -> Result<Self, Error> {
        let groups = Groups { new: settings.policy.one_way, rules: true };
        // Events first, so that nothing is missed between the dump and them.
        let listener = ConntrackListener::open(groups, settings.receive_buffer)
            .map_err(|error| Error::kernel("subscribing to conntrack events", error))?;
        let writer = ConntrackWriter::open()
            .map_err(|error| Error::kernel("opening a conntrack socket", error))?;
        let ipsec = PolicyReader::open().map_err(reading_policies)?;
        let lanes = (0..state.lanes().max(1)).map(|lane| state.lane(lane)).collect();
        let policy_timeouts = PolicyTimeouts::new(table.capacity());
        let mut follower = Self {
            settings,
            listener,
            writer,
            ipsec,
            table: FlowTable::new(table, tier),
            lanes,
            statistics: FlowStatistics::default(),
            timeouts: FlowTimeouts::read(),
            touches: VecDeque::new(),
            touch_batch: TOUCH_BATCH,
            settling: VecDeque::new(),
            policy_timeouts,
            events: Vec::new(),
            rules: JudgedRules::new(settings.rejudges, settings.rules),
            must_resync: false,
            lacks_room: false,
            was_refused: false,
            next_resync: 0,
            sweep: (0, now),
            proof: None,
        };
        follower.learn_rules()?;
        if follower.must_rejudge() {
            follower.table.retain(|_, _| false);
        } else {
            follower.resync(now, true)?;
        }
        follower.table.complete_tier().map_err(offloading)?;
        Ok(follower)
    }

    /// Returns the tier inside the kernel, if there is one.
    pub fn tier(&mut self) -> Option<&mut (dyn FlowTier + 'static)> {
        self.table.tier()
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> FlowStatistics {
        FlowStatistics { flows: self.table.len() as u64, ..self.statistics }
    }

    /// Returns the event sockets. One is readable when events are pending.
    pub fn interrupts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.listener.as_fd()].into_iter().chain(self.ipsec.interrupt())
    }

    /// Returns the time after which a step is due without an event.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        if self.touches.is_empty() { STEP } else { Duration::from_millis(1) }
    }

    /// Returns true if the rule set has changed, or may have changed before the start: lanes must
    /// not forward flows until [`rejudge`](Self::rejudge) has returned and this returns false.
    #[must_use]
    pub fn must_rejudge(&self) -> bool {
        self.rules.must_rejudge()
    }

    /// Returns true if the rules of nftables have changed since the last call, or before the first.
    pub fn take_rule_change(&mut self) -> bool {
        self.rules.take_change()
    }

    /// Returns the rules by which the flows were judged, for the settings of a successor.
    #[must_use]
    pub fn rules(&self) -> u64 {
        self.rules.published()
    }

    /// Asks Linux for the generation of its rules.
    fn learn_rules(&mut self) -> Result<(), Error> {
        self.rules.learn(self.listener.rules_generation().map_err(reading_rules)?);
        Ok(())
    }

    /// Applies pending events, prepares connections, refreshes timeouts and resyncs if events were
    /// lost. Does not wait.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a dump or a change, or the tier inside the kernel a
    /// flow. The table stays as it is.
    pub fn step(&mut self, now: u64) -> Result<(), Error> {
        if self.ipsec.follow().map_err(reading_policies)? {
            (self.must_resync, self.next_resync) = (true, now);
        }
        let mut is_drained = self.apply_events(now)?;
        let is_due = self.must_resync && now >= self.next_resync;
        if is_due || self.must_retry(now) {
            // To a socket that has lost events Linux reports nothing until all others are read
            // (`NETLINK_S_CONGESTED` in `net/netlink/af_netlink.c`).
            is_drained = is_drained || self.drain(now)?;
            self.learn_rules()?;
            self.resync(now, false)?;
            self.must_resync |= !is_drained;
        }
        if is_drained && !self.must_resync {
            self.end_proof(now);
        }
        while self.settling.front().is_some_and(|(time, _)| now >= *time) {
            self.touches.extend(self.settling.pop_front().map(|(_, change)| change));
        }
        if is_drained {
            self.send_touches()?;
        }
        self.sweep(now)?;
        self.table.take_failure().map_or(Ok(()), |error| Err(offloading(error)))
    }

    /// Removes all flows and clears the marks of their connections, so that the rules of Linux
    /// judge each again by its next packet. Connections that are marked again become flows again.
    /// Linux learns when lanes have seen the last packets of each. If connections come and go too
    /// fast for a whole dump, it must be done once more.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a dump or a change. The table is empty then.
    pub fn rejudge(&mut self, now: u64) -> Result<(), Error> {
        let policy = self.settings.policy;
        let FlowPolicy { mark, mask, .. } = policy;
        // Before the marks are cleared: later rules are an event of their own.
        let generation = self.listener.rules_generation();
        let mut changes = Vec::new();
        let clear = |it: Connection| {
            let mut change = ConntrackChange { mark: Some((0, mask)), ..ConntrackChange::of(&it) };
            if policy.judge(&it, self.ipsec.policies()) == Suitability::Fast
                && let Some(index) = self.table.index(&it)
            {
                let totals = self.table.totals(index, &self.lanes);
                let flow = self.table.at(index);
                change.timeout = flow.and_then(|it| self.timeouts.last_timeout(it, totals, now));
            }
            changes.push(change);
        };
        let dumped = self.listener.dump(mark, mask, clear);
        self.statistics.removed += self.table.len() as u64;
        self.table.retain(|_, _| false);
        self.touches.clear();
        self.settling.clear();
        self.proof = None;
        let (generation, is_whole) = (generation.map_err(reading_rules)?, dumped.map_err(dumping)?);
        self.writer.apply(changes).map_err(changing)?;
        if is_whole {
            self.rules.rejudged(generation);
        }
        self.statistics.rejudged += 1;
        // Events from before the marks were cleared would add flows. Those of the changes follow.
        self.drain(now)?;
        if self.must_resync {
            self.resync(now, false)?;
        }
        Ok(())
    }

    /// Applies pending events until none are left. Returns false if there are too many.
    fn drain(&mut self, now: u64) -> Result<bool, Error> {
        for _ in 0..DRAIN_BATCHES {
            if self.apply_events(now)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Prepares the next connections.
    fn send_touches(&mut self) -> Result<(), Error> {
        let count = self.touches.len().min(self.touch_batch);
        self.touch_batch = (self.touch_batch + 1).min(TOUCH_BATCH);
        self.statistics.touched += count as u64;
        if let Some(proof) = &mut self.proof {
            proof.waiting = proof.waiting.saturating_sub(count);
        }
        self.writer.apply(self.touches.drain(..count)).map_err(changing)?;
        Ok(())
    }

    /// Applies pending events. Returns true if none are left.
    fn apply_events(&mut self, now: u64) -> Result<bool, Error> {
        let mut events = std::mem::take(&mut self.events);
        let heard = self.listener.hear(EVENT_BATCH, |event| events.push(event));
        let heard = heard.map_err(|error| Error::kernel("receiving conntrack events", error))?;
        for event in events.drain(..) {
            self.statistics.events += 1;
            match event {
                ConntrackEvent::Present(connection) => self.present(&connection, now),
                ConntrackEvent::Removed(connection) => {
                    let is_known = self.table.remove_ended(&connection);
                    self.statistics.removed += u64::from(is_known);
                }
                ConntrackEvent::Rules(generation) => self.rules.learn(generation),
                ConntrackEvent::Result(_) | ConntrackEvent::Other => {}
            }
        }
        self.events = events;
        if heard == Heard::Lost {
            self.statistics.lost += 1;
            self.must_resync = true;
            self.learn_rules()?;
            self.touch_batch = (self.touch_batch / 2).max(1);
        }
        Ok(heard == Heard::Everything)
    }

    fn judge(&self, connection: &Connection) -> Suitability {
        self.settings.policy.judge(connection, self.ipsec.policies())
    }

    /// Applies a connection that an event has reported.
    fn present(&mut self, connection: &Connection, now: u64) {
        let suitability = self.judge(connection);
        if let Suitability::Refused(reason) = suitability {
            self.statistics.refused[reason as usize] += 1;
            self.remove(connection);
            return;
        }
        self.learn_timeout(connection);
        if self.table.has(connection)
            && let Some(flow) = self.table.get(connection)
        {
            flow.is_unproven = false;
            flow.status = connection.status;
            flow.note_timeout(connection, now);
            if flow.closing == Closing::AskedAgain && suitability == Suitability::Fast {
                self.must_resync |= self.table.reopen(connection, now).is_err();
                self.settle(connection, now);
            }
        } else if suitability == Suitability::Fast {
            match self.add(connection, now) {
                Ok(is_new) => {
                    self.statistics.added += u64::from(is_new);
                    self.settle(connection, now);
                }
                Err(TableError::Full { .. } | TableError::Stalled { .. }) => self.note_full(),
                Err(_) => self.must_resync = true,
            }
        } else if self.table.room() > 0 {
            self.touches.push_back(ConntrackChange::touch(connection));
        } else {
            self.note_full();
        }
    }

    /// Notes that a connection found no room.
    fn note_full(&mut self) {
        self.statistics.full += 1;
        self.lacks_room = true;
    }

    /// Adds a connection to the table. Returns true if it was no flow yet.
    fn add(&mut self, connection: &Connection, now: u64) -> Result<bool, TableError> {
        let is_new = self.table.add(connection, now)?;
        let policy_timeout = self.policy_timeouts.take(connection.id);
        let Some(index) = self.table.index(connection) else { return Ok(is_new) };
        let last_seen = self.table.totals(index, &self.lanes).last_seen;
        if let Some(flow) = self.table.at(index) {
            flow.policy_timeout = policy_timeout.or(flow.policy_timeout);
            if !connection.is_refreshed {
                flow.known_use = self.timeouts.last_known_use(flow, last_seen, now);
            }
        }
        Ok(is_new)
    }

    /// Has a connection prepared again when Linux sees no more packets of its flow.
    fn settle(&mut self, connection: &Connection, now: u64) {
        let change = ConntrackChange::touch(connection);
        if change.be_liberal {
            self.settling.push_back((now + SETTLE_TIME, change));
        }
    }

    /// Keeps the timeout of a timeout policy: for its flow, or until it becomes one.
    fn learn_timeout(&mut self, connection: &Connection) {
        let Some(timeout) = self.timeouts.by_policy(connection) else { return };
        match self.table.get(connection) {
            // What is left of a timeout from before the usual one was lowered. A taken-over flow
            // may have a policy: its predecessor knew.
            Some(flow) if !connection.is_refreshed && !flow.is_unproven => return,
            Some(flow) => flow.policy_timeout = Some(timeout),
            None => self.policy_timeouts.keep(connection.id, timeout),
        }
        self.policy_timeouts.note(timeout);
    }

    fn remove(&mut self, connection: &Connection) {
        self.statistics.removed += u64::from(self.table.remove(connection));
    }

    /// Visits the flows whose turn it is, and tells Linux which are in use.
    fn sweep(&mut self, now: u64) -> Result<(), Error> {
        let capacity = self.table.capacity();
        let shortest = self.timeouts.shortest().min(self.policy_timeouts.shortest());
        let third = u64::from(shortest) * SECOND / 3;
        let whole = third.clamp(SWEEP_TIME[0], SWEEP_TIME[1]);
        let (first, then) = self.sweep;
        let share = u128::from(now.saturating_sub(then)) * capacity as u128 / u128::from(whole);
        let count = (share as usize).min(capacity);
        if count == 0 {
            return Ok(());
        }
        let (mut changes, mut closing) = (Vec::new(), Vec::new());
        for index in (first..first + count).map(|index| index % capacity) {
            let totals = self.table.totals(index, &self.lanes);
            let Some(flow) = self.table.at(index) else { continue };
            if totals.is_rerouted && self.settings.rejudges {
                // The rules judge it by its new exit.
                self.statistics.touched += 1;
                let timeout = self.timeouts.last_timeout(flow, totals, now);
                let unmark = flow.unmark(self.settings.policy.mask);
                changes.push(ConntrackChange { timeout, ..unmark });
            } else if totals.is_closing {
                // Linux has got that packet, but its rules may be such that it reports no states.
                self.statistics.touched += 1;
                flow.closing = flow.closing.asked();
                closing.push(flow.touch());
            } else if let Some(change) = self.timeouts.refresh(flow, totals, now) {
                self.statistics.refreshed += 1;
                changes.push(change);
            }
        }
        let next = first + count;
        if next >= capacity {
            self.timeouts = FlowTimeouts::read();
        }
        self.sweep = (next % capacity, now);
        self.was_refused |= self.writer.apply(changes).map_err(changing)? > 0;
        // Linux may remove a closing connection at any time, and reports that.
        self.writer.apply(closing).map_err(changing)?;
        Ok(())
    }
}

fn reading_rules(error: io::Error) -> Error {
    Error::kernel("reading the generation of the nftables rules", error)
}

fn reading_policies(error: io::Error) -> Error {
    Error::kernel("reading the IPsec policies", error)
}

fn offloading(error: io::Error) -> Error {
    Error::kernel("changing the flows of the kernel tier", error)
}

fn dumping(error: io::Error) -> Error {
    Error::kernel("reading the connections", error)
}

fn changing(error: io::Error) -> Error {
    Error::kernel("changing connections", error)
}
