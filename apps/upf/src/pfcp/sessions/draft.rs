//! A session as a request describes it. The request is applied to a copy, which replaces the
//! session only if all of it is valid.

use fastlane_pfcp::ie::{self, FailedRuleId};
use fastlane_pfcp::{Cause, Group, IeType};

use crate::alloc::Addresses;
use crate::config::Settings;
use crate::rules::layout::key::{TeidLayout, UeKey};
use crate::session::sdf_filter::is_reference;
use crate::session::{
    Buffering, Filter, InstanceId, LocalTunnel, Network, Pdr, PdrId, Refusal, Session,
    SessionIndex, Source, Urr, UrrId, UrrUpdate, UserAddress, far, pdr, qer, urr,
};
use crate::time::Now;
use crate::usage::{self, Meter};

mod allocation;

/// Context that a draft is built in.
pub(super) struct DraftContext<'a> {
    pub(super) network: &'a Network,
    pub(super) settings: &'a Settings,
    pub(super) shape: TeidLayout,
    pub(super) addresses: &'a mut Addresses,
    /// Returns the session that owns a TEID.
    pub(super) owner: &'a dyn Fn(u32) -> Option<SessionIndex>,
    /// Returns what a URR has counted.
    pub(super) meter: &'a dyn Fn(&Urr) -> Meter,
    /// The session is restored (RESTI): F-TEIDs and UE addresses are given by the control plane.
    pub(super) restores: bool,
    pub(super) now: Now,
}

/// Resources allocated for a PDR.
#[derive(Clone, Copy, Debug)]
pub(super) struct Created {
    pub(super) pdr: PdrId,
    pub(super) tunnel: Option<LocalTunnel>,
    /// The UE address, and its S/D bit: true for a destination address.
    pub(super) user: Option<(UserAddress, bool)>,
    /// The PDR existed before the request.
    pub(super) is_update: bool,
}

/// A session under construction.
pub(super) struct Draft<'a> {
    session: Session,
    created: Vec<Created>,
    removed: Vec<Urr>,
    begun: Vec<UrrId>,
    around: DraftContext<'a>,
    /// F-TEIDs of the session before the request, and those that it gets.
    tunnels: Vec<LocalTunnel>,
    /// F-TEIDs of this request by CHOOSE ID.
    chosen: Vec<(u8, LocalTunnel)>,
    taken: Vec<UeKey>,
}

/// Result of a valid draft.
pub(super) struct CompletedDraft {
    pub(super) session: Session,
    pub(super) created: Vec<Created>,
    /// Removed URRs, with their state before the removal.
    pub(super) removed: Vec<Urr>,
    /// New URRs. They start counting when they have state slots.
    pub(super) begun: Vec<UrrId>,
    /// Addresses taken from pools, to be returned if the request fails.
    pub(super) taken: Vec<UeKey>,
}

/// A Create PDR or Update PDR whose F-TEID and UE address are not allocated yet.
struct PendingPdr {
    pdr: Pdr,
    pdi: pdr::Pdi,
    is_update: bool,
}

impl<'a> Draft<'a> {
    /// Creates a draft from a stored session, or from a new one without rules.
    pub(super) fn of(session: Session, around: DraftContext<'a>) -> Self {
        let tunnels = session.pdrs.iter().filter_map(|pdr| pdr.tunnel).collect();
        let (created, removed, begun) = (Vec::new(), Vec::new(), Vec::new());
        let (chosen, taken) = (Vec::new(), Vec::new());
        Self { session, created, removed, begun, around, tunnels, chosen, taken }
    }

    /// Returns the result of the draft.
    pub(super) fn ready(self) -> CompletedDraft {
        let Self { session, created, removed, begun, taken, .. } = self;
        CompletedDraft { session, created, removed, begun, taken }
    }

    /// Abandons the draft and returns its addresses to the pools.
    pub(super) fn give_up(self) {
        self.taken.iter().for_each(|key| self.around.addresses.give_back(key));
    }

    /// Applies IEs of the session itself: inactivity timer and DROBU.
    pub(super) fn common(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let session = &mut self.session;
        if let Some(timer) = group.find::<ie::UserPlaneInactivityTimer>()? {
            session.inactivity_s = Some(timer.0).filter(|seconds| *seconds != 0);
            session.reporting.awaited_from = self.around.now.monotonic;
            session.reporting.is_inactive = false;
        }
        let flags = group.find::<ie::PfcpsmreqFlags>()?.unwrap_or_default();
        if flags.has(ie::PfcpsmreqFlags::DROBU) {
            session.discarded = session.version;
        }
        Ok(())
    }

    /// Applies Create BAR, FAR, QER, URR and PDR.
    pub(super) fn create(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        self.create_bars(group)?;
        self.create_fars(group)?;
        self.create_qers(group)?;
        self.create_urrs(group)?;
        let limit = self.around.settings.limits.pdrs;
        let mut asked: Vec<PendingPdr> = Vec::new();
        for it in group.groups(IeType::CREATE_PDR) {
            let mut pdr = pdr::create(&it)?;
            let failed = FailedRuleId::Pdr(pdr.id);
            let is_known = self.session.pdrs.iter().any(|known| known.id == pdr.id)
                || asked.iter().any(|known| known.pdr.id == pdr.id);
            if is_known || self.session.pdrs.len() + asked.len() >= limit {
                return Err(Refusal::rule(failed));
            }
            let pdi = it.group(IeType::PDI);
            let pdi = pdi.ok_or(fastlane_pfcp::Fault::of(
                fastlane_pfcp::Cause::MANDATORY_IE_MISSING,
                IeType::PDI,
            ))?;
            let pdi = pdr::detection(&pdi, self.around.network, failed)?;
            (pdr.source, pdr.instance) = (pdi.source, pdi.instance);
            asked.push(PendingPdr { pdr, pdi, is_update: false });
        }
        self.give_out(asked)
    }

    fn create_bars(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        for it in group.groups(IeType::CREATE_BAR) {
            let mut bar = Buffering { id: it.need::<ie::BarId>()?.0, ..Buffering::default() };
            far::apply_bar(&mut bar, &it)?;
            if self.session.bars.iter().any(|known| known.id == bar.id) {
                return Err(Refusal::rule(FailedRuleId::Bar(bar.id)));
            }
            self.session.bars.push(bar);
        }
        Ok(())
    }

    fn create_fars(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let limit = self.around.settings.limits.fars;
        for it in group.groups(IeType::CREATE_FAR) {
            let far = far::create(&it, self.around.network)?;
            let fars = &mut self.session.fars;
            if fars.len() >= limit || fars.iter().any(|known| known.id == far.id) {
                return Err(Refusal::rule(FailedRuleId::Far(far.id)));
            }
            fars.push(far);
        }
        Ok(())
    }

    fn create_qers(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let limit = self.around.settings.limits.qers;
        for it in group.groups(IeType::CREATE_QER) {
            let qer = qer::create(&it)?;
            let qers = &mut self.session.qers;
            if qers.len() >= limit || qers.iter().any(|known| known.id == qer.id) {
                return Err(Refusal::rule(FailedRuleId::Qer(qer.id)));
            }
            qers.push(qer);
        }
        Ok(())
    }

    fn create_urrs(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let limit = self.around.settings.limits.urrs;
        for it in group.groups(IeType::CREATE_URR) {
            let urr = urr::create(&it)?;
            let urrs = &mut self.session.urrs;
            if urrs.len() >= limit || urrs.iter().any(|known| known.id == urr.id) {
                return Err(Refusal::rule(FailedRuleId::Urr(urr.id)));
            }
            self.begun.push(urr.id);
            urrs.push(urr);
        }
        Ok(())
    }

    /// Applies Remove PDR, FAR, URR, QER and BAR. An unknown rule is refused. URRs and QERs are
    /// removed from the PDRs that refer to them; a removed FAR must have no PDR left (see `check`).
    pub(super) fn remove(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let session = &mut self.session;
        for it in group.groups(IeType::REMOVE_PDR) {
            let id = it.need::<ie::PdrId>()?.0;
            take(&mut session.pdrs, |it| it.id == id)
                .ok_or(Refusal::rule(FailedRuleId::Pdr(id)))?;
        }
        for it in group.groups(IeType::REMOVE_FAR) {
            let id = it.need::<ie::FarId>()?.0;
            take(&mut session.fars, |it| it.id == id)
                .ok_or(Refusal::rule(FailedRuleId::Far(id)))?;
        }
        for it in group.groups(IeType::REMOVE_URR) {
            let id = it.need::<ie::UrrId>()?.0;
            let urr = take(&mut session.urrs, |it| it.id == id);
            self.removed.push(urr.ok_or(Refusal::rule(FailedRuleId::Urr(id)))?);
            session.pdrs.iter_mut().for_each(|pdr| pdr.urrs.retain(|urr| *urr != id));
            session.urrs.iter_mut().for_each(|urr| urr.linked.retain(|urr| *urr != id));
        }
        for it in group.groups(IeType::REMOVE_QER) {
            let id = it.need::<ie::QerId>()?.0;
            take(&mut session.qers, |it| it.id == id)
                .ok_or(Refusal::rule(FailedRuleId::Qer(id)))?;
            session.pdrs.iter_mut().for_each(|pdr| pdr.qers.retain(|qer| *qer != id));
        }
        for it in group.groups(IeType::REMOVE_BAR) {
            let id = it.need::<ie::BarId>()?.0;
            take(&mut session.bars, |it| it.id == id)
                .ok_or(Refusal::rule(FailedRuleId::Bar(id)))?;
            let fars = session.fars.iter_mut().filter(|far| far.bar == Some(id));
            fars.for_each(|far| far.bar = None);
        }
        Ok(())
    }

    /// Applies Update BAR, FAR, QER, URR and PDR.
    pub(super) fn update(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let session = &mut self.session;
        for it in group.groups(IeType::UPDATE_BAR) {
            let id = it.need::<ie::BarId>()?.0;
            let bar = session.bars.iter_mut().find(|bar| bar.id == id);
            far::apply_bar(bar.ok_or(Refusal::rule(FailedRuleId::Bar(id)))?, &it)?;
        }
        for it in group.groups(IeType::UPDATE_FAR) {
            let id = it.need::<ie::FarId>()?.0;
            let far = session.fars.iter_mut().find(|far| far.id == id);
            let far = far.ok_or(Refusal::rule(FailedRuleId::Far(id)))?;
            far::update(far, &it, self.around.network, session.version)?;
        }
        for it in group.groups(IeType::UPDATE_QER) {
            let id = it.need::<ie::QerId>()?.0;
            let qer = session.qers.iter_mut().find(|qer| qer.id == id);
            qer::update(qer.ok_or(Refusal::rule(FailedRuleId::Qer(id)))?, &it)?;
        }
        for it in group.groups(IeType::UPDATE_URR) {
            self.update_urr(&it)?;
        }
        self.update_pdrs(group)
    }

    fn update_urr(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let id = group.need::<ie::UrrId>()?.0;
        let place = self.session.urrs.iter().position(|urr| urr.id == id);
        let place = place.ok_or(Refusal::rule(FailedRuleId::Urr(id)))?;
        let meter = (self.around.meter)(&self.session.urrs[place]);
        let mut outcome = Ok(());
        usage::update(&mut self.session.urrs[place], &meter, self.around.now, |urr| {
            urr::apply(urr, group).unwrap_or_else(|refusal| {
                outcome = Err(refusal);
                UrrUpdate::default()
            })
        });
        outcome
    }

    fn update_pdrs(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let mut asked = Vec::new();
        for it in group.groups(IeType::UPDATE_PDR) {
            let id = it.need::<ie::PdrId>()?.0;
            let failed = FailedRuleId::Pdr(id);
            let known = self.session.pdrs.iter_mut().find(|pdr| pdr.id == id);
            let known = known.ok_or(Refusal::rule(failed))?;
            pdr::update(known, &it)?;
            if let Some(pdi) = it.group(IeType::PDI) {
                let pdi = pdr::detection(&pdi, self.around.network, failed)?;
                (known.source, known.instance) = (pdi.source, pdi.instance);
                asked.push(PendingPdr { pdr: known.clone(), pdi, is_update: true });
            }
        }
        self.give_out(asked)
    }

    /// Returns the network instance of the PDRs that match packets from the data network.
    fn data_network(&self, asked: &[PendingPdr]) -> Option<InstanceId> {
        let is_from_there = |pdr: &&Pdr| matches!(pdr.source, Source::Core | Source::SgiLan);
        let known = self.session.pdrs.iter().chain(asked.iter().map(|asked| &asked.pdr));
        known.filter(is_from_there).find_map(|pdr| pdr.instance)
    }
}

/// Removes and returns the first element that matches.
fn take<T>(list: &mut Vec<T>, is_it: impl FnMut(&T) -> bool) -> Option<T> {
    list.iter().position(is_it).map(|place| list.remove(place))
}

/// Maximum number of framed routes of a PDR. Each one costs as much as the routes inside it.
const NETWORKS: usize = 64;

impl Draft<'_> {
    /// Resolves filter references and checks that all references between rules are valid. Removing
    /// a FAR that a PDR still refers to is refused (clause 5.2.1).
    pub(in crate::pfcp::sessions) fn check(&mut self, removed: &[u32]) -> Result<(), Refusal> {
        follow(&mut self.session)?;
        let (session, settings) = (&self.session, self.around.settings);
        if let Some(pdr) = session.pdrs.iter().find(|pdr| removed.contains(&pdr.far)) {
            let is_there = session.fars.iter().any(|far| far.id == pdr.far);
            if !is_there {
                return Err(Refusal::rule(FailedRuleId::Far(pdr.far)));
            }
        }
        pdrs(session, settings)?;
        let has_far = |id| session.fars.iter().any(|far| far.id == id);
        let has_bar = |id| session.bars.iter().any(|bar| bar.id == id);
        let has_urr = |id: &u32| session.urrs.iter().any(|urr| urr.id == *id);
        if let Some(far) = session.fars.iter().find(|far| far.bar.is_some_and(|bar| !has_bar(bar)))
        {
            return Err(Refusal::rule(FailedRuleId::Far(far.id)));
        }
        let urr = session.urrs.iter().find(|urr| {
            urr.exhausted_far.is_some_and(|far| !has_far(far)) || !urr.linked.iter().all(has_urr)
        });
        urr.map_or(Ok(()), |urr| Err(Refusal::rule(FailedRuleId::Urr(urr.id))))
    }
}

fn pdrs(session: &Session, settings: &Settings) -> Result<(), Refusal> {
    for pdr in &session.pdrs {
        let failed = FailedRuleId::Pdr(pdr.id);
        let is_sound = session.fars.iter().any(|far| far.id == pdr.far)
            && pdr.qers.iter().all(|id| session.qers.iter().any(|qer| qer.id == *id))
            && pdr.urrs.iter().all(|id| session.urrs.iter().any(|urr| urr.id == *id));
        if !is_sound {
            return Err(Refusal::rule(failed));
        }
        if pdr.filters.len() > settings.limits.filters {
            return Err(Refusal::rule_by(failed, IeType::SDF_FILTER));
        }
        if pdr.framed.len() > NETWORKS {
            return Err(Refusal::rule_by(failed, IeType::FRAMED_ROUTE));
        }
        if pdr.predefined.iter().any(|name| !settings.predefined.contains_key(name)) {
            let (cause, offending) =
                (Cause::UNKNOWN_PRE_DEFINED_RULE, Some(IeType::ACTIVATE_PREDEFINED_RULES));
            return Err(Refusal { cause, offending, failed: Some(failed) });
        }
    }
    Ok(())
}

/// Replaces filters that consist of an SDF Filter ID only by the filter with that ID (clause
/// 8.2.5).
fn follow(session: &mut Session) -> Result<(), Refusal> {
    let filters = || session.pdrs.iter().flat_map(|pdr| &pdr.filters);
    if !filters().any(is_reference) {
        return Ok(());
    }
    let defined: Vec<Filter> =
        filters().filter(|it| it.id.is_some() && !is_reference(it)).cloned().collect();
    for pdr in &mut session.pdrs {
        for filter in pdr.filters.iter_mut().filter(|filter| is_reference(filter)) {
            let meant = defined.iter().find(|known| known.id == filter.id);
            let unknown = Refusal::rule_by(FailedRuleId::Pdr(pdr.id), IeType::SDF_FILTER);
            *filter = meant.cloned().ok_or(unknown)?;
        }
    }
    Ok(())
}
