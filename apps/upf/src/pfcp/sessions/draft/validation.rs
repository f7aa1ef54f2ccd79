//! Validation of the rules of a session against each other.

use fastlane_pfcp::ie::FailedRuleId;
use fastlane_pfcp::{Cause, IeType};

use super::Draft;
use crate::config::Settings;
use crate::session::sdf_filter::is_reference;
use crate::session::{Filter, Refusal, Session};

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
