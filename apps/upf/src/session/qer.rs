//! QoS enforcement rules (TS 29.244 tables 7.5.2.5-1 and 7.5.4.5-1).

use fastlane_pfcp::{Group, IeType, ie};

use super::{QerId, Refusal};

/// Gate Status of one direction (clause 8.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// Packets pass.
    #[default]
    Open,
    /// Packets are dropped.
    Closed,
}

/// Bit rates in kbit/s, with 1 kbit = 1000 bits (clauses 8.2.8 and 8.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Uplink rate.
    pub uplink: u64,
    /// Downlink rate.
    pub downlink: u64,
}

/// QoS enforcement rule (table 7.5.2.5-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Qer {
    /// QER ID.
    pub id: QerId,
    /// QER Correlation ID, for a meter shared by sessions in EPC. N4 has none (table 7.5.2.5-1): it
    /// is shown and not applied.
    pub correlation: Option<u32>,
    /// Uplink gate.
    pub uplink: Gate,
    /// Downlink gate.
    pub downlink: Gate,
    /// Maximum bit rate; none is unlimited.
    pub maximum: Option<Rate>,
    /// Guaranteed bit rate: stored and reported, never policed.
    pub guaranteed: Option<Rate>,
    /// QFI with which downlink packets are marked.
    pub qfi: Option<u8>,
    /// Downlink packets carry the reflective QoS indication.
    pub reflective: bool,
    /// Paging policy indicator, 0 to 7.
    pub paging_policy: Option<u8>,
    /// Averaging window of a GBR flow in ms: the burst that the meter allows.
    pub window_ms: Option<u32>,
    /// Lane state slot with its meter, once assigned.
    pub line: u32,
}

/// IEs of a QER that are not supported: limits of packets by number, and marks.
const UNSUPPORTED: [IeType; 3] =
    [IeType::PACKET_RATE, IeType::PACKET_RATE_STATUS, IeType::DL_FLOW_LEVEL_MARKING];

/// Reads Create QER.
pub(crate) fn create(group: &Group<'_>) -> Result<Qer, Refusal> {
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
pub(crate) fn update(qer: &mut Qer, group: &Group<'_>) -> Result<(), Refusal> {
    Refusal::any_unsupported(group, &UNSUPPORTED)?;
    // Without a flag it asks for nothing.
    let controls = group.find::<ie::QerControlIndications>()?.unwrap_or_default();
    if controls.0 != 0 {
        return Err(Refusal::unsupported(IeType::QER_CONTROL_INDICATIONS));
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
