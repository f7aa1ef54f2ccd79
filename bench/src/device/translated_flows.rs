//! UDP flows behind a masquerade, as a slow path writes them.

use fastlane::mirror::flows::{FlowKey, FlowRecord, FlowStatistics, FlowStatus, PinsPath};

/// Returns the flows of the [`FlowGenerator`](super::frame_generator::FlowGenerator), whose source
/// is translated to the router's address.
pub fn translated_flows(flows: u32) -> impl Iterator<Item = (FlowKey, FlowRecord)> {
    let address = |net: u8, flow: u32| {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&(u32::from(net) << 24 | flow).to_be_bytes());
        octets
    };
    (0..flows).map(move |flow| {
        let (source, destination) = (address(10, flow), address(20, flow));
        let ports = [4000, 53];
        let key = FlowKey { source, destination, ports, zone: 0, protocol: 17, version: 4 };
        // The sink does not look at checksums, so the differences are any.
        let between = FlowRecord::between(address(20, 0xff_0001), destination);
        let (ports, differences) = ([5000, 53], [1, 2]);
        let record = FlowRecord { ports, differences, id: flow, ..between };
        (key, record)
    })
}

/// Returns the status of a slow path that never dies.
#[must_use]
pub fn living_status() -> FlowStatus {
    FlowStatus {
        heartbeat: u64::MAX / 2,
        grace: 0,
        is_active: 1,
        mark: 1,
        mask: 1,
        one_way: 1,
        rules: 0,
        statistics: FlowStatistics::default(),
        pins: PinsPath::default(),
    }
}
