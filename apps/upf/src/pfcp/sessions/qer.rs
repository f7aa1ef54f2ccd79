//! QoS enforcement rules (TS 29.244 tables 7.5.2.5-1 and 7.5.4.5-1).

use fastlane_pfcp::ie;
use fastlane_pfcp::{Group, IeType};

use super::refusal::Refusal;
use crate::session::{Gate, Qer, Rate};

/// Reads Create QER.
pub(super) fn create(group: &Group<'_>) -> Result<Qer, Refusal> {
    let mut qer = Qer {
        id: group.need::<ie::QerId>()?.0,
        correlation: None,
        uplink: Gate::Open,
        downlink: Gate::Open,
        maximum: None,
        guaranteed: None,
        qfi: None,
        reflective: false,
        paging_policy: None,
        window_ms: None,
        line: 0,
    };
    group.need::<ie::GateStatus>()?;
    update(&mut qer, group)?;
    Ok(qer)
}

/// Applies Update QER; absent IEs change nothing.
pub(super) fn update(qer: &mut Qer, group: &Group<'_>) -> Result<(), Refusal> {
    if group.has(IeType::PACKET_RATE) {
        return Err(Refusal::unsupported(IeType::PACKET_RATE));
    }
    if group.has(IeType::DL_FLOW_LEVEL_MARKING) {
        return Err(Refusal::unsupported(IeType::DL_FLOW_LEVEL_MARKING));
    }
    if let Some(gates) = group.find::<ie::GateStatus>()? {
        qer.uplink = gate(gates.uplink);
        qer.downlink = gate(gates.downlink);
    }
    if let Some(rate) = group.find::<ie::Mbr>()? {
        qer.maximum = Some(Rate { uplink: rate.uplink, downlink: rate.downlink });
    }
    if let Some(rate) = group.find::<ie::Gbr>()? {
        qer.guaranteed = Some(Rate { uplink: rate.uplink, downlink: rate.downlink });
    }
    if let Some(correlation) = group.find::<ie::QerCorrelationId>()? {
        qer.correlation = Some(correlation.0);
    }
    if let Some(qfi) = group.find::<ie::Qfi>()? {
        qer.qfi = Some(qfi.0);
    }
    if let Some(rqi) = group.find::<ie::Rqi>()? {
        qer.reflective = rqi.has(ie::Rqi::RQI);
    }
    if let Some(indicator) = group.find::<ie::PagingPolicyIndicator>()? {
        qer.paging_policy = Some(indicator.0);
    }
    if let Some(window) = group.find::<ie::AveragingWindow>()? {
        qer.window_ms = Some(window.0);
    }
    Ok(())
}

const fn gate(gate: ie::Gate) -> Gate {
    match gate {
        ie::Gate::Open => Gate::Open,
        ie::Gate::Closed => Gate::Closed,
    }
}
