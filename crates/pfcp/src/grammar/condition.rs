//! Conditions that a message shows: elements that require other elements (cause 67).

use crate::ie::{
    ActivatePredefinedRules, ApplyAction, FarId, Ie, NodeReportType, ReportType, ReportingTriggers,
};
use crate::{Cause, Fault, Group, IeType};

fn called_for(group: Group<'_>, is_called: bool, ie_type: IeType) -> Result<(), Fault> {
    if is_called && !group.has(ie_type) {
        return Err(Fault::of(Cause::CONDITIONAL_IE_MISSING, ie_type));
    }
    Ok(())
}

/// Checks that a PDR names the handling of its packets: a FAR, a MAR or predefined rules (table
/// 7.5.2.2-1).
pub(super) fn create_pdr(pdr: Group<'_>) -> Result<(), Fault> {
    let other = pdr.has(IeType::MAR_ID) || pdr.has(ActivatePredefinedRules::TYPE);
    called_for(pdr, !other, FarId::TYPE)
}

/// Checks that forwarding and duplication have their parameters (table 7.5.2.3-1).
pub(super) fn create_far(far: Group<'_>) -> Result<(), Fault> {
    let action: ApplyAction = far.need()?;
    called_for(far, action.has(ApplyAction::FORW), IeType::FORWARDING_PARAMETERS)?;
    called_for(far, action.has(ApplyAction::DUPL), IeType::DUPLICATING_PARAMETERS)
}

/// Checks that reporting triggers have their thresholds (table 7.5.2.4-1). Quotas may follow in a
/// modification.
pub(super) fn create_urr(urr: Group<'_>) -> Result<(), Fault> {
    let triggers: ReportingTriggers = urr.need()?;
    let calls = [
        (ReportingTriggers::PERIO, IeType::MEASUREMENT_PERIOD),
        (ReportingTriggers::VOLTH, IeType::VOLUME_THRESHOLD),
        (ReportingTriggers::TIMTH, IeType::TIME_THRESHOLD),
        (ReportingTriggers::QUHTI, IeType::QUOTA_HOLDING_TIME),
        (ReportingTriggers::DROTH, IeType::DROPPED_DL_TRAFFIC_THRESHOLD),
        (ReportingTriggers::LIUSA, IeType::LINKED_URR_ID),
        (ReportingTriggers::EVETH, IeType::EVENT_THRESHOLD),
        (ReportingTriggers::QUVTI, IeType::QUOTA_VALIDITY_TIME),
    ];
    calls.iter().try_for_each(|(trigger, ie)| called_for(urr, triggers.has(*trigger), *ie))
}

/// Checks that a session report has the elements of its report type (table 7.5.8.1-1).
pub(super) fn session_report(report: Group<'_>) -> Result<(), Fault> {
    let report_type: ReportType = report.need()?;
    let calls = [
        (ReportType::DLDR, IeType::DOWNLINK_DATA_REPORT),
        (ReportType::USAR, IeType::USAGE_REPORT_IN_REPORT),
        (ReportType::ERIR, IeType::ERROR_INDICATION_REPORT),
    ];
    calls.iter().try_for_each(|(bit, ie)| called_for(report, report_type.has(*bit), *ie))
}

/// Checks that a node report has the elements of its report type (table 7.4.5.1.1-1).
pub(super) fn node_report(report: Group<'_>) -> Result<(), Fault> {
    let report_type: NodeReportType = report.need()?;
    let calls = [
        (NodeReportType::UPFR, IeType::USER_PLANE_PATH_FAILURE_REPORT),
        (NodeReportType::UPRR, IeType::USER_PLANE_PATH_RECOVERY_REPORT),
    ];
    calls.iter().try_for_each(|(bit, ie)| called_for(report, report_type.has(*bit), *ie))
}
