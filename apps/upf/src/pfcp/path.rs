//! GTP-U paths to access nodes and other UPFs: which there are, and whether they answer.
//!
//! A path is there while a FAR of a session leads through it. It is probed by echo requests (3GPP
//! TS 29.281 clause 7.2.1), which a lane sends. One that is not answered N3 times is reported to
//! the control plane functions whose sessions use it (TS 29.244 clause 7.4.5.1).

pub mod index;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use index::{Interfaces, Route};

use super::peer::record::{mapped, unmapped};
use super::{LaneMessage, Outbox};
use crate::config::Settings;
use crate::rules::layout::message::PathMessage;
use crate::session::Session;
use crate::time::Now;
use crate::time::{MILLISECOND, SECOND};

/// The most paths; further ones are not probed.
pub const PATHS: usize = 4096;
/// The most probes at a time.
const BURST: usize = 64;
/// How long after a burst the next one is.
const PAUSE: u64 = 5 * MILLISECOND;

/// What was found of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEvent {
    /// The path.
    pub route: Route,
    /// Whether it has failed; otherwise it has come back.
    pub has_failed: bool,
    /// The associations whose sessions use it, by place.
    pub peers: Vec<u16>,
}

/// All paths.
#[derive(Debug)]
pub struct Paths {
    interfaces: Interfaces,
    /// Nanoseconds between probes; none probes nothing.
    period: Option<u64>,
    t3: u64,
    n3: u32,
    paths: HashMap<Route, State>,
    /// When each is looked at next.
    due: BTreeSet<(u64, Route)>,
    sequence: u16,
}

/// What is known of a path.
#[derive(Clone, Debug, Default)]
struct State {
    /// FARs that lead through it, by the place of their association.
    users: BTreeMap<u16, u32>,
    /// When it is looked at next, as in `due` of all.
    due: u64,
    /// When it was asked first.
    began: u64,
    /// The sequence number of the probe that is not answered yet.
    asked: Option<u16>,
    /// How often that was sent.
    sent: u32,
    has_failed: bool,
}

impl Paths {
    /// None yet.
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

    /// Follows a session: what it was, and what it is now. For each that is found at the start and
    /// for each change.
    pub fn changed(&mut self, before: Option<&Session>, after: Option<&Session>) {
        if self.period.is_none() {
            return;
        }
        // What comes is first, so that a path that stays is not forgotten between.
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

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The paths with whether they have failed.
    pub fn iter(&self) -> impl Iterator<Item = (Route, bool)> {
        self.paths.iter().map(|(route, state)| (*route, state.has_failed))
    }

    /// Nothing could be sent or received for a while: questions begin again. What has failed stays
    /// so until it answers.
    pub fn restart(&mut self) {
        for state in self.paths.values_mut() {
            state.asked = None;
        }
    }

    /// Forgets all, for all sessions are gone.
    pub fn clear(&mut self) {
        self.paths.clear();
        self.due.clear();
    }

    /// A lane has received the answer to a probe.
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

    /// Sends the probes that are due. A path that has failed now is returned, and the caller asks
    /// again until there is none.
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

    /// When [`tick`](Self::tick) has something to do, not sooner than it may send again.
    #[must_use]
    pub fn deadline(&self, now: Now) -> Option<u64> {
        let (due, _) = self.due.first()?;
        Some((*due).max(now.monotonic.saturating_add(PAUSE)))
    }
}

impl State {
    /// The echo request that is to be sent.
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

#[cfg(test)]
mod tests;
