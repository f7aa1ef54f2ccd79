//! F-TEIDs and UE addresses of PDRs: allocated here, or chosen by the control plane.

use fastlane_pfcp::ie::{self, FailedRuleId};
use fastlane_pfcp::{Cause, IeType};

use super::{Created, Draft, PendingPdr};
use crate::alloc::{Family, next_teid};
use crate::config::TeidChoice;
use crate::rules::layout::key::UeKey;
use crate::session::pdr;
use crate::session::{InstanceId, LocalTunnel, Pdr, Refusal, UserAddress};

/// Network instances from which the pool of a UE address is selected.
#[derive(Clone, Copy, Debug)]
struct PoolChoice {
    /// Network instance of the PDR.
    asked: Option<InstanceId>,
    /// Network instance of the PDRs that match packets from the data network.
    of_others: Option<InstanceId>,
}

impl Draft<'_> {
    /// Allocates the requested resources of each PDR and adds the PDRs to the session.
    pub(super) fn give_out(&mut self, asked: Vec<PendingPdr>) -> Result<(), Refusal> {
        let of_others = self.data_network(&asked);
        for PendingPdr { mut pdr, pdi, is_update } in asked {
            let wanted = PoolChoice { asked: pdr.instance, of_others };
            let tunnel = match pdi.tunnel {
                Some(wish) => Some((wish, self.tunnel(&pdr, &wish)?)),
                None => None,
            };
            let user = match pdi.user {
                Some(wish) => Some((wish, self.user(&wish, wanted)?)),
                None => None,
            };
            pdr.tunnel = tunnel.map(|(_, tunnel)| tunnel);
            pdr.user = user.map(|(_, user)| user);
            let tunnel = tunnel.filter(|(wish, _)| wish.is_choose()).map(|(_, tunnel)| tunnel);
            let user = user.filter(|(wish, _)| wish.choose_v4 || wish.choose_v6);
            let user = user.map(|(wish, user)| (user, wish.is_destination));
            if tunnel.is_some() || user.is_some() {
                self.created.push(Created { pdr: pdr.id, tunnel, user, is_update });
            }
            pdi.fill(&mut pdr);
            match self.session.pdrs.iter_mut().find(|known| known.id == pdr.id) {
                Some(known) => *known = pdr,
                None => self.session.pdrs.push(pdr),
            }
        }
        Ok(())
    }

    /// Returns the F-TEID of a PDR (clause 5.5). It is allocated here on CHOOSE. Otherwise the
    /// control plane's value is used if the control plane allocates, restores a session, or names
    /// an F-TEID of this session.
    fn tunnel(&mut self, pdr: &Pdr, wish: &ie::FTeid) -> Result<LocalTunnel, Refusal> {
        let option = Refusal::of(Cause::INVALID_F_TEID_ALLOCATION_OPTION, IeType::F_TEID);
        let chooses = self.around.settings.teid == TeidChoice::Upf;
        if wish.is_choose() {
            return if chooses { self.choose(pdr, wish) } else { Err(option) };
        }
        if let Some(known) = self.tunnels.iter().find(|known| known.teid == wish.teid) {
            return Ok(*known);
        }
        if chooses && !self.around.restores {
            return Err(option);
        }
        if matches!(wish.teid, 0 | u32::MAX) {
            return Err(Refusal::incorrect(IeType::F_TEID));
        }
        if (self.around.owner)(wish.teid).is_some_and(|owner| owner != self.session.id) {
            return Err(Refusal::rule_by(FailedRuleId::Pdr(pdr.id), IeType::F_TEID));
        }
        let tunnel = LocalTunnel { teid: wish.teid, v4: wish.v4, v6: wish.v6, is_ours: false };
        self.tunnels.push(tunnel);
        Ok(tunnel)
    }

    fn choose(&mut self, pdr: &Pdr, wish: &ie::FTeid) -> Result<LocalTunnel, Refusal> {
        let same = |(id, _): &&(u8, LocalTunnel)| Some(*id) == wish.choose_id;
        if let Some((_, tunnel)) = self.chosen.iter().find(same) {
            return Ok(*tunnel);
        }
        let failed = FailedRuleId::Pdr(pdr.id);
        let none = Refusal::rule_by(failed, IeType::F_TEID);
        let (v4, v6) = self.around.network.endpoint(pdr.instance, pdr.source).ok_or(none)?;
        let (v4, v6) = (v4.filter(|_| wish.choose_v4), v6.filter(|_| wish.choose_v6));
        if v4.is_none() && v6.is_none() {
            return Err(none);
        }
        let (shape, id, owner) = (self.around.shape, self.session.id, self.around.owner);
        let tunnels = &self.tunnels;
        let is_taken =
            |teid| owner(teid).is_some() || tunnels.iter().any(|tunnel| tunnel.teid == teid);
        let teid = next_teid(shape, id, &mut self.session.generation, is_taken);
        let teid = teid.ok_or(Refusal::because(Cause::NO_RESOURCES_AVAILABLE))?;
        let tunnel = LocalTunnel { teid, v4, v6, is_ours: true };
        self.tunnels.push(tunnel);
        self.chosen.extend(wish.choose_id.map(|id| (id, tunnel)));
        Ok(tunnel)
    }

    /// Returns the UE IP addresses (clause 5.21). A session gets one IPv4 address and one IPv6
    /// prefix.
    fn user(&mut self, wish: &ie::UeIpAddress, wanted: PoolChoice) -> Result<UserAddress, Refusal> {
        let mut user = pdr::user_address(wish)?;
        let now = self.around.now.monotonic;
        if wish.choose_v6 && pdr::prefix_length(wish)? != 64 {
            return Err(Refusal::unsupported(IeType::UE_IP_ADDRESS));
        }
        let known = self.session.pdrs.iter().filter_map(|pdr| pdr.user).filter(|it| it.is_ours);
        let known: Vec<UserAddress> = known.collect();
        if wish.choose_v4 {
            user.v4 = match known.iter().find_map(|known| known.v4) {
                Some(known) => Some(known),
                None => {
                    let instance = self.pool(Family::V4, wanted)?;
                    let taken = self.around.addresses.take_v4(instance, now).ok_or(occupied())?;
                    self.taken.push(UeKey::v4(instance, taken));
                    Some(taken)
                }
            };
        }
        if wish.choose_v6 {
            user.v6 = match known.iter().find_map(|known| known.v6) {
                Some(known) => Some(known),
                None => {
                    let instance = self.pool(Family::V6, wanted)?;
                    let taken = self.around.addresses.take_v6(instance, now).ok_or(occupied())?;
                    self.taken.push(UeKey::v6(instance, taken));
                    Some((taken, 64))
                }
            };
        }
        user.is_ours = wish.choose_v4 || wish.choose_v6;
        if user.v4.is_none() && user.v6.is_none() {
            return Err(Refusal::incorrect(IeType::UE_IP_ADDRESS));
        }
        Ok(user)
    }

    /// Returns the network instance whose pool provides the address.
    fn pool(&self, family: Family, wanted: PoolChoice) -> Result<InstanceId, Refusal> {
        let PoolChoice { asked, of_others } = wanted;
        let instance = self.around.addresses.pool_of(self.around.network, asked, of_others, family);
        instance.ok_or(Refusal::unsupported(IeType::UE_IP_ADDRESS))
    }
}

const fn occupied() -> Refusal {
    Refusal::of(Cause::ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED, IeType::UE_IP_ADDRESS)
}
