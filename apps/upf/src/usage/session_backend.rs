//! Backend of usage reporting.

use std::net::{IpAddr, SocketAddr};

use crate::rules::layout::counter_slots::WORDS;
use crate::session::{Session, SessionIndex};
use crate::time::Now;

/// Access to the state slots that lanes write.
pub trait StateSlots {
    /// Returns the words of a state slot; zeros if it does not exist.
    fn line(&self, line: u32) -> [u64; WORDS];
}

/// Access to stored and published sessions, and to the events that lanes raise.
pub trait SessionBackend: StateSlots {
    /// Returns the number of session indices.
    fn capacity(&self) -> u32;

    /// Returns the session with an index, unless it was removed.
    fn session(&self, id: SessionIndex) -> Option<Session>;

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
        (SocketAddr::new(session.cp_fseid.address, fastlane_pfcp::PORT), None)
    }

    /// Calls `visit` for each of `count` sessions from `from` on with pending events, with the
    /// value for [`done`](Self::done).
    fn raised(&self, from: u32, count: u32, visit: &mut dyn FnMut(SessionIndex, u64));

    /// Marks the events of a session up to `seen` as handled.
    fn done(&mut self, id: SessionIndex, seen: u64);
}
