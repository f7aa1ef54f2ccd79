//! Heartbeats (TS 29.244 clause 6.2.2): schedule, procedure, and detection of restarted and silent
//! peers.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use fastlane_pfcp::Message;
use fastlane_pfcp::ie::RecoveryTimeStamp;

use super::association_server::{Removal, RemovalScope, RemovalStep};
use super::{
    Discarded, Node, NodeContext, RequestPath, association_server, node_messages, peer_search,
    smf_set,
};
use crate::pfcp::Tag;
use crate::time::{Now, SECOND};

/// Handles a heartbeat request (clause 6.2.2). The peer needs no association. It gets a
/// response even if its recovery time stamp is missing.
pub(super) fn heartbeat(cx: &mut NodeContext<'_>, path: RequestPath, message: &Message<'_>) {
    match message.group().need() {
        Ok(RecoveryTimeStamp(recovery)) => heard(cx, path.from.ip(), recovery),
        Err(_) => cx.node.statistics.discard(Discarded::MissingIe),
    }
    let bytes = node_messages::heartbeat(message.header, &cx.node.identity);
    cx.node.count_answer_of(&bytes);
    cx.out.send(Some(path.local), path.from, bytes);
}

/// Handles the recovery time stamp of a peer address. A stamp newer than that of the
/// association setup means that the peer restarted and lost its sessions (TS 23.527 clause
/// 4.3).
fn heard(cx: &mut NodeContext<'_>, address: IpAddr, recovery: u32) {
    for index in meant(cx.node, address, recovery) {
        heard_of(cx, index, recovery);
    }
}

/// Returns the associations at an address that a recovery time stamp applies to. Several
/// control planes may share an address. An unknown stamp does not tell which of them restarted.
fn meant(node: &Node, address: IpAddr, recovery: u32) -> Vec<u16> {
    let all = node.peers.at(address).map(|it| (it.peer.index, it.peer.recovery));
    let mut all: Vec<(u16, u32)> = all.collect();
    let is_one = all.windows(2).all(|pair| pair[0].1 == pair[1].1);
    if !is_one {
        all.retain(|(_, known)| *known == recovery);
    }
    all.into_iter().map(|(index, _)| index).collect()
}

fn heard_of(cx: &mut NodeContext<'_>, index: u16, recovery: u32) {
    let Some(found) = cx.node.peers.get(index).filter(|found| !found.is_ending) else { return };
    let (known, is_up) = (found.peer.recovery, found.peer.is_up);
    let has_survivors = smf_set::survivors(cx.node, found).next().is_some();
    if is_newer(recovery, known) && has_survivors {
        // Its sessions are those of its SMF set, which has not restarted.
        tracing::info!("{} has restarted: its SMF set has its sessions", found.peer.node_id);
        let address = found.peer.address.ip();
        let changed = cx.node.peers.set_recovery(index, cx.now, recovery);
        cx.node.check(changed);
        cx.node.initiations.restarted(cx.now, address);
    } else if is_newer(recovery, known) && !cx.node.is_removing(index) {
        tracing::info!("{} has restarted: removing its sessions", found.peer.node_id);
        let (which, then) = (RemovalScope::All, RemovalStep::Restored(recovery));
        let removal = Removal { index, which, then, asked: None, from: 0 };
        let begun = association_server::begin_removal(cx, removal);
        cx.node.check(begun);
    }
    if !is_up {
        let changed = cx.node.peers.set_down(index, None);
        cx.node.check(changed);
        cx.node.statistics.associations_up += 1;
        cx.node.drain.retry(index);
    }
}

/// Sends a heartbeat request before its time, unless one is pending or the peer was heard in the
/// last N1 times T1.
pub(super) fn probe(cx: &mut NodeContext<'_>, index: u16) {
    let since = cx.now.monotonic.saturating_sub(cx.node.life);
    if cx.node.heartbeats.hasten(cx.now, index, since) {
        ask_whether_there(cx, index);
    }
}

/// Sends a heartbeat request.
pub(super) fn ask_whether_there(cx: &mut NodeContext<'_>, index: u16) {
    let Some(found) = cx.node.peers.get(index) else { return };
    let (to, local) = (found.peer.address, found.peer.local);
    if !peer_search::send_heartbeat(cx, to, local, Tag::Heartbeat(index)) {
        // It is sent again after one period.
        cx.node.heartbeats.finish(index);
    }
}

/// Handles a heartbeat response.
pub(super) fn handle_response(cx: &mut NodeContext<'_>, index: u16, message: &Message<'_>) {
    cx.node.heartbeats.answered(cx.now, index);
    match message.group().need() {
        Ok(RecoveryTimeStamp(recovery)) => {
            let Some(found) = cx.node.peers.get(index) else { return };
            let (address, known) = (found.peer.address.ip(), found.peer.recovery);
            let is_its = meant(cx.node, address, recovery).contains(&index);
            heard_of(cx, index, if is_its { recovery } else { known });
        }
        Err(_) => cx.node.statistics.discard(Discarded::MissingIe),
    }
}

/// Handles a peer that did not respond to N1 heartbeats. It is sought at its other addresses first.
pub(super) fn handle_silence(cx: &mut NodeContext<'_>, index: u16) {
    if !peer_search::search(cx, index) {
        lost(cx, index);
    }
}

/// Handles a peer that is silent at all its addresses.
pub(super) fn lost(cx: &mut NodeContext<'_>, index: u16) {
    cx.node.heartbeats.finish(index);
    let is_removing = cx.node.is_removing(index);
    let found = cx.node.peers.get(index).filter(|found| found.peer.is_up && !is_removing);
    let Some(found) = found else { return };
    let keep_s = cx.node.settings.n4.keep_sessions_s;
    let has_survivors = smf_set::survivors(cx.node, found).next().is_some();
    if !has_survivors {
        tracing::warn!("{} does not answer: its sessions stay for {keep_s} s", found.peer.node_id);
    }
    cx.node.statistics.associations_lost += 1;
    if has_survivors {
        smf_set::stand_in(cx, index);
    }
    if keep_s == 0 && !has_survivors {
        let ended = association_server::end(cx, index, None);
        cx.node.check(ended);
    } else {
        let changed = cx.node.peers.set_down(index, Some(cx.now.monotonic));
        cx.node.check(changed);
    }
}

/// Ends associations that have been down for too long, and those whose end began before this
/// process started.
pub(super) fn expire(cx: &mut NodeContext<'_>) {
    while let Some((at, index)) = next_end(cx.node) {
        if at > cx.now.monotonic || check_end(cx, index).is_none() {
            return;
        }
    }
}

fn check_end(cx: &mut NodeContext<'_>, index: u16) -> Option<()> {
    let ended = association_server::end(cx, index, None);
    cx.node.check(ended).map(|_| ())
}

/// Returns the time at which the next association ends if its peer stays silent.
pub(super) fn expiry(node: &Node) -> Option<u64> {
    next_end(node).map(|(at, _)| at)
}

fn next_end(node: &Node) -> Option<(u64, u16)> {
    let keep = node.settings.n4.keep_sessions_s.saturating_mul(SECOND);
    let troubled = node.peers.troubled().filter(|found| !node.is_removing(found.peer.index));
    let ends = troubled.filter_map(|found| match found.down {
        _ if found.is_ending => Some((0, found.peer.index)),
        Some(_) => smf_set::silent_since(node, found)
            .map(|silent| (silent.saturating_add(keep), found.peer.index)),
        None => None,
    });
    ends.min()
}

/// Returns true if a time stamp is later than another. Time stamps wrap (RFC 1982).
pub(super) const fn is_newer(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

/// Heartbeat schedule of all associations, by association index.
#[derive(Debug)]
pub(super) struct Heartbeats {
    period: u64,
    due: BTreeSet<(u64, u16)>,
    places: HashMap<u16, Beat>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    due: u64,
    is_asked: bool,
    /// Number of alternative addresses with a pending heartbeat.
    sought: u16,
    /// Time of the last response.
    heard: u64,
}

impl Heartbeats {
    /// Creates a schedule with one heartbeat per peer every `period` nanoseconds.
    #[must_use]
    pub(super) fn new(period: u64) -> Self {
        Self { period: period.max(1), due: BTreeSet::new(), places: HashMap::new() }
    }

    /// Starts heartbeats to a peer. The first one is due after one period.
    pub(super) fn begin(&mut self, now: Now, index: u16) {
        self.end(index);
        let due = now.monotonic.saturating_add(self.period);
        self.places.insert(index, Beat { due, is_asked: false, sought: 0, heard: now.monotonic });
        self.due.insert((due, index));
    }

    /// Stops heartbeats to a peer.
    pub(super) fn end(&mut self, index: u16) {
        if let Some(beat) = self.places.remove(&index) {
            self.due.remove(&(beat.due, index));
        }
    }

    /// Ends the current heartbeat, which was answered or given up.
    pub(super) fn finish(&mut self, index: u16) {
        if let Some(beat) = self.places.get_mut(&index) {
            (beat.is_asked, beat.sought) = (false, 0);
        }
    }

    /// Notes that heartbeats were sent to `addresses` alternative addresses of a peer. Returns
    /// false if that is none. The current heartbeat goes on.
    pub(super) fn begin_search(&mut self, index: u16, addresses: u16) -> bool {
        let beat = self.places.get_mut(&index).filter(|_| addresses != 0);
        beat.is_some_and(|beat| {
            (beat.is_asked, beat.sought) = (true, addresses);
            true
        })
    }

    /// Returns true if a peer is sought at its alternative addresses.
    pub(super) fn is_searching(&self, index: u16) -> bool {
        self.places.get(&index).is_some_and(|beat| beat.sought != 0)
    }

    /// Notes that an alternative address is silent. Returns true if it was the last one.
    pub(super) fn is_search_over(&mut self, index: u16) -> bool {
        let Some(beat) = self.places.get_mut(&index).filter(|beat| beat.sought != 0) else {
            return false;
        };
        beat.sought -= 1;
        beat.sought == 0
    }

    /// Ends the current heartbeat, which was answered, and notes the time.
    pub(super) fn answered(&mut self, now: Now, index: u16) {
        self.finish(index);
        if let Some(beat) = self.places.get_mut(&index) {
            beat.heard = now.monotonic;
        }
    }

    /// Returns true if a heartbeat must be sent now to a peer that was not heard after `since`. The
    /// next one is due one period later.
    fn hasten(&mut self, now: Now, index: u16, since: u64) -> bool {
        let silent = |beat: &&mut Beat| !beat.is_asked && beat.heard <= since;
        let Some(beat) = self.places.get_mut(&index).filter(silent) else { return false };
        self.due.remove(&(beat.due, index));
        beat.is_asked = true;
        beat.due = now.monotonic.saturating_add(self.period);
        self.due.insert((beat.due, index));
        true
    }

    /// Returns a peer whose heartbeat is due; call it until it returns `None`. A peer with a
    /// pending heartbeat is skipped for one period.
    pub(super) fn next(&mut self, now: Now) -> Option<u16> {
        loop {
            let &(due, index) = self.due.first()?;
            if due > now.monotonic {
                return None;
            }
            self.due.pop_first();
            let Some(beat) = self.places.get_mut(&index) else { continue };
            beat.due = now.monotonic.saturating_add(self.period);
            self.due.insert((beat.due, index));
            if !std::mem::replace(&mut beat.is_asked, true) {
                return Some(index);
            }
        }
    }

    /// Returns the time of the next heartbeat.
    #[must_use]
    pub(super) fn deadline(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic: u64) -> Now {
        Now { monotonic, real: 0 }
    }

    #[test]
    fn a_peer_is_asked_early_if_it_was_not_heard_for_a_time_and_is_not_being_asked() {
        let mut beats = Heartbeats::new(100);
        beats.begin(at(0), 3);
        assert!(!beats.hasten(at(50), 4, 20), "there is no such peer");
        assert!(beats.hasten(at(50), 3, 0));
        assert!(!beats.hasten(at(51), 3, 40), "it is being asked");
        assert_eq!((beats.next(at(149)), beats.deadline()), (None, Some(150)));
        beats.answered(at(52), 3);
        assert!(!beats.hasten(at(60), 3, 51), "it was heard");
        assert!(beats.hasten(at(90), 3, 52));
    }

    #[test]
    fn each_is_asked_once_a_period_and_not_while_it_is_being_asked() {
        let mut beats = Heartbeats::new(100);
        beats.begin(at(0), 3);
        beats.begin(at(50), 4);
        assert_eq!((beats.next(at(99)), beats.deadline()), (None, Some(100)));
        assert_eq!((beats.next(at(100)), beats.next(at(100))), (Some(3), None));
        assert_eq!(beats.next(at(150)), Some(4));
        beats.finish(4);
        assert_eq!((beats.next(at(200)), beats.next(at(250))), (None, Some(4)));
        beats.finish(3);
        assert_eq!(beats.next(at(300)), Some(3));
        beats.end(3);
        beats.end(4);
        assert_eq!((beats.next(at(1000)), beats.deadline()), (None, None));
    }
}
