//! Session lookup, for requests, for the API and for packet traces.

use std::net::IpAddr;

use fastlane_pfcp::{Message, MessageType};

use super::Sessions;
use crate::rules::layout::key::UeKey;
use crate::session::{InstanceId, Session, SessionId};
use crate::store::subscriber;

impl Sessions {
    /// Returns the response to a request for a session that does not exist or belongs to another
    /// control plane.
    #[must_use]
    pub fn unknown(message: &Message<'_>) -> Vec<u8> {
        let answer = MessageType(message.header.message_type.0.wrapping_add(1));
        super::request::unknown_session(message, answer)
    }

    /// Returns the session with an index.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<Session> {
        self.store.get(id)
    }

    /// Returns the indices of all sessions, in order.
    pub fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.ids_from(0)
    }

    /// Returns the session indices from `place` on, to continue an interrupted scan.
    pub fn ids_from(&self, place: u32) -> impl Iterator<Item = SessionId> {
        self.store.places(place).filter(|(_, record)| record.is_live()).map(|(id, _)| id)
    }

    /// Returns all sessions, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = Session> {
        self.ids().filter_map(|id| self.get(id))
    }

    /// Returns the session with one of our SEIDs.
    #[must_use]
    pub fn find(&self, seid: u64) -> Option<Session> {
        let id = SessionId(seid as u32);
        let record = self.store.record(id)?;
        if record.seid == seid && record.is_live() { self.store.get(id) } else { None }
    }

    /// Returns the session with a UE address in a network instance.
    #[must_use]
    pub fn find_user(&self, instance: InstanceId, address: IpAddr) -> Option<SessionId> {
        self.published.user(match address {
            IpAddr::V4(address) => UeKey::v4(instance, address),
            IpAddr::V6(address) => UeKey::v6(instance, address),
        })
    }

    /// Returns the session that owns one of our TEIDs.
    #[must_use]
    pub fn find_tunnel(&self, teid: u32) -> Option<SessionId> {
        super::change::owner_of(&self.store, &self.published, self.shape, teid)
    }

    /// Returns the sessions of a subscriber. It scans all records, so it is for operators only.
    pub fn find_supi<'a>(&'a self, supi: &'a str) -> impl Iterator<Item = Session> + 'a {
        let hash = subscriber(supi);
        let places = self.store.places(0);
        let places = places.filter(move |(_, it)| it.is_live() && it.subscriber == hash);
        let sessions = places.filter_map(|(id, _)| self.get(id));
        sessions.filter(move |session| session.supi.as_deref() == Some(supi))
    }
}
