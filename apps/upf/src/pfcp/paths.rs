//! GTP-U paths to access nodes and other UPFs, and the end markers that are due on them.
//!
//! A path exists while a FAR of a session uses it. A lane probes it by echo requests (3GPP TS
//! 29.281 clause 7.2.1). After N3 echo requests without response, the failure is reported to the
//! control planes whose sessions use the path (TS 29.244 clause 7.4.5.1).
//!
//! # End markers
//! A lane sends the end marker of a session when a message tells it that the rules have changed,
//! and notes that in its state. The message may be lost, the neighbour may still be unknown, and
//! the sending process may have been replaced. So [`Markers`] reads the lane's state and repeats
//! the message for some time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::associations::association_record::{mapped, unmapped};
use super::{LaneMessage, Outbox};
use crate::config::{Role, Settings};
use crate::rules::layout::message::PathMessage;
use crate::rules::publish::Published;
use crate::session::{Destination, EndMarker, Forwarding, Network, Session, SessionIndex};
use crate::time::{MILLISECOND, Now, SECOND};

/// Maximum number of supervised paths.
pub const PATHS: usize = 4096;
/// Maximum number of echo requests in one call.
const BURST: usize = 64;
/// Interval between two bursts of echo requests, in nanoseconds.
const PAUSE: u64 = 5 * MILLISECOND;

/// Failure or recovery of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEvent {
    /// GTP-U path.
    pub route: Route,
    /// The path has failed; otherwise it has recovered.
    pub has_failed: bool,
    /// Indices of the associations whose sessions use the path.
    pub peers: Vec<u16>,
}

/// All supervised paths.
#[derive(Debug)]
pub struct Paths {
    interfaces: Interfaces,
    /// Interval between echo requests in nanoseconds; none disables supervision.
    period: Option<u64>,
    t3: u64,
    n3: u32,
    paths: HashMap<Route, State>,
    /// Time of the next action for each path.
    due: BTreeSet<(u64, Route)>,
    sequence: u16,
}

/// Supervision state of a path.
#[derive(Clone, Debug, Default)]
struct State {
    /// Number of FARs that use the path, by association index.
    users: BTreeMap<u16, u32>,
    /// Time of the next action, as in `Paths::due`.
    due: u64,
    /// Time of the first echo request of the current probe.
    began: u64,
    /// Sequence number of the echo request without response.
    asked: Option<u16>,
    /// Number of times it was sent.
    sent: u32,
    has_failed: bool,
}

impl Paths {
    /// Creates an empty set of paths.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let period = settings.gtp.probe_s.saturating_mul(SECOND);
        Self {
            interfaces: Interfaces::new(settings),
            period: (period > 0).then_some(period),
            t3: settings.gtp.t3_ms.max(1).saturating_mul(MILLISECOND),
            n3: settings.gtp.n3.max(1),
            paths: HashMap::new(),
            due: BTreeSet::new(),
            sequence: 0,
        }
    }

    /// Updates the paths for a session that was recovered or changed.
    pub fn changed(&mut self, before: Option<&Session>, after: Option<&Session>) {
        if self.period.is_none() {
            return;
        }
        // New paths first, so that a path in both keeps its state.
        for session in after.into_iter().filter(|session| !session.is_deleted) {
            for route in self.interfaces.routes(session) {
                add(&mut self.paths, &mut self.due, session.peer, route);
            }
        }
        for session in before.into_iter().filter(|session| !session.is_deleted) {
            for route in self.interfaces.routes(session) {
                remove(&mut self.paths, &mut self.due, session.peer, route);
            }
        }
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns true if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the paths, each with true if it has failed.
    pub fn iter(&self) -> impl Iterator<Item = (Route, bool)> {
        self.paths.iter().map(|(route, state)| (*route, state.has_failed))
    }

    /// Restarts all probes after a time in which nothing could be sent or received. Failed paths
    /// stay failed until a response arrives.
    pub fn restart(&mut self) {
        for state in self.paths.values_mut() {
            state.asked = None;
        }
    }

    /// Removes all paths, after all sessions are gone.
    pub fn clear(&mut self) {
        self.paths.clear();
        self.due.clear();
    }

    /// Handles an echo response that a lane received. Returns the recovery of a failed path.
    pub fn answered(&mut self, message: &PathMessage) -> Option<PathEvent> {
        let period = self.period?;
        let route = Route { interface: message.interface, remote: unmapped(message.peer) };
        let state = self.paths.get_mut(&route)?;
        if state.asked != Some(message.sequence) {
            return None;
        }
        state.asked = None;
        self.due.remove(&(state.due, route));
        state.due = state.began.saturating_add(period);
        self.due.insert((state.due, route));
        let came_back = std::mem::take(&mut state.has_failed);
        came_back.then(|| state.event(route))
    }

    /// Sends due echo requests. Returns a path that has failed now; call it until it returns
    /// `None`.
    pub fn tick(&mut self, now: Now, out: &mut Outbox) -> Option<PathEvent> {
        let period = self.period?;
        for _ in 0..BURST {
            let &(due, route) = self.due.first()?;
            if due > now.monotonic {
                return None;
            }
            self.due.pop_first();
            let Some(state) = self.paths.get_mut(&route) else { continue };
            let has_ended = state.asked.is_some() && state.sent >= self.n3;
            if has_ended {
                state.asked = None;
                state.due = now.monotonic.max(state.began.saturating_add(period));
            } else {
                if state.asked.is_none() {
                    self.sequence = self.sequence.wrapping_add(1);
                    (state.asked, state.sent) = (Some(self.sequence), 0);
                    state.began = now.monotonic;
                }
                state.sent += 1;
                state.due = now.monotonic.saturating_add(self.t3);
                out.lanes.extend(state.probe(route, &self.interfaces, now));
            }
            self.due.insert((state.due, route));
            if has_ended && !std::mem::replace(&mut state.has_failed, true) {
                return Some(state.event(route));
            }
        }
        None
    }

    /// Returns the time of the next [`tick`](Self::tick), not before the next burst is allowed.
    #[must_use]
    pub fn deadline(&self, now: Now) -> Option<u64> {
        let (due, _) = self.due.first()?;
        Some((*due).max(now.monotonic.saturating_add(PAUSE)))
    }
}

impl State {
    /// Returns the echo request to send.
    fn probe(&self, route: Route, interfaces: &Interfaces, now: Now) -> Option<LaneMessage> {
        let local = interfaces.local(route)?;
        Some(LaneMessage::Probe(PathMessage {
            peer: mapped(route.remote),
            local: mapped(local),
            teid: 0,
            sequence: self.asked?,
            interface: route.interface,
            at: now.monotonic,
        }))
    }

    fn event(&self, route: Route) -> PathEvent {
        let peers = self.users.keys().copied().collect();
        PathEvent { route, has_failed: self.has_failed, peers }
    }
}

fn add(
    paths: &mut HashMap<Route, State>,
    due: &mut BTreeSet<(u64, Route)>,
    peer: u16,
    route: Route,
) {
    if paths.len() >= PATHS && !paths.contains_key(&route) {
        return;
    }
    let state = paths.entry(route).or_insert_with(|| {
        due.insert((0, route)); // at once
        State::default()
    });
    *state.users.entry(peer).or_default() += 1;
}

fn remove(
    paths: &mut HashMap<Route, State>,
    due: &mut BTreeSet<(u64, Route)>,
    peer: u16,
    route: Route,
) {
    let Some(state) = paths.get_mut(&route) else { return };
    if let Some(users) = state.users.get_mut(&peer) {
        *users -= 1;
        if *users == 0 {
            state.users.remove(&peer);
        }
    }
    if state.users.is_empty() {
        due.remove(&(state.due, route));
        paths.remove(&route);
    }
}

/// GTP-U path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Index of the interface in the configuration.
    pub interface: u16,
    /// Address of the peer.
    pub remote: IpAddr,
}

/// Interfaces with GTP-U addresses.
#[derive(Clone, Debug)]
pub struct Interfaces {
    all: Vec<Interface>,
    network: Network,
}

#[derive(Clone, Debug)]
struct Interface {
    index: u16,
    role: Role,
    addresses: Vec<IpAddr>,
}

impl Interfaces {
    /// Creates the list from settings.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let all = (0..).zip(settings.interfaces.values()).map(|(index, it)| Interface {
            index,
            role: it.role,
            addresses: it.addresses.clone(),
        });
        let all = all.filter(|it| it.role != Role::N6).collect();
        Self { all, network: settings.network() }
    }

    /// Returns the paths of a session, one for each FAR that forwards or duplicates into a tunnel.
    pub fn routes<'a>(&'a self, session: &'a Session) -> impl Iterator<Item = Route> + 'a {
        let ways =
            session.fars.iter().flat_map(|far| far.forwarding.iter().chain(&far.duplicating));
        ways.filter_map(|way| self.route(way))
    }

    fn route(&self, way: &Forwarding) -> Option<Route> {
        let outer = way.outer.filter(|outer| outer.teid.is_some_and(|teid| teid != 0))?;
        let remote = self.network.peer((outer.v4, outer.v6), way.instance)?;
        let wanted = match way.destination {
            Destination::Access => Role::N3,
            Destination::Core | Destination::SgiLan => Role::N9,
            Destination::Control => return None,
        };
        let fits = |it: &&Interface| {
            let of_instance = self.network.is_tunnel_of(it.index.into(), way.instance);
            of_instance && it.addresses.iter().any(|ours| ours.is_ipv4() == remote.is_ipv4())
        };
        let fitting = || self.all.iter().filter(fits);
        let found = fitting().find(|it| it.role == wanted).or_else(|| fitting().next())?;
        Some(Route { interface: found.index, remote })
    }

    /// Returns our address on a path.
    #[must_use]
    pub fn local(&self, route: Route) -> Option<IpAddr> {
        let interface = self.all.iter().find(|it| it.index == route.interface)?;
        let same = |ours: &&IpAddr| ours.is_ipv4() == route.remote.is_ipv4();
        interface.addresses.iter().find(same).copied()
    }
}

/// Time until the first check and reminder, in nanoseconds. The interval doubles after each.
const FIRST: u64 = 20 * MILLISECOND;
/// Longest interval between two checks, in nanoseconds.
const LONGEST: u64 = SECOND;
/// Maximum number of tracked markers. For others the lanes are told once.
pub const MARKERS: usize = 65_536;
/// Maximum number of checks in one call.
const CHECKS: usize = 1024;

/// Due end markers by session.
#[derive(Debug, Default)]
pub struct Markers {
    due: HashMap<SessionIndex, Due>,
    order: BTreeSet<(u64, SessionIndex)>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    /// Time of the next check, as in `order`.
    at: u64,
    /// Interval to the check after the next one.
    pause: u64,
    /// Time at which the marker is given up.
    until: u64,
    /// Lower 32 bits of the session version in which it became due.
    version: u32,
}

/// Returns the version of a session's end markers that lanes have not all sent yet.
pub(super) fn due_marker(published: &Published, id: SessionIndex) -> Option<u32> {
    let marker = published.rules(id)?.marker()?;
    (!marker.is_sent(published.marker(id))).then_some(marker.version)
}

impl Markers {
    /// Tracks the end marker of a session that was published or recovered. The caller sends the
    /// first message to the lanes.
    pub fn changed(&mut self, published: &Published, id: SessionIndex, now: Now) {
        let Some(version) = due_marker(published, id) else { return self.forget(id) };
        if self.due.get(&id).is_some_and(|it| it.version == version) {
            return;
        }
        self.forget(id);
        if self.due.len() < MARKERS {
            let at = now.monotonic.saturating_add(FIRST);
            let until = now.monotonic.saturating_add(EndMarker::PATIENCE);
            self.keep(id, Due { at, pause: 2 * FIRST, until, version });
        }
    }

    fn keep(&mut self, id: SessionIndex, due: Due) {
        self.due.insert(id, due);
        self.order.insert((due.at, id));
    }

    fn forget(&mut self, id: SessionIndex) {
        if let Some(due) = self.due.remove(&id) {
            self.order.remove(&(due.at, id));
        }
    }

    /// Sends reminders for markers that are still due. Returns the number of markers given up.
    pub fn tick(&mut self, published: &Published, now: Now, out: &mut Outbox) -> u64 {
        let mut given_up = 0;
        for _ in 0..CHECKS {
            let Some(&(at, id)) = self.order.first() else { break };
            if at > now.monotonic {
                break;
            }
            let Some(before) = self.due.get(&id).copied() else { break };
            self.forget(id);
            if due_marker(published, id) != Some(before.version) {
                continue;
            }
            if now.monotonic >= before.until {
                given_up += 1;
                continue;
            }
            out.rules_changed(id);
            let at = now.monotonic.saturating_add(before.pause);
            let pause = (2 * before.pause).min(LONGEST);
            self.keep(id, Due { at, pause, ..before });
        }
        given_up
    }

    /// Returns the time of the next [`tick`](Self::tick), at least one millisecond from now.
    #[must_use]
    pub fn deadline(&self, now: Now) -> Option<u64> {
        let (at, _) = self.order.first()?;
        Some((*at).max(now.monotonic.saturating_add(MILLISECOND)))
    }

    /// Returns the number of due markers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Returns true if no marker is due.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests;
