//! Rules that lanes receive before they are committed.
//!
//! The last report of a URR that a request removes is in the response, which is committed with the
//! session. Packets counted after that report would be in no report. So the lanes first receive the
//! rules without that URR. If the process is killed in between, its successor publishes what the
//! record says.

use super::Sessions;
use crate::session::{Session, Urr};
use crate::time::Now;

impl Sessions {
    /// Ends counting for URRs that are about to be removed, if they have traffic. Afterwards the
    /// lanes use the rules of `session`, unless publishing failed.
    pub(super) fn end_counting(&mut self, session: &Session, removed: &[Urr], now: Now) {
        // Removed keys and state slots stay until the session is committed.
        if self.has_traffic(removed, now) && self.published.publish(None, session).is_ok() {
            self.wait_for_lanes();
        }
    }

    /// Publishes the stored session again if lanes already received a version that was not stored.
    pub(super) fn fall_back(&mut self, ahead: &Session, kept: &Session) {
        let published = self.published.rules(ahead.id).map(|rules| rules.version());
        if published != Some(ahead.version as u32) {
            return;
        }
        // Their owner frees the state slots.
        let (urrs, qers) = (kept.urrs.clone(), kept.qers.clone());
        let ahead = Session { urrs, qers, ..ahead.clone() };
        if let Err(error) = self.published.publish(Some(&ahead), kept) {
            tracing::error!("session {}: {error}", kept.id.0);
        }
    }
}
