//! Downlink buffering: the sessions for which a lane holds packets. The lane polls some of them in
//! each turn for changed rules and then resumes their packets. No message is needed. The packets
//! lie in the lane's hold area (`crates/hold`).

use fastlane::table::EntryId;
use fastlane::{HoldKey, Turn};

use super::classify::{self, HoldLimits};
use super::lane_tables::{BurstContext, LaneTables, TurnContext};
use super::outcome::Outcome;
use crate::rules::layout::counter_slots::{EVENTS, event};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{Direction, Rules};
use crate::rules::layout::slices::{BUDGETS, HoldBudget};
use crate::session::SessionIndex;

/// Sessions polled per turn.
const POLLED_PER_TURN: usize = 16;
/// Maximum number of sessions for which a lane holds packets.
const MAX_SESSIONS: usize = 65_536;
/// Maximum number of packets held in a burst.
const MAX_HELD_IN_BURST: usize = 1024;

/// A session with held packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BufferedSession {
    /// Session index.
    session: SessionIndex,
    /// Lower 32 bits of the rules' version when the last packet was held.
    version: u32,
    /// Time until which packets are held, in ns of `CLOCK_MONOTONIC`.
    until: u64,
    /// Packets that were held since, and the budgets that they count for; 0 for none.
    packets: u32,
    budgets: [u8; 2],
}

/// Decision about the held packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferDecision {
    /// Continue to hold them.
    Hold,
    /// Show them to the application again.
    Resume,
    /// Discard them.
    Discard,
    /// Discard them, as their time is over.
    Expire,
}

impl BufferDecision {
    /// Resumes or discards the packets held under a key.
    #[cold]
    pub(crate) fn carry_out(self, key: HoldKey, context: &mut TurnContext<'_>) {
        match self {
            Self::Resume => {
                context.turn.resume(key);
            }
            Self::Discard | Self::Expire => {
                let discarded = context.turn.discard(key);
                let (reason, packets) = (DropReason::HoldDiscarded, discarded as u64);
                context.tables.count(reason, packets, 0);
                let session = SessionIndex(key.number());
                if let Some(rules) = context.tables.rules(context.turn, session) {
                    let group = rules.group(Direction::Downlink);
                    context.tables.count_in_group(group, reason, packets);
                    if self == Self::Expire {
                        raise_once(context.tables, session, rules, event::EXPIRED);
                    }
                }
            }
            Self::Hold => {}
        }
    }
}

impl BufferedSession {
    /// Decides about the held packets by the current rules. Rules of another version decide again,
    /// unless they discard held packets.
    fn decide(&self, rules: Option<&Rules>, now: u64) -> BufferDecision {
        match rules {
            None => BufferDecision::Discard,
            Some(rules) if rules.gives_up(self.version) => BufferDecision::Discard,
            Some(rules) if rules.version() != self.version => BufferDecision::Resume,
            Some(_) if self.until <= now => BufferDecision::Expire,
            Some(_) => BufferDecision::Hold,
        }
    }
}

/// All sessions of a lane with held packets.
#[derive(Clone, Debug)]
struct BufferedSessions {
    sessions: Vec<BufferedSession>,
    /// By session: 1 + index in `sessions`, or 0.
    slots: Vec<u32>,
    next: usize,
    /// Held packets by budget.
    spent: Vec<u32>,
}

impl BufferedSessions {
    /// Creates an empty buffer for `sessions` sessions.
    fn new(sessions: usize) -> Self {
        let capacity = MAX_SESSIONS.min(sessions);
        let (sessions, slots) = (Vec::with_capacity(capacity), vec![0; sessions]);
        Self { sessions, slots, next: 0, spent: vec![0; BUDGETS + 1] }
    }

    /// Returns true if nothing is held.
    #[inline]
    fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns the index of a session in `sessions`.
    #[inline]
    fn position(&self, session: SessionIndex) -> Option<usize> {
        Some(self.slots.get(session.0 as usize)?.checked_sub(1)? as usize)
    }

    /// Returns a session that has held packets.
    #[inline]
    fn get(&self, session: SessionIndex) -> Option<&BufferedSession> {
        self.sessions.get(self.position(session)?)
    }

    /// Returns true if a budget is used up.
    fn is_spent(&self, budget: &HoldBudget) -> bool {
        self.spent.get(budget.number as usize).is_some_and(|spent| *spent >= budget.packets)
    }

    /// Adds packets to the budgets of a session, or takes them away.
    fn spend(&mut self, budgets: [u8; 2], before: u32, after: u32) {
        for budget in budgets.into_iter().filter(|budget| *budget != 0) {
            if let Some(spent) = self.spent.get_mut(usize::from(budget)) {
                *spent = spent.saturating_sub(before).saturating_add(after);
            }
        }
    }

    /// Sets the number of held packets of a session.
    fn set_packets(&mut self, session: SessionIndex, packets: u32) {
        let position = self.position(session);
        if let Some(held) = position.and_then(|position| self.sessions.get_mut(position)) {
            let before = std::mem::replace(&mut held.packets, packets);
            let budgets = held.budgets;
            self.spend(budgets, before, packets);
        }
    }

    /// Records that a packet of a session is held; false if too many sessions are.
    fn add(&mut self, held: BufferedSession) -> bool {
        let is_added = self.add_session(held);
        if is_added && let Some(packets) = self.get(held.session).map(|held| held.packets) {
            self.set_packets(held.session, packets.saturating_add(1));
        }
        is_added
    }

    /// Adds a session unless it has held packets; false if too many sessions have.
    fn add_session(&mut self, held: BufferedSession) -> bool {
        if let Some(position) = self.position(held.session) {
            if let Some(before) = self.sessions.get_mut(position) {
                before.version = held.version;
            }
            return true;
        }
        let Some(slot) = self.slots.get_mut(held.session.0 as usize) else { return false };
        if self.sessions.len() == self.sessions.capacity() {
            return false;
        }
        self.sessions.push(held);
        *slot = self.sessions.len() as u32;
        true
    }

    /// Removes a session.
    fn remove(&mut self, session: SessionIndex) {
        if let Some(position) = self.position(session) {
            self.forget(position);
        }
    }

    fn forget(&mut self, position: usize) {
        let removed = self.sessions.swap_remove(position);
        self.spend(removed.budgets, removed.packets, 0);
        for (session, value) in [
            (self.sessions.get(position).map(|held| held.session), position as u32 + 1),
            (Some(removed.session), 0),
        ] {
            let session = session.map_or(usize::MAX, |session| session.0 as usize);
            if let Some(word) = self.slots.get_mut(session) {
                *word = value;
            }
        }
    }

    /// Polls up to 16 sessions, round robin, by `decide`. Decisions other than `Hold` are passed to
    /// `on_decision` with the key, and the session is removed.
    fn poll(
        &mut self,
        mut decide: impl FnMut(&BufferedSession) -> BufferDecision,
        mut on_decision: impl FnMut(HoldKey, BufferDecision),
    ) {
        for _ in 0..POLLED_PER_TURN.min(self.sessions.len()) {
            if self.next >= self.sessions.len() {
                self.next = 0;
            }
            let Some(held) = self.sessions.get(self.next).copied() else { return };
            match decide(&held) {
                BufferDecision::Hold => self.next += 1,
                decision => {
                    self.forget(self.next);
                    if let Some(key) = HoldKey::new(held.session.0) {
                        on_decision(key, decision);
                    }
                }
            }
        }
    }
}

/// Downlink buffer of a lane.
#[derive(Clone, Debug)]
pub(crate) struct DlBuffer {
    sessions: BufferedSessions,
    /// Sessions of packets labelled `Hold` in the current burst; the lane's own count does not
    /// include them yet.
    labelled: Vec<SessionIndex>,
    /// Number of the current burst.
    burst: u64,
    /// Maximum number of packets that the lane holds.
    most: usize,
    /// Last published number of held packets.
    published: usize,
}

impl DlBuffer {
    /// Creates an empty buffer of `most` packets for `sessions` sessions.
    pub(crate) fn new(sessions: usize, most: usize) -> Self {
        let sessions = BufferedSessions::new(sessions);
        let labelled = Vec::with_capacity(MAX_HELD_IN_BURST);
        Self { sessions, labelled, burst: 0, most, published: 0 }
    }

    /// Returns true if nothing is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Begins the burst of this number, unless it has begun.
    #[inline]
    pub(crate) fn begin_burst(&mut self, burst: u64) {
        if self.burst != burst {
            self.burst = burst;
            self.labelled.clear();
        }
    }

    /// Holds a packet if there is room.
    #[cold]
    pub(crate) fn hold(
        &mut self,
        session: SessionIndex,
        rules: &Rules,
        limits: HoldLimits,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let now = burst.now;
        let Some(key) = HoldKey::new(session.0) else {
            return Outcome::Drop(DropReason::HoldLimit);
        };
        let labelled = self.labelled.iter().filter(|held| **held == session).count();
        let most = usize::from(limits.packets);
        let mut until = now.saturating_add(u64::from(limits.ms) * 1_000_000);
        if let Some(before) = self.sessions.get(session) {
            until = before.until; // the limit runs from the first held packet
        }
        let limits = burst.tables.hold_budgets(burst.turn, rules);
        let budgets = limits.map(|budget| budget.map_or(0, |budget| budget.number as u8));
        let held =
            BufferedSession { session, version: rules.version(), until, packets: 0, budgets };
        let is_full = burst.turn.held(key) + labelled >= most
            || limits.iter().flatten().any(|budget| self.sessions.is_spent(budget))
            || burst.turn.held_packets() + self.labelled.len() >= self.most
            || self.labelled.len() == self.labelled.capacity();
        if is_full || until <= now || !self.sessions.add(held) {
            raise_once(burst.tables, session, rules, event::OVERFLOW);
            return Outcome::Drop(DropReason::HoldLimit);
        }
        self.labelled.push(session);
        Outcome::Hold(key)
    }

    /// Decides about the held packets of a session before a packet by these rules. `None` if none
    /// are held or the rules have not changed.
    #[cold]
    pub(crate) fn decide_before(
        &mut self,
        session: SessionIndex,
        rules: &Rules,
    ) -> Option<BufferDecision> {
        let held = self.sessions.get(session).filter(|held| held.version != rules.version())?;
        let decision = held.decide(Some(rules), u64::MAX);
        // Packets labelled just now are not held yet; the next turn resumes them.
        match self.labelled.iter().filter(|held| **held == session).count() {
            0 => self.sessions.remove(session),
            labelled => self.sessions.set_packets(session, labelled as u32),
        }
        Some(decision)
    }

    /// Resumes or discards the held packets of a session whose rules have changed.
    pub(crate) fn on_change(
        &mut self,
        session: SessionIndex,
        rules: &Rules,
        context: &mut TurnContext<'_>,
    ) {
        let held = self.sessions.get(session).filter(|held| held.version != rules.version());
        if let Some(decision) = held.map(|held| held.decide(Some(rules), context.turn.now())) {
            self.sessions.remove(session);
            if let Some(key) = HoldKey::new(session.0) {
                decision.carry_out(key, context);
            }
        }
    }

    /// Ends the burst and checks some of the sessions that have held packets.
    #[inline]
    pub(crate) fn poll(&mut self, context: &mut TurnContext<'_>) {
        self.labelled.clear();
        if !self.is_empty() {
            self.poll_sessions(context);
        }
        self.publish(context.tables, context.turn);
    }

    #[cold]
    fn poll_sessions(&mut self, context: &mut TurnContext<'_>) {
        let now = context.turn.now();
        context.turn.keep_awake(); // rules may change and hold times may expire
        let mut decided: [Option<(HoldKey, BufferDecision)>; POLLED_PER_TURN] =
            [None; POLLED_PER_TURN];
        let mut count = 0;
        let (tables, turn) = (context.tables, &*context.turn);
        self.sessions.poll(
            |held| held.decide(tables.rules(turn, held.session), now),
            |key, decision| {
                if let Some(slot) = decided.get_mut(count) {
                    *slot = Some((key, decision));
                    count += 1;
                }
            },
        );
        for (key, decision) in decided.into_iter().flatten() {
            decision.carry_out(key, context);
        }
    }

    /// Publishes the number of held packets, including those labelled just now.
    #[inline]
    pub(crate) fn publish(&mut self, tables: &LaneTables, turn: &Turn) {
        let now = turn.held_packets() + self.labelled.len();
        if now != self.published {
            self.published = now;
            tables.publish_held(now as u64);
        }
    }
}

/// Raises an event of a session, once per version of the rules.
#[cold]
fn raise_once(tables: &LaneTables, session: SessionIndex, rules: &Rules, event: u64) {
    let words = tables.state.at(EntryId(session.0));
    let (word, version) = (words.get(EVENTS), u64::from(rules.version()));
    let before = if word >> 32 == version { word & event::ALL } else { 0 };
    if before & event == 0 && !classify::is_later(word, rules.version()) {
        let new = before | event | word & event::MARKER;
        words.publish(EVENTS, version << 32 | new);
        tables.events.raise(EntryId(session.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sessions_are_polled_in_turn() {
        let mut held = BufferedSessions::new(1000);
        let one = |session| BufferedSession {
            session: SessionIndex(session),
            version: 1,
            until: 9,
            packets: 0,
            budgets: [0; 2],
        };
        assert!((0..100).all(|session| held.add(one(session * 7))));
        assert!(held.add(one(7)), "the session has held packets already");
        assert!(!held.add(one(1000)), "the session does not exist");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..7 {
            held.poll(
                |held| {
                    seen.insert(held.session.0);
                    if held.session.0 == 14 { BufferDecision::Resume } else { BufferDecision::Hold }
                },
                |key, decision| assert_eq!((key.number(), decision), (14, BufferDecision::Resume)),
            );
        }
        assert_eq!(seen.len(), 100);
        let has = |held: &BufferedSessions, session| held.get(SessionIndex(session)).is_some();
        assert!(!has(&held, 14) && has(&held, 7) && !has(&held, 8));
        held.remove(SessionIndex(7));
        assert!(!has(&held, 7) && !held.is_empty());
        (0..100).for_each(|session| held.remove(SessionIndex(session * 7)));
        assert!(held.is_empty() && held.slots.iter().all(|slot| *slot == 0));
    }

    #[test]
    fn budgets_count_what_is_held() {
        let mut held = BufferedSessions::new(10);
        let one = |session, budgets| BufferedSession {
            session: SessionIndex(session),
            version: 1,
            until: 9,
            packets: 0,
            budgets,
        };
        let budget = |number, packets| HoldBudget { number, packets };
        for _ in 0..3 {
            assert!(held.add(one(1, [1, 65])) && held.add(one(2, [1, 0])));
        }
        assert!(!held.add(one(10, [1, 65])), "the session does not exist");
        assert_eq!((held.spent[0], held.spent[1], held.spent[65]), (0, 6, 3));
        assert!(held.is_spent(&budget(1, 6)) && !held.is_spent(&budget(1, 7)));
        assert!(held.is_spent(&budget(2, 0)) && !held.is_spent(&budget(1000, 0)));
        held.set_packets(SessionIndex(1), 1);
        assert_eq!((held.spent[1], held.spent[65]), (4, 1));
        held.remove(SessionIndex(2));
        assert_eq!((held.spent[1], held.spent[65]), (1, 1));
        held.poll(|_| BufferDecision::Resume, |_, _| ());
        assert!(held.spent.iter().all(|spent| *spent == 0));
    }
}
