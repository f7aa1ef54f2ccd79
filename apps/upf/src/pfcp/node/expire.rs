//! Heartbeat procedure, and detection of restarted and silent peers.

use std::net::IpAddr;

use fastlane_pfcp::ie::RecoveryTimeStamp;
use fastlane_pfcp::{Header, Message, MessageType};

use super::receive::Way;
use super::removal::{Removal, Then, Which};
use super::statistics::Discarded;
use super::{Node, answer};
use crate::pfcp::{Outbox, Request, Tag};
use crate::time::Now;
use crate::time::SECOND;

impl Node {
    /// Handles a heartbeat request (clause 6.2.2). The peer needs no association. It gets a
    /// response even if its recovery time stamp is missing.
    pub(super) fn heartbeat(
        &mut self,
        now: Now,
        way: Way,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        match message.group().need() {
            Ok(RecoveryTimeStamp(recovery)) => self.heard(now, way.from.ip(), recovery, out),
            Err(_) => self.statistics.discard(Discarded::MissingIe),
        }
        let bytes = answer::heartbeat(message.header, &self.identity);
        self.count_answer_of(&bytes);
        out.send(Some(way.local), way.from, bytes);
    }

    /// Handles the recovery time stamp of a peer address. A stamp newer than that of the
    /// association setup means that the peer restarted and lost its sessions (TS 23.527 clause
    /// 4.3).
    fn heard(&mut self, now: Now, address: IpAddr, recovery: u32, out: &mut Outbox) {
        for place in self.meant(address, recovery) {
            self.heard_of(now, place, recovery, out);
        }
    }

    /// Returns the associations at an address that a recovery time stamp applies to. Several
    /// control planes may share an address. An unknown stamp does not tell which of them restarted.
    fn meant(&self, address: IpAddr, recovery: u32) -> Vec<u16> {
        let all = self.peers.at(address).map(|it| (it.peer.place, it.peer.recovery));
        let mut all: Vec<(u16, u32)> = all.collect();
        let is_one = all.windows(2).all(|pair| pair[0].1 == pair[1].1);
        if !is_one {
            all.retain(|(_, known)| *known == recovery);
        }
        all.into_iter().map(|(place, _)| place).collect()
    }

    fn heard_of(&mut self, now: Now, place: u16, recovery: u32, out: &mut Outbox) {
        let Some(found) = self.peers.get(place).filter(|found| !found.is_ending) else { return };
        let (known, is_up) = (found.peer.recovery, found.peer.is_up);
        if is_newer(recovery, known) && !self.is_removing(place) {
            tracing::info!("{} has started again: its sessions are removed", found.peer.node_id);
            let (which, then) = (Which::All, Then::Restored(recovery));
            let removal = Removal { place, which, then, asked: None, from: 0 };
            let begun = self.begin_removal(now, removal, out);
            self.check(begun);
        }
        if !is_up {
            let changed = self.peers.set_down(place, None);
            self.check(changed);
            self.statistics.associations_up += 1;
        }
    }

    /// Sends a heartbeat request.
    pub(super) fn ask_whether_there(&mut self, now: Now, place: u16, out: &mut Outbox) {
        let Some(found) = self.peers.get(place) else { return };
        let (to, local) = (found.peer.address, found.peer.local);
        let sequence = self.requests.sequence();
        let header = Header::node(MessageType::HEARTBEAT_REQUEST, sequence);
        let recovery = RecoveryTimeStamp(self.identity.recovery);
        let bytes = answer::message(header, |to| to.put(&recovery));
        let request = Request { bytes, sequence, to, local, tag: Tag::Heartbeat(place) };
        if !self.send(now, request, out) {
            // It is sent again after one period.
            self.heartbeats.is_over(place);
        }
    }

    /// Handles a heartbeat response.
    pub(super) fn is_there(
        &mut self,
        now: Now,
        place: u16,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        self.heartbeats.is_over(place);
        match message.group().need() {
            Ok(RecoveryTimeStamp(recovery)) => {
                let Some(found) = self.peers.get(place) else { return };
                let (address, known) = (found.peer.address.ip(), found.peer.recovery);
                let is_its = self.meant(address, recovery).contains(&place);
                self.heard_of(now, place, if is_its { recovery } else { known }, out);
            }
            Err(_) => self.statistics.discard(Discarded::MissingIe),
        }
    }

    /// Handles a peer that did not respond to N1 heartbeats.
    pub(super) fn is_not_there(&mut self, now: Now, place: u16, out: &mut Outbox) {
        self.heartbeats.is_over(place);
        let is_removing = self.is_removing(place);
        let found = self.peers.get(place).filter(|found| found.peer.is_up && !is_removing);
        let Some(found) = found else { return };
        let keep_s = self.settings.n4.keep_sessions_s;
        tracing::warn!("{} does not answer: its sessions stay for {keep_s} s", found.peer.node_id);
        self.statistics.associations_lost += 1;
        if keep_s == 0 {
            let ended = self.end(now, place, None, out);
            self.check(ended);
        } else {
            let changed = self.peers.set_down(place, Some(now.monotonic));
            self.check(changed);
        }
    }

    /// Ends associations that have been down for too long, and those whose end began before this
    /// process started.
    pub(super) fn expire(&mut self, now: Now, out: &mut Outbox) {
        while let Some((at, place)) = self.next_end() {
            if at > now.monotonic || self.check_end(now, place, out).is_none() {
                return;
            }
        }
    }

    fn check_end(&mut self, now: Now, place: u16, out: &mut Outbox) -> Option<()> {
        let ended = self.end(now, place, None, out);
        self.check(ended).map(|_| ())
    }

    /// Returns the time at which the next association ends if its peer stays silent.
    pub(super) fn expiry(&self) -> Option<u64> {
        self.next_end().map(|(at, _)| at)
    }

    fn next_end(&self) -> Option<(u64, u16)> {
        let keep = self.settings.n4.keep_sessions_s.saturating_mul(SECOND);
        let troubled = self.peers.troubled().filter(|found| !self.is_removing(found.peer.place));
        let ends = troubled.filter_map(|found| match found.down {
            _ if found.is_ending => Some((0, found.peer.place)),
            Some(down) => Some((down.saturating_add(keep), found.peer.place)),
            None => None,
        });
        ends.min()
    }
}

/// Returns true if a time stamp is later than another. Time stamps wrap (RFC 1982).
pub(super) const fn is_newer(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}
