//! Limits of slices and of control plane functions: sessions, and establishments per second.
//!
//! An establishment above a limit is refused: by cause 75 if there are as many sessions as there
//! may be, by cause 74 above the rate. The response has no overload control information: that is
//! about the whole node (TS 29.244 clause 6.2.4), and would make the peer send less for other
//! slices, too. For the same reason the node does not count as congested.

use fastlane::table::TableError;
use fastlane_pfcp::ie::NetworkInstance;
use fastlane_pfcp::{Cause, Group, IeType, Message};

use super::{Node, NodeContext, node_messages};
use crate::config::Settings;
use crate::config::slice_limits::{SliceLimits, SmfLimits};
use crate::pfcp::NodeName;
use crate::pfcp::associations::{Association, Associations};
use crate::pfcp::overload::Limiter;
use crate::pfcp::sessions::{self, Sessions};
use crate::rules::layout::slices::SliceLabels;
use crate::session::{SNssai, Session};
use crate::time::Now;

/// Outcome of an establishment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EstablishmentOutcome {
    /// The session is established.
    Accepted,
    /// Its SMF has as many sessions as it may have.
    SmfSessions,
    /// Its SMF establishes more sessions per second than it may.
    SmfRate,
    /// Its slice has as many sessions as it may have.
    SliceSessions,
    /// More sessions per second are established in its slice than there may be.
    SliceRate,
    /// Refused for another reason.
    Refused,
}

impl EstablishmentOutcome {
    /// Returns the name used in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::SmfSessions => "smf_sessions",
            Self::SmfRate => "smf_rate",
            Self::SliceSessions => "slice_sessions",
            Self::SliceRate => "slice_rate",
            Self::Refused => "refused",
        }
    }

    /// Returns the cause in the response.
    const fn cause(self) -> Cause {
        match self {
            Self::SmfRate | Self::SliceRate => Cause::PFCP_ENTITY_IN_CONGESTION,
            _ => Cause::NO_RESOURCES_AVAILABLE,
        }
    }
}

/// Sessions and limits of a slice, or of the SMFs that an entry of `app.n4.limits` covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitedSessions {
    /// Slice, or the entry.
    pub name: String,
    /// Number of sessions.
    pub sessions: usize,
    /// Maximum number of sessions, if there is one.
    pub most: Option<u32>,
}

/// Limits of the settings, and their state.
#[derive(Debug)]
pub(super) struct Quotas {
    slices: Vec<SliceLimits>,
    smfs: Vec<SmfLimits>,
    slice_states: Vec<QuotaState>,
    smf_states: Vec<QuotaState>,
}

/// State of the limits of a slice or of an entry of `app.n4.limits`.
#[derive(Clone, Debug)]
struct QuotaState {
    limiter: Option<Limiter>,
    /// Refusals because of the number of sessions, and of the rate, that were logged: the first.
    is_logged: [bool; 2],
}

impl QuotaState {
    fn new(per_second: Option<u32>) -> Self {
        let limiter = |rate: u32| Limiter::new(rate, (rate / 10).max(1));
        Self { limiter: per_second.map(limiter), is_logged: [false; 2] }
    }

    /// Returns true if an establishment is within the rate.
    fn admits(&mut self, now: Now) -> bool {
        self.limiter.as_mut().is_none_or(|limiter| limiter.admit(now))
    }

    /// Returns true for the first refusal because of the number of sessions, or of the rate.
    fn is_first(&mut self, is_rate: bool) -> bool {
        !std::mem::replace(&mut self.is_logged[usize::from(is_rate)], true)
    }
}

impl Quotas {
    pub(super) fn new(settings: &Settings) -> Self {
        let (slices, smfs) = (settings.slices.clone(), settings.n4.limits.clone());
        let slice_states = slices.iter().map(|it| QuotaState::new(it.establishments_per_s));
        let smf_states = smfs.iter().map(|it| QuotaState::new(it.establishments_per_s));
        let (slice_states, smf_states) = (slice_states.collect(), smf_states.collect());
        Self { slices, smfs, slice_states, smf_states }
    }

    /// Returns the index of the entry that covers the SMF of an association.
    fn smf(&self, association: &Association) -> Option<usize> {
        if self.smfs.is_empty() {
            return None;
        }
        let node_id = association.peer.node_id.to_string();
        let address = association.peer.address.ip();
        self.smfs.iter().position(|it| it.covers(&node_id, address))
    }

    /// Returns an entry with its index.
    fn entry(&self, index: Option<usize>) -> Option<(usize, &SmfLimits)> {
        let index = index?;
        Some((index, self.smfs.get(index)?))
    }

    /// Tells the lanes the limits of held packets of all associations.
    ///
    /// # Errors
    /// One could not be written, and stays as it was.
    pub(super) fn limit_all(
        &self,
        peers: &Associations,
        sessions: &mut Sessions,
    ) -> Result<(), TableError> {
        (0..peers.capacity()).try_for_each(|index| {
            let smf = peers.get(index).and_then(|it| self.smf(it));
            sessions.limit_smf(index, self.entry(smf))
        })
    }

    /// Returns the number of sessions of the SMFs that an entry covers.
    fn sessions_of(&self, smf: usize, peers: &Associations, sessions: &Sessions) -> usize {
        let covered = peers.iter().filter(|it| self.smf(it) == Some(smf));
        covered.map(|it| sessions.of_peer(it.peer.index)).sum()
    }

    /// Returns the sessions of each slice with limits.
    pub(super) fn limited_slices(&self, sessions: &Sessions) -> Vec<LimitedSessions> {
        let limited = |it: &SliceLimits| {
            let slice = it.s_nssai.s_nssai();
            let (name, sessions) = (slice.to_string(), sessions.of_slice(slice));
            LimitedSessions { name, sessions, most: it.sessions }
        };
        self.slices.iter().map(limited).collect()
    }

    /// Returns the sessions of the SMFs of each entry.
    pub(super) fn limited_smfs(
        &self,
        peers: &Associations,
        sessions: &Sessions,
    ) -> Vec<LimitedSessions> {
        let limited = |(index, it): (usize, &SmfLimits)| LimitedSessions {
            name: it.smf.clone(),
            sessions: self.sessions_of(index, peers, sessions),
            most: it.sessions,
        };
        self.smfs.iter().enumerate().map(limited).collect()
    }

    /// Returns the reason to refuse an establishment, if there is one.
    fn excess(
        &mut self,
        request: &Request,
        peers: &Associations,
        sessions: &Sessions,
        now: Now,
    ) -> Option<EstablishmentOutcome> {
        let Request { smf, slice } = *request;
        let is_full = |most: Option<u32>, count: &dyn Fn() -> usize| {
            most.is_some_and(|most| count() >= most as usize)
        };
        if let Some((smf, entry)) = self.entry(smf)
            && is_full(entry.sessions, &|| self.sessions_of(smf, peers, sessions))
        {
            return Some(EstablishmentOutcome::SmfSessions);
        }
        if let Some(limits) = slice.and_then(|index| self.slices.get(index))
            && is_full(limits.sessions, &|| sessions.of_slice(limits.s_nssai.s_nssai()))
        {
            return Some(EstablishmentOutcome::SliceSessions);
        }
        let state = smf.and_then(|index| self.smf_states.get_mut(index));
        if state.is_some_and(|state| !state.admits(now)) {
            return Some(EstablishmentOutcome::SmfRate);
        }
        let state = slice.and_then(|index| self.slice_states.get_mut(index));
        let is_above = state.is_some_and(|state| !state.admits(now));
        is_above.then_some(EstablishmentOutcome::SliceRate)
    }

    /// Logs the first refusal of its kind.
    fn log(&mut self, request: &Request, outcome: EstablishmentOutcome) {
        let is_rate = outcome.cause() == Cause::PFCP_ENTITY_IN_CONGESTION;
        let limit = if is_rate { "establishments-per-s" } else { "sessions" };
        let (state, who, place) = match outcome {
            EstablishmentOutcome::SmfSessions | EstablishmentOutcome::SmfRate => {
                let Some((index, entry)) = self.entry(request.smf) else { return };
                let who = format!("the SMFs of {}", entry.smf);
                (self.smf_states.get_mut(index), who, format!("app.n4.limits.{index}"))
            }
            _ => {
                let Some(index) = request.slice else { return };
                let Some(limits) = self.slices.get(index) else { return };
                let who = format!("the slice {}", limits.s_nssai.s_nssai());
                (self.slice_states.get_mut(index), who, format!("app.slices.{index}"))
            }
        };
        if state.is_some_and(|state| state.is_first(is_rate)) {
            tracing::warn!(
                "N4: {who} reached a limit, and establishments are refused; raise {place}.{limit} \
                 if they shall be served (upf_slice_establishments_total counts further ones)"
            );
        }
    }
}

/// Limits that an establishment counts for, by their indices.
#[derive(Clone, Copy, Debug)]
struct Request {
    smf: Option<usize>,
    slice: Option<usize>,
}

/// Returns the response that refuses an establishment above a limit of its SMF or slice.
pub(super) fn refuse(cx: &mut NodeContext<'_>, message: &Message<'_>) -> Option<Vec<u8>> {
    let Node { quotas, peers, sessions, settings, statistics, .. } = &mut *cx.node;
    if settings.slices.is_empty() && settings.n4.limits.is_empty() {
        return None;
    }
    let found = NodeName::of(message).and_then(|name| peers.find(&name))?;
    let smf = quotas.smf(found);
    if let Err(error) = sessions.limit_smf(found.peer.index, quotas.entry(smf)) {
        statistics.table_failed += 1;
        tracing::error!("{error}");
    }
    let s_nssai = message.group().find::<SNssai>().ok().flatten();
    let is_it = |it: &SliceLimits| Some(it.s_nssai.s_nssai()) == s_nssai;
    let request = Request { smf, slice: quotas.slices.iter().position(is_it) };
    let outcome = quotas.excess(&request, peers, sessions, cx.now)?;
    quotas.log(&request, outcome);
    if let Some((_, entry)) = quotas.entry(smf)
        && matches!(outcome, EstablishmentOutcome::SmfSessions | EstablishmentOutcome::SmfRate)
    {
        *statistics.smfs_refused.entry((entry.smf.clone(), outcome)).or_default() += 1;
    }
    count(cx, message, outcome, None);
    Some(node_messages::refuse_session(message, &cx.node.identity, outcome.cause()))
}

/// Counts an establishment by slice and DNN: those of the session or, if it is refused, those that
/// the request names.
pub(super) fn count(
    cx: &mut NodeContext<'_>,
    message: &Message<'_>,
    outcome: EstablishmentOutcome,
    session: Option<&Session>,
) {
    let slices = cx.node.sessions.published().slices();
    let group = match session {
        Some(session) => slices.group_of(session),
        None => {
            let request = message.group();
            let s_nssai = request.find::<SNssai>().ok().flatten();
            slices.find(s_nssai, &dnn_of(&request))
        }
    };
    let labels: SliceLabels = slices.labels(group);
    *cx.node.statistics.establishments.entry((labels, outcome)).or_default() += 1;
}

/// Returns the DNN of a request or, without one, the network instance of its first PDR.
fn dnn_of(request: &Group<'_>) -> String {
    let dnn = sessions::network(request).ok().flatten();
    let instance = || {
        let mut pdrs = request.groups(IeType::CREATE_PDR);
        let name =
            pdrs.find_map(|pdr| pdr.group(IeType::PDI)?.find::<NetworkInstance<'_>>().ok()?);
        name.map(|it| sessions::name_of(it.0))
    };
    dnn.or_else(instance).unwrap_or_default()
}
