//! TEIDs that two control planes choose: they are unique in the UPF, so one of the two is refused.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::session::SessionIndex;
use crate::store::Store;

/// Maximum number of log messages.
const LOGGED: usize = 64;

/// A TEID that a request chooses and another session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TeidConflict {
    pub(super) teid: u32,
    /// Session that has it.
    pub(super) owner: SessionIndex,
}

/// Conflicts that were logged: the SMF that is refused, and that which has the TEID.
#[derive(Debug, Default)]
pub(super) struct TeidConflicts(BTreeSet<[IpAddr; 2]>);

impl TeidConflicts {
    /// Logs a conflict of a request of the SMF at `asks`, once for two SMFs.
    pub(super) fn log(&mut self, store: &Store, conflict: TeidConflict, asks: IpAddr) {
        if let Some(message) = self.message(store, conflict, asks) {
            tracing::warn!("{message}");
        }
    }

    /// Returns the message to log, if any.
    fn message(&mut self, store: &Store, conflict: TeidConflict, asks: IpAddr) -> Option<String> {
        let TeidConflict { teid, owner } = conflict;
        let owner = store.get(owner)?;
        let (has, seid) = (owner.cp_fseid.address, owner.seid);
        let is_new = self.0.len() < LOGGED && self.0.insert([asks, has]);
        is_new.then(|| {
            format!(
                "a session of the SMF at {asks} is refused: TEID {teid:#x}, its choice, is that of \
                 session {seid:#x} of the SMF at {has}; TEIDs are unique in the UPF: give the SMFs \
                 separate ranges, or let the UPF choose (app.teid: upf)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fastlane_pfcp::ie::{self, FSeid, FTeid, FailedRuleId};
    use fastlane_pfcp::{Header, MessageType, Writer};

    use super::*;
    use crate::pfcp::sessions::tests::{N3, SessionTestbed, access, far_up, pdr};

    /// Returns an establishment of the SMF at 10.9.0.`last` that chooses the TEID.
    fn choosing(sequence: u32, last: u8, teid: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = Header::session(MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, sequence);
        Writer::new(&mut bytes).message(header, |w| {
            let address = Ipv4Addr::new(10, 9, 0, last);
            w.put(&ie::NodeId::V4(address));
            w.put(&FSeid { seid: 1, v4: Some(address), v6: None });
            let own = FTeid { teid, v4: Some(N3), ..FTeid::default() };
            pdr(w, 1, 1, &|w| access(w, &own), &|_| {});
            far_up(w, 1);
        });
        bytes
    }

    /// The second of two SMFs that count from 1 is told, and so is the operator, once.
    #[test]
    fn a_teid_that_another_session_has_is_refused_and_both_smfs_are_named() {
        const TEID: u32 = 0x5_0001;
        let mut world = SessionTestbed::new();
        let first = world.ask(&choosing(1, 1, TEID)).up.unwrap().seid;
        let refused = (73, Some(21), Some(FailedRuleId::Pdr(1)));
        for (sequence, last) in [(2, 7), (3, 8), (4, 8)] {
            assert_eq!(world.ask(&choosing(sequence, last, TEID)).why(), refused);
        }
        assert_eq!(world.sessions.conflicts.0.len(), 2, "each pair of SMFs is logged");
        let conflict = TeidConflict { teid: TEID, owner: world.only().id };
        let (store, conflicts) = (&world.sessions.store, &mut world.sessions.conflicts);
        let mut message =
            |last| conflicts.message(store, conflict, Ipv4Addr::new(10, 9, 0, last).into());
        assert_eq!(message(8), None, "and only once");
        let text = message(9).unwrap();
        for part in ["10.9.0.9", "10.9.0.1", "0x50001", &format!("{first:#x}"), "separate ranges"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
