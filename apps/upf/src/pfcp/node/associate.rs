//! Association procedures that control planes start (TS 29.244 clauses 6.2.6 to 6.2.8), and session
//! set deletion.

use fastlane_pfcp::ie::{
    CpFunctionFeatures, CpPfcpEntityIpAddress, FqCsid, NodeId, PfcpasrspFlags, RecoveryTimeStamp,
};
use fastlane_pfcp::{Cause, Fault, Header, Ie, IeType, Message, Writer};

use super::receive::NO_ASSOCIATION;
use super::removal::{Asked, Removal, Retained, Then, Which};
use super::{Node, answer};
use crate::pfcp::peer::peers::{Given, PeersError, Setup};
use crate::pfcp::{NodeName, Outbox, RequestKey};
use crate::time::Now;

impl Node {
    /// Handles an association setup (table 7.4.4.1-1). It replaces an existing association. Its
    /// sessions are removed, except those that the request retains (clause 6.2.6.2.2).
    pub(super) fn set_up(
        &mut self,
        now: Now,
        asked: Asked,
        message: &Message<'_>,
        out: &mut Outbox,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let (group, way) = (message.group(), asked.way);
        let node_id = NodeName::from(group.need::<NodeId<'_>>()?);
        let RecoveryTimeStamp(recovery) = group.need()?;
        let features = group.find::<CpFunctionFeatures>()?.unwrap_or_default().0;
        let address = (way.from.ip(), self.settings.n4.port).into();
        let setup = Setup { node_id, recovery, address, local: Some(way.local), features };
        let place = self.place(now, &setup.node_id)?;
        let retained = retained(message)?;
        let is_there = self.peers.get(place).is_some();
        let are_kept = is_there && retained.is_some();
        let which = retained.map_or(Which::All, Which::Unless);
        let (then, from) = (Then::Begin(setup, are_kept), if is_there { 0 } else { u32::MAX });
        let removal = Removal { place, which, then, asked: Some(asked), from };
        self.begin_removal(now, removal, out)
    }

    pub(super) fn place(&self, now: Now, node_id: &NodeName) -> Result<u16, Fault> {
        let place = self.peers.place(node_id, now, self.life);
        place.map_err(|_| Fault { cause: Cause::NO_RESOURCES_AVAILABLE, offending: None })
    }

    pub(super) fn accept_setup(&self, request: Header, are_kept: bool) -> Vec<u8> {
        answer::answer(request, &self.identity, Cause::REQUEST_ACCEPTED, |to| {
            self.introduce(to);
            if are_kept {
                to.put(&PfcpasrspFlags::PSREI);
            }
        })
    }

    /// Appends recovery time stamp, features and resources of this node.
    pub(super) fn introduce(&self, to: &mut Writer<'_>) {
        to.put(&RecoveryTimeStamp(self.identity.recovery));
        to.put(&self.identity.features);
        self.identity.put_resources(to);
    }

    /// Creates or replaces an association.
    pub(super) fn begin(
        &mut self,
        now: Now,
        place: u16,
        setup: &Setup,
        given: Option<Given<'_>>,
    ) -> Result<(), Fault> {
        let is_new = self.peers.get(place).is_none();
        self.peers.set_up(place, setup, now, given).map_err(|error| self.system_failure(&error))?;
        self.cancel(place);
        self.heartbeats.begin(now, place);
        self.statistics.associations_up += 1;
        if is_new {
            tracing::info!("association with {} ({}) set up", setup.node_id, setup.address);
        }
        Ok(())
    }

    /// Handles an association update (table 7.4.4.3-1). Only the CP function features are stored.
    /// Release preparation (PARPS, graceful release period) concerns the other direction and is
    /// ignored.
    pub(super) fn update(
        &mut self,
        now: Now,
        key: RequestKey,
        message: &Message<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let group = message.group();
        let place = self.known(&NodeName::from(group.need::<NodeId<'_>>()?))?;
        let features = group.find::<CpFunctionFeatures>()?;
        let (header, identity) = (message.header, &self.identity);
        let bytes = answer::answer(header, identity, Cause::REQUEST_ACCEPTED, |to| {
            to.put(&identity.features);
        });
        let given = Given { key, bytes: &bytes };
        let changed = self.peers.update(place, now, features.map(|it| it.0), given);
        changed.map_err(|error| self.system_failure(&error))?;
        Ok(bytes)
    }

    /// Handles an association release (table 7.4.4.5-1): all its sessions are removed.
    pub(super) fn release(
        &mut self,
        now: Now,
        asked: Asked,
        message: &Message<'_>,
        out: &mut Outbox,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let place = self.known(&NodeName::from(message.group().need::<NodeId<'_>>()?))?;
        if !self.is_removing(place) {
            return self.end(now, place, Some(asked), out);
        }
        // The association already ends for another reason.
        let bytes = self.accept(asked);
        let kept = self.peers.update(place, now, None, Given { key: asked.key, bytes: &bytes });
        kept.map_err(|error| self.system_failure(&error))?;
        Ok(Some(bytes))
    }

    /// Ends an association after its sessions. If the process is killed in between, its successor
    /// continues.
    pub(super) fn end(
        &mut self,
        now: Now,
        place: u16,
        asked: Option<Asked>,
        out: &mut Outbox,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let bytes = asked.map(|asked| (asked.key, self.accept(asked)));
        let given = bytes.as_ref().map(|(key, bytes)| Given { key: *key, bytes });
        self.peers.begin_end(place, now, given).map_err(|error| self.system_failure(&error))?;
        let removal = Removal { place, which: Which::All, then: Then::End, asked, from: 0 };
        self.begin_removal(now, removal, out)
    }

    /// Releases an association whose sessions have been removed.
    pub(super) fn ended(&mut self, now: Now, place: u16, is_asked: bool) -> Result<(), PeersError> {
        if let Some(found) = self.peers.get(place) {
            tracing::info!("association with {} has ended", found.peer.node_id);
            self.initiations.ended(now, found.peer.address.ip());
        }
        self.cancel(place);
        self.peers.release(place)?;
        self.statistics.associations_released += u64::from(is_asked);
        Ok(())
    }

    /// Encodes a response that accepts the request.
    pub(super) fn accept(&self, asked: Asked) -> Vec<u8> {
        answer::answer(asked.header, &self.identity, Cause::REQUEST_ACCEPTED, |_| {})
    }

    /// Cancels heartbeats and pending requests of an association.
    fn cancel(&mut self, place: u16) {
        self.requests.cancel_of_peer(place);
        self.heartbeats.end(place);
    }

    /// Handles a session set deletion (table 7.4.6.1-1): removes all sessions of the association
    /// with one of the FQ-CSIDs.
    pub(super) fn remove_set(
        &mut self,
        now: Now,
        asked: Asked,
        message: &Message<'_>,
        out: &mut Outbox,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let group = message.group();
        let place = self.known(&NodeName::from(group.need::<NodeId<'_>>()?))?;
        // All FQ-CSIDs are validated before a session is removed.
        let all = group.all::<FqCsid<'_>>().take(SETS).map(|set| {
            let mut octets = Vec::new();
            set?.encode(&mut octets);
            Ok(octets)
        });
        let which = Which::Of(all.collect::<Result<_, Fault>>()?);
        let removal = Removal { place, which, then: Then::Answer, asked: Some(asked), from: 0 };
        self.begin_removal(now, removal, out)
    }

    /// Returns the association index of a Node ID.
    fn known(&self, node_id: &NodeName) -> Result<u16, Fault> {
        self.peers.find(node_id).map(|found| found.peer.place).ok_or(NO_ASSOCIATION)
    }

    pub(super) fn system_failure(&mut self, error: &PeersError) -> Fault {
        self.statistics.table_failed += 1;
        tracing::error!("{error}");
        Fault { cause: Cause::SYSTEM_FAILURE, offending: None }
    }
}

/// Maximum number of FQ-CSIDs in a request: one for each kind of node (table 7.4.6.1-1 has five).
const SETS: usize = 16;
/// Maximum number of CP addresses with retained sessions.
const ADDRESSES: usize = 64;

/// Returns the sessions to retain when an association is set up again (table 7.4.4.1-2), if any.
fn retained(message: &Message<'_>) -> Result<Option<Retained>, Fault> {
    let ie_type = IeType::PFCP_SESSION_RETENTION_INFORMATION;
    let Some(group) = message.group().group(ie_type) else { return Ok(None) };
    let all = group.all::<CpPfcpEntityIpAddress>().take(ADDRESSES);
    Ok(Some(Retained { of: all.collect::<Result<_, Fault>>()? }))
}
