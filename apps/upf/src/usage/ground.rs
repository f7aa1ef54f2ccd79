//! Backend of usage reporting.

use std::net::{IpAddr, SocketAddr};

use super::meter::Meter;
use crate::rules::layout::counter_slots::{
    DOWNLINK_OCTETS, DOWNLINK_PACKETS, EVENTS, LAST, UPLINK_OCTETS, UPLINK_PACKETS, WORDS, event,
};
use crate::rules::layout::message::SessionEvent;
use crate::session::{Session, SessionId, Urr};
use crate::time::Now;

/// Event bits in the word of events.
const EVENT_BITS: u64 = 0xFFFF;

/// Access to the state slots that lanes write.
pub trait Lines {
    /// Returns the words of a state slot; zeros if it does not exist.
    fn line(&self, line: u32) -> [u64; WORDS];
}

/// Access to stored and published sessions, and to the events that lanes raise.
pub trait Ground: Lines {
    /// Returns the number of session indices.
    fn capacity(&self) -> u32;

    /// Returns the session with an index, unless it was removed.
    fn session(&self, id: SessionId) -> Option<Session>;

    /// Returns a version that no session has had.
    fn next_version(&mut self) -> u64;

    /// Commits and publishes a session. A committed session survives the death of this process.
    ///
    /// # Errors
    /// There is no space; nothing has changed then.
    fn commit(&mut self, session: &Session, now: Now) -> Result<(), String>;

    /// Returns true if lanes have this version of a session. A version may be committed and not
    /// published because the process was killed or a table was full.
    fn is_published(&self, session: &Session) -> bool;

    /// Returns the destination of requests about a session, and our address to send from.
    fn way(&self, session: &Session) -> (SocketAddr, Option<IpAddr>) {
        (SocketAddr::new(session.control.address, fastlane_pfcp::PORT), None)
    }

    /// Calls `visit` for each of `count` sessions from `from` on with pending events, with the
    /// value for [`done`](Self::done).
    fn raised(&self, from: u32, count: u32, visit: &mut dyn FnMut(SessionId, u64));

    /// Marks the events of a session up to `seen` as handled.
    fn done(&mut self, id: SessionId, seen: u64);
}

impl Meter {
    /// Creates a meter from the words of a state slot. Only events of this version count.
    #[must_use]
    pub fn of(words: [u64; WORDS], version: u64) -> Self {
        let is_of_now = words[EVENTS] >> 32 == version & 0xFFFF_FFFF;
        Self {
            counts: [UPLINK_OCTETS, UPLINK_PACKETS, DOWNLINK_OCTETS, DOWNLINK_PACKETS]
                .map(|word| words[word]),
            last: words[LAST],
            events: if is_of_now { words[EVENTS] & EVENT_BITS } else { 0 },
            first: None,
        }
    }

    /// Reads the meter of a URR.
    #[must_use]
    pub fn read<L: Lines + ?Sized>(lines: &L, urr: &Urr, version: u64) -> Self {
        Self::of(lines.line(urr.progress.line), version)
    }

    /// Adds the time of the first packet from a lane message about this slot.
    pub(super) fn told(self, line: u32, hint: Option<&SessionEvent>) -> Self {
        let is_start = |it: &&SessionEvent| it.line == line && it.events & event::START != 0;
        let first = hint.filter(is_start).map(|hint| hint.at);
        Self { first, ..self }
    }
}
