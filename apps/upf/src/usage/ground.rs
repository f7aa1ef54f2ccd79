//! What usage reporting stands on.

use std::net::{IpAddr, SocketAddr};

use super::meter::Meter;
use crate::rules::layout::message::SessionEvent;
use crate::rules::layout::state::{
    DOWNLINK_OCTETS, DOWNLINK_PACKETS, EVENTS, LAST, UPLINK_OCTETS, UPLINK_PACKETS, WORDS, event,
};
use crate::session::{Session, SessionId, Urr};
use crate::time::Now;

/// Bits of the word of events that are events.
const EVENT_BITS: u64 = 0xFFFF;

/// The lines of state that lanes write, as they are now.
pub trait Lines {
    /// The words of a line; zeros when there is no such line.
    fn line(&self, line: u32) -> [u64; WORDS];
}

/// Sessions as they are kept and published, and what lanes say of them.
pub trait Ground: Lines {
    /// How many places for sessions there are.
    fn capacity(&self) -> u32;

    /// The session in a place, unless it is gone.
    fn session(&self, id: SessionId) -> Option<Session>;

    /// A version that no session has had.
    fn next_version(&mut self) -> u64;

    /// Makes this the session that counts, and publishes it. What was committed is kept whenever
    /// this process dies; what was not has not happened.
    ///
    /// # Errors
    /// When there is no room; then nothing has changed.
    fn commit(&mut self, session: &Session, now: Now) -> Result<(), String>;

    /// Whether lanes have this version of a session. It may have been committed by a process that
    /// was then killed, or the tables had no room.
    fn is_published(&self, session: &Session) -> bool;

    /// Where requests about a session go, and the address of ours that they leave from.
    fn way(&self, session: &Session) -> (SocketAddr, Option<IpAddr>) {
        (SocketAddr::new(session.control.address, fastlane_pfcp::PORT), None)
    }

    /// Calls `visit` for each session from a place on, of so many, that has events which were not
    /// dealt with, with what to give to [`done`](Self::done).
    fn raised(&self, from: u32, count: u32, visit: &mut dyn FnMut(SessionId, u64));

    /// Events of a session up to `seen` were dealt with.
    fn done(&mut self, id: SessionId, seen: u64);
}

impl Meter {
    /// A line that was read. Only events under the rules of this version count.
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

    /// The meter of a URR of a session.
    #[must_use]
    pub fn read<L: Lines + ?Sized>(lines: &L, urr: &Urr, version: u64) -> Self {
        Self::of(lines.line(urr.progress.line), version)
    }

    /// With what a lane's message says of this line.
    pub(super) fn told(self, line: u32, hint: Option<&SessionEvent>) -> Self {
        let is_start = |it: &&SessionEvent| it.line == line && it.events & event::START != 0;
        let first = hint.filter(is_start).map(|hint| hint.at);
        Self { first, ..self }
    }
}
