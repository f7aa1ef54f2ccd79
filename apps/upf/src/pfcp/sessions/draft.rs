//! A session as a request describes it: its rules, with the F-TEIDs and UE addresses that are
//! allocated here or chosen by the control plane. The request is applied to a copy, which replaces
//! the session only if all of it is valid.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{self, FailedRuleId};
use fastlane_pfcp::{Cause, Fault, Group, IeType};

use super::teid_conflicts::TeidConflict;
use crate::alloc::{Addresses, Family, next_teid};
use crate::config::Settings;
use crate::rules::layout::{TeidLayout, UeKey};
use crate::session::sdf_filter::is_reference;
use crate::session::{
    Buffering, Filter, InstanceId, LocalTunnel, Network, Pdr, PdrId, Refusal, Session,
    SessionIndex, Source, Urr, UrrId, UserAddress, far, pdr, qer, urr,
};
use crate::time::Now;
use crate::usage::Meter;

/// Context that a draft is built in.
pub(super) struct DraftContext<'a> {
    pub(super) network: &'a Network,
    pub(super) settings: &'a Settings,
    pub(super) shape: TeidLayout,
    pub(super) addresses: &'a mut Addresses,
    /// Returns the session that owns a TEID.
    pub(super) owner: &'a dyn Fn(u32) -> Option<SessionIndex>,
    /// TEID of the control plane that another session owns, if the draft fails for it.
    pub(super) conflict: &'a Cell<Option<TeidConflict>>,
    /// Returns what a URR has counted.
    pub(super) meter: &'a dyn Fn(&Urr) -> Meter,
    pub(super) now: Now,
}

/// Our addresses of an F-TEID.
type Endpoint = (Option<Ipv4Addr>, Option<Ipv6Addr>);

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
    pub(super) session: Session,
    created: Vec<Created>,
    pub(super) removed: Vec<Urr>,
    begun: Vec<UrrId>,
    /// PDRs that get their PDI from this request.
    detecting: Vec<PdrId>,
    pub(super) context: DraftContext<'a>,
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
pub(super) struct PendingPdr {
    pub(super) pdr: Pdr,
    pub(super) pdi: pdr::Pdi,
    pub(super) is_update: bool,
}

impl<'a> Draft<'a> {
    /// Creates a draft from a stored session, or from a new one without rules.
    pub(super) fn of(session: Session, context: DraftContext<'a>) -> Self {
        let tunnels = session.pdrs.iter().filter_map(|pdr| pdr.tunnel).collect();
        let (created, removed, begun) = (Vec::new(), Vec::new(), Vec::new());
        let (chosen, taken, detecting) = (Vec::new(), Vec::new(), Vec::new());
        Self { session, created, removed, begun, detecting, context, tunnels, chosen, taken }
    }

    /// Returns the result of the draft.
    pub(super) fn ready(self) -> CompletedDraft {
        let Self { session, created, removed, begun, taken, .. } = self;
        CompletedDraft { session, created, removed, begun, taken }
    }

    /// Abandons the draft and returns its addresses to the pools.
    pub(super) fn give_up(self) {
        self.taken.iter().for_each(|key| self.context.addresses.give_back(key));
    }

    /// Applies IEs of the session itself: inactivity timer, S-NSSAI and DROBU.
    pub(super) fn common(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let session = &mut self.session;
        if let Some(timer) = group.find::<ie::UserPlaneInactivityTimer>()? {
            session.inactivity_s = Some(timer.0).filter(|seconds| *seconds != 0);
            session.reporting.awaited_from = self.context.now.monotonic;
            session.reporting.is_inactive = false;
        }
        // A modification has it if the slice has changed (table 7.5.4.1-1).
        session.s_nssai = group.find::<ie::SNssai>()?.or(session.s_nssai);
        let flags = group.find::<ie::PfcpsmreqFlags>()?.unwrap_or_default();
        if flags.has(ie::PfcpsmreqFlags::DROBU) {
            session.discarded = session.version;
            // The next packet is the first one that is buffered, and reported (clause 8.2.26).
            session.reporting.notified.clear();
        }
        refuse_flags(group, flags)
    }

    /// Applies Create BAR, FAR, QER, URR and PDR.
    pub(super) fn create(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        self.create_bars(group)?;
        self.create_fars(group)?;
        self.create_qers(group)?;
        self.create_urrs(group)?;
        let limit = self.context.settings.limits.pdrs;
        let mut pending: Vec<PendingPdr> = Vec::new();
        for it in group.groups(IeType::CREATE_PDR) {
            let mut pdr = pdr::create(&it)?;
            let failed = FailedRuleId::Pdr(pdr.id);
            let is_known = self.session.pdrs.iter().any(|known| known.id == pdr.id)
                || pending.iter().any(|known| known.pdr.id == pdr.id);
            if is_known || self.session.pdrs.len() + pending.len() >= limit {
                return Err(Refusal::rule(failed));
            }
            let pdi = it.group(IeType::PDI);
            let pdi = pdi.ok_or(Fault::of(Cause::MANDATORY_IE_MISSING, IeType::PDI))?;
            let pdi = pdr::detection(&pdi, self.context.network, failed)?;
            (pdr.source, pdr.instance) = (pdi.source, pdi.instance);
            pending.push(PendingPdr { pdr, pdi, is_update: false });
        }
        self.allocate(pending)
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
        let limit = self.context.settings.limits.fars;
        for it in group.groups(IeType::CREATE_FAR) {
            let far = far::create(&it, self.context.network)?;
            let fars = &mut self.session.fars;
            if fars.len() >= limit || fars.iter().any(|known| known.id == far.id) {
                return Err(Refusal::rule(FailedRuleId::Far(far.id)));
            }
            fars.push(far);
        }
        Ok(())
    }

    fn create_qers(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let limit = self.context.settings.limits.qers;
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
        let limit = self.context.settings.limits.urrs;
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

    /// Returns the network instance of the PDRs that match packets from the data network.
    fn data_network(&self, pending: &[PendingPdr]) -> Option<InstanceId> {
        let is_from_there = |pdr: &&Pdr| matches!(pdr.source, Source::Core | Source::SgiLan);
        let known = self.session.pdrs.iter().chain(pending.iter().map(|pending| &pending.pdr));
        known.filter(is_from_there).find_map(|pdr| pdr.instance)
    }
}

/// Maximum number of framed routes of a PDR. Each one costs as much as the routes inside it.
const NETWORKS: usize = 64;

impl Draft<'_> {
    /// Resolves filter references and checks that all references between rules are valid. Removing
    /// a FAR that a PDR still refers to is refused (clause 5.2.1).
    pub(super) fn check(&mut self, removed: &[u32]) -> Result<(), Refusal> {
        follow(&mut self.session)?;
        let (session, settings) = (&self.session, self.context.settings);
        if let Some(pdr) = session.pdrs.iter().find(|pdr| removed.contains(&pdr.far)) {
            let is_there = session.fars.iter().any(|far| far.id == pdr.far);
            if !is_there {
                return Err(Refusal::rule(FailedRuleId::Far(pdr.far)));
            }
        }
        pdrs(session, settings)?;
        let mut detecting = session.pdrs.iter().filter(|pdr| self.detecting.contains(&pdr.id));
        detecting.try_for_each(|pdr| pdr::check_reachable(session, pdr, self.context.network))?;
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

/// Network instances from which the pool of a UE address is selected.
#[derive(Clone, Copy, Debug)]
struct PoolChoice {
    /// Network instance of the PDR.
    of_pdr: Option<InstanceId>,
    /// Network instance of the PDRs that match packets from the data network.
    of_others: Option<InstanceId>,
}

impl Draft<'_> {
    /// Allocates the requested resources of each PDR and adds the PDRs to the session.
    pub(super) fn allocate(&mut self, pending: Vec<PendingPdr>) -> Result<(), Refusal> {
        let of_others = self.data_network(&pending);
        for PendingPdr { mut pdr, pdi, is_update } in pending {
            let choice = PoolChoice { of_pdr: pdr.instance, of_others };
            let tunnel = match pdi.tunnel {
                Some(requested) => Some((requested, self.tunnel(&pdr, &requested)?)),
                None => None,
            };
            let user = match pdi.user {
                Some(requested) => Some((requested, self.user(&requested, choice)?)),
                None => None,
            };
            let kept = pdr.tunnel.filter(|_| pdi.keeps_tunnel);
            pdr.tunnel = tunnel.map(|(_, tunnel)| tunnel).or(kept);
            let kept = pdr.user.filter(|_| pdi.keeps_user);
            pdr.user = user.map(|(_, user)| user).or(kept);
            let tunnel =
                tunnel.filter(|(requested, _)| requested.is_choose()).map(|(_, tunnel)| tunnel);
            let user = user.filter(|(requested, _)| requested.choose_v4 || requested.choose_v6);
            let user = user.map(|(requested, user)| (user, requested.is_destination));
            if tunnel.is_some() || user.is_some() {
                self.created.push(Created { pdr: pdr.id, tunnel, user, is_update });
            }
            pdi.fill(&mut pdr);
            self.detecting.push(pdr.id);
            match self.session.pdrs.iter_mut().find(|known| known.id == pdr.id) {
                Some(known) => *known = pdr,
                None => self.session.pdrs.push(pdr),
            }
        }
        Ok(())
    }

    /// Returns the F-TEID of a PDR (clause 5.5). It is allocated here on CHOOSE, otherwise it is
    /// the control plane's. Both occur in one network, whatever feature FTUP says.
    fn tunnel(&mut self, pdr: &Pdr, requested: &ie::FTeid) -> Result<LocalTunnel, Refusal> {
        if requested.is_choose() {
            return self.choose(pdr, requested);
        }
        if let Some(known) = self.tunnels.iter().find(|known| known.teid == requested.teid) {
            return Ok(*known);
        }
        if matches!(requested.teid, 0 | u32::MAX) {
            return Err(Refusal::incorrect(IeType::F_TEID));
        }
        let owner = (self.context.owner)(requested.teid);
        if let Some(owner) = owner.filter(|owner| *owner != self.session.id) {
            self.context.conflict.set(Some(TeidConflict { teid: requested.teid, owner }));
            return Err(Refusal::rule_by(FailedRuleId::Pdr(pdr.id), IeType::F_TEID));
        }
        let (v4, v6) = self.endpoint_of(pdr, requested)?;
        let (teid, choose_id) = (requested.teid, None);
        let tunnel = LocalTunnel { teid, v4, v6, is_ours: false, choose_id };
        self.tunnels.push(tunnel);
        Ok(tunnel)
    }

    /// Returns the addresses of an F-TEID that the control plane chose. One that knows no address
    /// of ours but that of N4 writes this one; it means the address of the PDR's interface. With
    /// addresses of others alone, no packet could arrive.
    fn endpoint_of(&self, pdr: &Pdr, requested: &ie::FTeid) -> Result<Endpoint, Refusal> {
        let DraftContext { network, settings, .. } = &self.context;
        let refused = Refusal::rule_by(FailedRuleId::Pdr(pdr.id), IeType::F_TEID);
        let given = [requested.v4.map(IpAddr::V4), requested.v6.map(IpAddr::V6)];
        let has = |is_meant: &dyn Fn(&IpAddr) -> bool| given.iter().flatten().any(is_meant);
        if has(&|it| settings.n4.addresses.contains(it) && !network.is_endpoint(*it)) {
            return network.only_endpoint(pdr.instance, pdr.source).ok_or(refused);
        }
        if has(&|it| settings.is_tunnel_address(*it)) {
            return Ok((requested.v4, requested.v6));
        }
        Err(refused)
    }

    fn choose(&mut self, pdr: &Pdr, requested: &ie::FTeid) -> Result<LocalTunnel, Refusal> {
        if let Some(tunnel) = requested.choose_id.and_then(|id| self.chosen_before(pdr, id)) {
            return Ok(tunnel);
        }
        let failed = FailedRuleId::Pdr(pdr.id);
        let none = Refusal::rule_by(failed, IeType::F_TEID);
        let wanted = |(v4, v6): Endpoint| {
            let (v4, v6) = (v4.filter(|_| requested.choose_v4), v6.filter(|_| requested.choose_v6));
            (v4.is_some() || v6.is_some()).then_some((v4, v6))
        };
        let (network, instance, source) = (&self.context.network, pdr.instance, pdr.source);
        // A CP function that wants IPv4 where N4 has IPv6 alone sends to an interface for tunnels.
        let on_interface = || network.interface_endpoint(instance, source).and_then(wanted);
        let of_source = network.endpoint(instance, source).and_then(wanted);
        let (v4, v6) = of_source.or_else(on_interface).ok_or(none)?;
        let (shape, id, owner) = (self.context.shape, self.session.id, self.context.owner);
        let tunnels = &self.tunnels;
        let is_taken =
            |teid| owner(teid).is_some() || tunnels.iter().any(|tunnel| tunnel.teid == teid);
        let teid = next_teid(shape, id, &mut self.session.generation, is_taken);
        let teid = teid.ok_or(Refusal::because(Cause::NO_RESOURCES_AVAILABLE))?;
        let choose_id = requested.choose_id;
        let tunnel = LocalTunnel { teid, v4, v6, is_ours: true, choose_id };
        self.tunnels.push(tunnel);
        self.chosen.extend(requested.choose_id.map(|id| (id, tunnel)));
        Ok(tunnel)
    }

    /// Returns the F-TEID that was allocated for a CHOOSE ID: in this request, or in an earlier one
    /// for a PDR of the same source interface that still exists.
    fn chosen_before(&self, pdr: &Pdr, id: u8) -> Option<LocalTunnel> {
        let of_request = self.chosen.iter().find(|(known, _)| *known == id);
        let same = self.session.pdrs.iter().filter(|known| known.source == pdr.source);
        let mut tunnels = same.filter_map(|known| known.tunnel);
        let of_session = || tunnels.find(|tunnel| tunnel.choose_id == Some(id));
        of_request.map(|(_, tunnel)| *tunnel).or_else(of_session)
    }

    /// Returns the UE IP addresses (clause 5.21). A session gets one IPv4 address and one IPv6
    /// prefix.
    fn user(
        &mut self,
        requested: &ie::UeIpAddress,
        choice: PoolChoice,
    ) -> Result<UserAddress, Refusal> {
        let mut user = pdr::user_address(requested)?;
        let now = self.context.now.monotonic;
        if requested.choose_v6 && pdr::prefix_length(requested)? != 64 {
            return Err(Refusal::unsupported(IeType::UE_IP_ADDRESS));
        }
        let known = self.session.pdrs.iter().filter_map(|pdr| pdr.user).filter(|it| it.is_ours);
        let known: Vec<UserAddress> = known.collect();
        if requested.choose_v4 {
            user.v4 = match known.iter().find_map(|known| known.v4) {
                Some(known) => Some(known),
                None => {
                    let instance = self.pool(Family::V4, choice)?;
                    let taken = self.context.addresses.take_v4(instance, now).ok_or(occupied())?;
                    self.taken.push(UeKey::v4(instance, taken));
                    Some(taken)
                }
            };
        }
        if requested.choose_v6 {
            user.v6 = match known.iter().find_map(|known| known.v6) {
                Some(known) => Some(known),
                None => {
                    let instance = self.pool(Family::V6, choice)?;
                    let taken = self.context.addresses.take_v6(instance, now).ok_or(occupied())?;
                    self.taken.push(UeKey::v6(instance, taken));
                    Some((taken, 64))
                }
            };
        }
        user.is_ours = requested.choose_v4 || requested.choose_v6;
        if user.v4.is_none() && user.v6.is_none() {
            return Err(Refusal::incorrect(IeType::UE_IP_ADDRESS));
        }
        Ok(user)
    }

    /// Returns the network instance whose pool provides the address.
    fn pool(&self, family: Family, choice: PoolChoice) -> Result<InstanceId, Refusal> {
        let PoolChoice { of_pdr, of_others } = choice;
        let instance =
            self.context.addresses.pool_of(self.context.network, of_pdr, of_others, family);
        instance.ok_or(Refusal::unsupported(IeType::UE_IP_ADDRESS))
    }
}

const fn occupied() -> Refusal {
    Refusal::of(Cause::ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED, IeType::UE_IP_ADDRESS)
}

/// Refuses flags of a request that change what is measured or served, and that are not supported.
/// To resume a measurement that was never stopped (RUMUC) changes nothing.
fn refuse_flags(group: &Group<'_>, flags: ie::PfcpsmreqFlags) -> Result<(), Refusal> {
    use ie::{PfcpsereqFlags as Created, PfcpsmreqFlags as Modified};
    if flags.has_any(Modified::SUMPC | Modified::DETEID | Modified::HRSBOM) {
        return Err(Refusal::unsupported(IeType::PFCPSMREQ_FLAGS));
    }
    let created = group.find::<Created>()?.unwrap_or_default();
    match created.has_any(Created::SUMPC | Created::HRSBOM) {
        true => Err(Refusal::unsupported(IeType::PFCPSEREQ_FLAGS)),
        false => Ok(()),
    }
}
