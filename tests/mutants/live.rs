//! What is there: sessions that the UPF has set up for mutants, as its answers say.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{FSeid, FTeid, UeIpAddress};
use fastlane_pfcp::{Cause, IeType, Message, MessageType};

use crate::chance::Chance;

/// As many as are remembered; the oldest are forgotten, which the UPF does when the association
/// ends.
const MOST: usize = 256;

/// A session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) up_seid: u64,
    pub(crate) tunnels: Vec<u32>,
    pub(crate) v4: Option<Ipv4Addr>,
    pub(crate) v6: Option<Ipv6Addr>,
}

/// The sessions that were set up last.
#[derive(Debug, Default)]
pub(crate) struct Live {
    sessions: VecDeque<Session>,
}

impl Live {
    /// Reads an answer of the UPF; whether there is a session more.
    pub(crate) fn learn(&mut self, answer: &Message<'_>) -> bool {
        let group = answer.group();
        let is_there = answer.header.message_type == MessageType::SESSION_ESTABLISHMENT_RESPONSE
            && group.need::<Cause>().is_ok_and(|cause| cause.is_accepted());
        let Some(seid) = group.find::<FSeid>().ok().flatten().filter(|_| is_there) else {
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
        self.sessions.truncate(MOST - 1);
        self.sessions.push_front(session);
        true
    }

    /// One of them, if there is any.
    pub(crate) fn pick(&self, chance: &mut Chance) -> Option<&Session> {
        self.sessions.get(chance.below(self.sessions.len()))
    }

    /// Mostly the number of one of them.
    pub(crate) fn seid(&self, chance: &mut Chance) -> u64 {
        let any = if chance.is_one_in(2) { 0 } else { chance.next() };
        let is_known = !chance.is_one_in(30);
        self.pick(chance).filter(|_| is_known).map_or(any, |session| session.up_seid)
    }

    /// The number of one that is not remembered any more.
    pub(crate) fn take(&mut self, chance: &mut Chance) -> u64 {
        let at = chance.below(self.sessions.len());
        self.sessions.remove(at).map_or_else(|| chance.next(), |session| session.up_seid)
    }
}
