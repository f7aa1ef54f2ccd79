//! Sessions that the UPF has established for mutants, learned from its responses.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{FSeid, FTeid, UeIpAddress};
use fastlane_pfcp::{Cause, IeType, Message, MessageType};

use crate::random::Random;

/// Maximum number of remembered sessions. The UPF deletes forgotten ones with their association.
const MAX_SESSIONS: usize = 256;

/// A session of a mutant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) up_seid: u64,
    pub(crate) tunnels: Vec<u32>,
    pub(crate) v4: Option<Ipv4Addr>,
    pub(crate) v6: Option<Ipv6Addr>,
}

/// The sessions established last.
#[derive(Debug, Default)]
pub(crate) struct LiveSessions {
    sessions: VecDeque<Session>,
}

impl LiveSessions {
    /// Records a response of the UPF. Returns true if it has established a session.
    pub(crate) fn record(&mut self, response: &Message<'_>) -> bool {
        let group = response.group();
        let is_established = response.header.message_type
            == MessageType::SESSION_ESTABLISHMENT_RESPONSE
            && group.need::<Cause>().is_ok_and(|cause| cause.is_accepted());
        let Some(seid) = group.find::<FSeid>().ok().flatten().filter(|_| is_established) else {
            return false;
        };
        let mut session = Session { up_seid: seid.seid, ..Session::default() };
        for created in group.groups(IeType::CREATED_PDR) {
            let tunnels = created.all::<FTeid>().flatten().map(|tunnel| tunnel.teid);
            session.tunnels.extend(tunnels);
            if let Ok(Some(user)) = created.find::<UeIpAddress>() {
                session.v4 = user.v4.or(session.v4);
                session.v6 = user.v6.or(session.v6);
            }
        }
        self.sessions.truncate(MAX_SESSIONS - 1);
        self.sessions.push_front(session);
        true
    }

    /// Returns a random session, if there is one.
    pub(crate) fn pick(&self, random: &mut Random) -> Option<&Session> {
        self.sessions.get(random.below(self.sessions.len()))
    }

    /// Returns an SEID, mostly that of a session.
    pub(crate) fn seid(&self, random: &mut Random) -> u64 {
        let any = if random.is_one_in(2) { 0 } else { random.next() };
        let is_known = !random.is_one_in(30);
        self.pick(random).filter(|_| is_known).map_or(any, |session| session.up_seid)
    }

    /// Forgets a random session and returns its SEID.
    pub(crate) fn take(&mut self, random: &mut Random) -> u64 {
        let at = random.below(self.sessions.len());
        self.sessions.remove(at).map_or_else(|| random.next(), |session| session.up_seid)
    }
}
