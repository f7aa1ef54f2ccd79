//! Responses to session requests (TS 29.244 clauses 7.5.3, 7.5.5 and 7.5.7).

use std::net::IpAddr;

use fastlane_pfcp::ie::{self, FSeid, FTeid, UeIpAddress};
use fastlane_pfcp::{Cause, Header, IeType, MessageType, Writer};

use super::draft::Created;
use super::refusal::Refusal;
use crate::pfcp::NodeName;

/// Header fields of a session response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) message_type: MessageType,
    /// CP SEID of the session; 0 if it is unknown.
    pub(super) seid: u64,
    pub(super) sequence: u32,
    /// Our Node ID, for an establishment response.
    pub(super) node: Option<&'a NodeName>,
}

impl Answer<'_> {
    /// Returns a response that refuses the request.
    pub(super) fn refused(self, refusal: &Refusal) -> Vec<u8> {
        self.write(refusal.cause, |w| {
            w.maybe(refusal.offending.map(|ie| ie::OffendingIe(ie.0)).as_ref());
            w.maybe(refusal.failed.as_ref());
        })
    }

    /// Returns a response with `cause` and the IEs that `rest` appends.
    pub(super) fn write(self, cause: Cause, rest: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        let header = Header::session(self.message_type, self.seid, self.sequence);
        Writer::new(&mut bytes).message(header, |w| {
            w.maybe(self.node.map(node_id).as_ref());
            w.put(&cause);
            rest(w);
        });
        bytes
    }
}

fn node_id(name: &NodeName) -> ie::NodeId<'_> {
    match name {
        NodeName::V4(address) => ie::NodeId::V4(*address),
        NodeName::V6(address) => ie::NodeId::V6(*address),
        NodeName::Name(labels) => ie::NodeId::Name(labels),
    }
}

/// Returns our F-SEID, in the address family of the request.
pub(super) fn up_seid(seid: u64, local: IpAddr) -> FSeid {
    match local {
        IpAddr::V4(address) => FSeid { seid, v4: Some(address), v6: None },
        IpAddr::V6(address) => FSeid { seid, v4: None, v6: Some(address) },
    }
}

/// Appends Created PDR and Updated PDR with the allocated F-TEID and UE IP address.
pub(super) fn created(w: &mut Writer<'_>, all: &[Created]) {
    for it in all {
        let group = if it.is_update { IeType::UPDATED_PDR } else { IeType::CREATED_PDR };
        w.group(group, |w| {
            w.put(&ie::PdrId(it.pdr));
            if let Some(tunnel) = it.tunnel {
                let (teid, v4, v6) = (tunnel.teid, tunnel.v4, tunnel.v6);
                w.put(&FTeid { teid, v4, v6, ..FTeid::default() });
            }
            if let Some((user, is_destination)) = it.user {
                let (v4, v6) = (user.v4, user.v6.map(|(prefix, _)| prefix));
                w.put(&UeIpAddress { v4, v6, is_destination, ..UeIpAddress::default() });
            }
        });
    }
}
