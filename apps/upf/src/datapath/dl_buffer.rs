//! Downlink buffering: the sessions for which a lane holds packets. The lane polls some of them in
//! each turn for changed rules and then resumes their packets. No message is needed.

use fastlane::HoldKey;

use crate::rules::layout::session_rules::Rules;
use crate::session::SessionIndex;

/// Sessions polled per turn.
const POLLED_PER_TURN: usize = 16;
/// Maximum number of sessions for which a lane holds packets.
pub(crate) const MAX_SESSIONS: usize = 65_536;

/// A session with held packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferedSession {
    /// Session index.
    pub(crate) session: SessionIndex,
    /// Lower 32 bits of the rules' version when the last packet was held.
    pub(crate) version: u32,
    /// Time when the first packet was held, in ns of `CLOCK_MONOTONIC`.
    pub(crate) since: u64,
    /// Time until which packets are held, in ns of `CLOCK_MONOTONIC`.
    pub(crate) until: u64,
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
}

impl BufferedSession {
    /// Decides about the held packets by the current rules. Rules of another version decide again,
    /// unless they discard held packets.
    pub(crate) fn look(&self, rules: Option<&Rules>, now: u64) -> BufferDecision {
        match rules {
            None => BufferDecision::Discard,
            Some(rules) if rules.gives_up(self.version) => BufferDecision::Discard,
            Some(rules) if rules.version() != self.version => BufferDecision::Resume,
            Some(_) if self.until <= now => BufferDecision::Discard,
            Some(_) => BufferDecision::Hold,
        }
    }
}

/// All sessions of a lane with held packets.
#[derive(Clone, Debug)]
pub(crate) struct DlBuffer {
    sessions: Vec<BufferedSession>,
    /// By session: 1 + index in `sessions`, or 0.
    places: Vec<u32>,
    next: usize,
}

impl DlBuffer {
    /// Creates an empty buffer for `sessions` sessions.
    pub(crate) fn new(sessions: usize) -> Self {
        let most = MAX_SESSIONS.min(sessions);
        Self { sessions: Vec::with_capacity(most), places: vec![0; sessions], next: 0 }
    }

    /// Returns true if nothing is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns the index of a session in `sessions`.
    #[inline]
    fn place(&self, session: SessionIndex) -> Option<usize> {
        Some(self.places.get(session.0 as usize)?.checked_sub(1)? as usize)
    }

    /// Returns a session that has held packets.
    #[inline]
    pub(crate) fn get(&self, session: SessionIndex) -> Option<&BufferedSession> {
        self.sessions.get(self.place(session)?)
    }

    /// Records that a packet of a session is held; false if too many sessions are.
    pub(crate) fn add(&mut self, held: BufferedSession) -> bool {
        if let Some(place) = self.place(held.session) {
            if let Some(before) = self.sessions.get_mut(place) {
                before.version = held.version;
            }
            return true;
        }
        let Some(place) = self.places.get_mut(held.session.0 as usize) else { return false };
        if self.sessions.len() == self.sessions.capacity() {
            return false;
        }
        self.sessions.push(held);
        *place = self.sessions.len() as u32;
        true
    }

    /// Removes a session.
    pub(crate) fn remove(&mut self, session: SessionIndex) {
        if let Some(place) = self.place(session) {
            self.forget(place);
        }
    }

    fn forget(&mut self, place: usize) {
        let gone = self.sessions.swap_remove(place);
        for (session, value) in [
            (self.sessions.get(place).map(|held| held.session), place as u32 + 1),
            (Some(gone.session), 0),
        ] {
            let session = session.map_or(usize::MAX, |session| session.0 as usize);
            if let Some(word) = self.places.get_mut(session) {
                *word = value;
            }
        }
    }

    /// Polls up to 16 sessions, round robin. `look` decides; decisions other than `Hold` are passed
    /// to `tell` with the key, and the session is removed.
    pub(crate) fn look(
        &mut self,
        mut look: impl FnMut(&BufferedSession) -> BufferDecision,
        mut on_decision: impl FnMut(HoldKey, BufferDecision),
    ) {
        for _ in 0..POLLED_PER_TURN.min(self.sessions.len()) {
            if self.next >= self.sessions.len() {
                self.next = 0;
            }
            let Some(held) = self.sessions.get(self.next).copied() else { return };
            match look(&held) {
                BufferDecision::Hold => self.next += 1,
                done => {
                    self.forget(self.next);
                    if let Some(key) = HoldKey::new(held.session.0) {
                        on_decision(key, done);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_looked_at_in_turn() {
        let mut held = DlBuffer::new(1000);
        let one = |session| BufferedSession {
            session: SessionIndex(session),
            version: 1,
            since: 0,
            until: 9,
        };
        assert!((0..100).all(|session| held.add(one(session * 7))));
        assert!(held.add(one(7)), "it is there already");
        assert!(!held.add(one(1000)), "there is no such session");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..7 {
            held.look(
                |held| {
                    seen.insert(held.session.0);
                    if held.session.0 == 14 { BufferDecision::Resume } else { BufferDecision::Hold }
                },
                |key, look| assert_eq!((key.number(), look), (14, BufferDecision::Resume)),
            );
        }
        assert_eq!(seen.len(), 100);
        let has = |held: &DlBuffer, session| held.get(SessionIndex(session)).is_some();
        assert!(!has(&held, 14) && has(&held, 7) && !has(&held, 8));
        held.remove(SessionIndex(7));
        assert!(!has(&held, 7) && !held.is_empty());
        (0..100).for_each(|session| held.remove(SessionIndex(session * 7)));
        assert!(held.is_empty() && held.places.iter().all(|place| *place == 0));
    }
}
