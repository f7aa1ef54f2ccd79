//! Buffering action rules (TS 29.244 tables 7.5.2.6-1 and 7.5.4.11-1).

use fastlane_pfcp::{Group, ie};

use super::BarId;
use super::refusal::Refusal;

/// Buffering action rule (table 7.5.2.6-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffering {
    /// BAR ID.
    pub id: BarId,
    /// Delay from the first packet to the downlink data notification, in ms (clause 8.2.28: units
    /// of 50 ms).
    pub notification_delay_ms: u32,
    /// Maximum number of buffered packets (Suggested Buffering Packets Count, clause 8.2.100).
    pub packets: Option<u32>,
    /// Maximum buffering time in ms (DL Buffering Duration of a report response, clause 8.2.47).
    pub duration_ms: Option<u64>,
}

/// Applies Create BAR or Update BAR; absent IEs change nothing.
pub(crate) fn apply(bar: &mut Buffering, group: &Group<'_>) -> Result<(), Refusal> {
    if let Some(delay) = group.find::<ie::DownlinkDataNotificationDelay>()? {
        bar.notification_delay_ms = u32::from(delay.0) * 50;
    }
    if let Some(count) = group.find::<ie::SuggestedBufferingPacketsCount>()? {
        bar.packets = Some(u32::from(count.0));
    }
    Ok(())
}
