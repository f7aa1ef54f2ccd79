//! Rules that lanes are given before they are committed.
//!
//! The last report of a URR that a request removes is in the answer, which is committed with the
//! session. What lanes count after the report is made would be in no report. So they are given the
//! rules without that URR first; whoever comes after a process that is killed here gives them what
//! the record says.

use super::Sessions;
use crate::session::{Session, Urr};
use crate::time::Now;

impl Sessions {
    /// Ends the counting of URRs that are to be removed, if they have traffic: when this is over,
    /// lanes work by the rules of `session`, unless they could not be given them.
    pub(super) fn end_counting(&mut self, session: &Session, removed: &[Urr], now: Now) {
        // Keys that it has no longer, and lines, stay until it is committed.
        if self.has_traffic(removed, now) && self.published.publish(None, session).is_ok() {
            self.wait_for_lanes();
        }
    }

    /// Gives lanes a session as it is after all, if they were given what then was not kept.
    pub(super) fn fall_back(&mut self, ahead: &Session, kept: &Session) {
        let published = self.published.rules(ahead.id).map(|rules| rules.version());
        if published != Some(ahead.version as u32) {
            return;
        }
        // Lines are given back by whoever has taken them.
        let (urrs, qers) = (kept.urrs.clone(), kept.qers.clone());
        let ahead = Session { urrs, qers, ..ahead.clone() };
        if let Err(error) = self.published.publish(Some(&ahead), kept) {
            tracing::error!("session {}: {error}", kept.id.0);
        }
    }
}
