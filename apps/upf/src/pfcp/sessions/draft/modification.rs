//! Modification of the rules of a draft: Remove and Update PDR, FAR, QER, URR and BAR.

use fastlane_pfcp::ie::{self, FailedRuleId};
use fastlane_pfcp::{Group, IeType};

use super::{Draft, PendingPdr};
use crate::session::{Refusal, UrrUpdate, far, pdr, qer, urr};
use crate::usage;

impl Draft<'_> {
    /// Applies Remove PDR, FAR, URR, QER and BAR. An unknown rule is refused. URRs and QERs are
    /// removed from the PDRs that refer to them; a removed FAR must have no PDR left (see `check`).
    pub(in crate::pfcp::sessions) fn remove(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
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
    pub(in crate::pfcp::sessions) fn update(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
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
            far::update(far, &it, self.context.network, session.version)?;
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
        let index = self.session.urrs.iter().position(|urr| urr.id == id);
        let index = index.ok_or(Refusal::rule(FailedRuleId::Urr(id)))?;
        let meter = (self.context.meter)(&self.session.urrs[index]);
        let mut outcome = Ok(());
        usage::update(&mut self.session.urrs[index], &meter, self.context.now, |urr| {
            urr::apply(urr, group).unwrap_or_else(|refusal| {
                outcome = Err(refusal);
                UrrUpdate::default()
            })
        });
        outcome
    }

    fn update_pdrs(&mut self, group: &Group<'_>) -> Result<(), Refusal> {
        let mut pending = Vec::new();
        for it in group.groups(IeType::UPDATE_PDR) {
            let id = it.need::<ie::PdrId>()?.0;
            let failed = FailedRuleId::Pdr(id);
            let known = self.session.pdrs.iter_mut().find(|pdr| pdr.id == id);
            let known = known.ok_or(Refusal::rule(failed))?;
            pdr::update(known, &it)?;
            if let Some(pdi) = it.group(IeType::PDI) {
                let pdi = pdr::detection(&pdi, self.context.network, failed)?;
                (known.source, known.instance) = (pdi.source, pdi.instance);
                pending.push(PendingPdr { pdr: known.clone(), pdi, is_update: true });
            }
        }
        self.allocate(pending)
    }
}

/// Removes and returns the first element that matches.
fn take<T>(list: &mut Vec<T>, is_it: impl FnMut(&T) -> bool) -> Option<T> {
    list.iter().position(is_it).map(|index| list.remove(index))
}
