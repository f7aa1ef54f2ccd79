//! Source and destination addresses and ports of the flows.

use std::net::IpAddr;

use crate::settings::{Flows, SettingsError, refuse};

/// Checked sizes of the address and port ranges.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    source_ports: u32,
}

impl Addresses {
    /// Checks the ranges of `flows` and computes the missing ones.
    ///
    /// # Errors
    /// Names the setting that is not allowed.
    pub(crate) fn check(flows: &Flows) -> Result<Self, SettingsError> {
        let Flows { count, source_address, destination_address, .. } = flows;
        if !(1..=65536).contains(count) {
            refuse("flows.count", format!("is {count}; allowed is 1 to 65536"))?;
        }
        if source_address.is_ipv4() != destination_address.is_ipv4() {
            let reason = format!("{destination_address} is not of the family of {source_address}");
            refuse("flows.destination-address", reason)?;
        }
        if let Some(vlan) = flows.vlan.filter(|vlan| *vlan > 4094) {
            refuse("flows.vlan", format!("is {vlan}; allowed is 0 to 4094"))?;
        }
        let ranges = [flows.source_addresses, flows.destination_addresses, flows.destination_ports];
        let others: u64 = ranges.iter().map(|n| u64::from(*n)).product::<u64>().max(1);
        let needed = u64::from(*count).div_ceil(others) as u32;
        let source_ports = flows.source_ports.unwrap_or(needed);
        for (key, number, first) in [
            ("flows.source-addresses", flows.source_addresses, 0),
            ("flows.destination-addresses", flows.destination_addresses, 0),
            ("flows.source-ports", source_ports, flows.source_port),
            ("flows.destination-ports", flows.destination_ports, flows.destination_port),
        ] {
            let most = 65536 - u32::from(first);
            if !(1..=most).contains(&number) {
                refuse(key, format!("is {number}; allowed is 1 to {most} from the first one on"))?;
            }
        }
        let most = others * u64::from(source_ports);
        if u64::from(*count) > most {
            let reason =
                format!("is {count}, but the addresses and ports make only {most}; widen a range");
            refuse("flows.count", reason)?;
        }
        Ok(Self { source_ports })
    }

    /// Returns source and destination of flow number `flow`.
    pub(crate) fn of(self, flows: &Flows, flow: u32) -> [(IpAddr, u16); 2] {
        let mut rest = flow;
        let mut next = |range: u32| {
            let offset = rest % range;
            rest /= range;
            offset
        };
        let source = plus(flows.source_address, next(flows.source_addresses));
        let destination = plus(flows.destination_address, next(flows.destination_addresses));
        let source_port = flows.source_port + next(self.source_ports) as u16;
        let destination_port = flows.destination_port + next(flows.destination_ports) as u16;
        [(source, source_port), (destination, destination_port)]
    }
}

/// Returns the address that is `offset` after `first`; it wraps.
fn plus(first: IpAddr, offset: u32) -> IpAddr {
    match first {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address).wrapping_add(offset)).into()),
        IpAddr::V6(address) => {
            IpAddr::V6((u128::from(address).wrapping_add(u128::from(offset))).into())
        }
    }
}
