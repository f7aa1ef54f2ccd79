//! Finds sessions, for requests, for people and for the trace of packets.

use std::net::IpAddr;

use fastlane_pfcp::{Message, MessageType};

use super::Sessions;
use crate::rules::layout::key::UserKey;
use crate::session::{InstanceId, Session, SessionId};
use crate::store::subscriber;

impl Sessions {
    /// The answer to a request about a session that is not there, or not the one's who asks.
    #[must_use]
    pub fn unknown(message: &Message<'_>) -> Vec<u8> {
        let answer = MessageType(message.header.message_type.0.wrapping_add(1));
        super::request::unknown_session(message, answer)
    }

    /// The session in a place.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<Session> {
        self.store.get(id)
    }

    /// The places of all sessions, in order.
    pub fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.ids_from(0)
    }

    /// Those from a place on: to go on where one was interrupted.
    pub fn ids_from(&self, place: u32) -> impl Iterator<Item = SessionId> {
        self.store.places(place).filter(|(_, record)| record.is_live()).map(|(id, _)| id)
    }

    /// All sessions, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = Session> {
        self.ids().filter_map(|id| self.get(id))
    }

    /// The session of one of our SEIDs.
    #[must_use]
    pub fn find(&self, seid: u64) -> Option<Session> {
        let id = SessionId(seid as u32);
        let record = self.store.record(id)?;
        if record.seid == seid && record.is_live() { self.store.get(id) } else { None }
    }

    /// The session that has a user's address in a network instance.
    #[must_use]
    pub fn find_user(&self, instance: InstanceId, address: IpAddr) -> Option<SessionId> {
        self.published.user(match address {
            IpAddr::V4(address) => UserKey::v4(instance, address),
            IpAddr::V6(address) => UserKey::v6(instance, address),
        })
    }

    /// The session that a tunnel of ours leads to.
    #[must_use]
    pub fn find_tunnel(&self, teid: u32) -> Option<SessionId> {
        super::change::owner_of(&self.store, &self.published, self.shape, teid)
    }

    /// The sessions of a subscriber. All records are looked at: for people.
    pub fn find_supi<'a>(&'a self, supi: &'a str) -> impl Iterator<Item = Session> + 'a {
        let hash = subscriber(supi);
        let places = self.store.places(0);
        let places = places.filter(move |(_, it)| it.is_live() && it.subscriber == hash);
        let sessions = places.filter_map(|(id, _)| self.get(id));
        sessions.filter(move |session| session.supi.as_deref() == Some(supi))
    }
}
