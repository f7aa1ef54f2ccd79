//! UE address pools: addresses that belong to UEs, with or without a session.

use std::net::IpAddr;

use super::lane_tables::DestinationAddress;
use crate::config::{Settings, addresses};
use crate::session::{InstanceId, Prefix};

/// UE address pools of all network instances.
#[derive(Clone, Debug, Default)]
pub(crate) struct UePools {
    four: Vec<(InstanceId, u32, u32)>,
    six: Vec<(InstanceId, u128, u128)>,
}

impl UePools {
    /// Creates the pools of a configuration.
    ///
    /// # Errors
    /// Returns the reason if a prefix is invalid, with the remedy.
    pub(crate) fn new(settings: &Settings) -> Result<Self, String> {
        let mut pools = Self::default();
        for pool in &settings.pools {
            let instance = settings.instance(&pool.network_instance).unwrap_or_default();
            let Prefix { address, length } = addresses::prefix(&pool.prefix)?;
            let length = u32::from(length);
            match address {
                IpAddr::V4(address) => {
                    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                    pools.four.push((instance, address.to_bits(), mask));
                }
                IpAddr::V6(address) => {
                    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
                    pools.six.push((instance, address.to_bits(), mask));
                }
            }
        }
        Ok(pools)
    }

    /// Returns true if an address is in a pool of the network instance.
    #[inline]
    pub(crate) fn has(&self, instance: InstanceId, to: DestinationAddress) -> bool {
        match to {
            DestinationAddress::V4(address) => {
                let is_in_instance = |(of, prefix, mask): &(InstanceId, u32, u32)| {
                    *of == instance && address.to_bits() & mask == *prefix
                };
                self.four.iter().any(is_in_instance)
            }
            DestinationAddress::V6(address) => {
                let is_in_instance = |(of, prefix, mask): &(InstanceId, u128, u128)| {
                    *of == instance && address.to_bits() & mask == *prefix
                };
                self.six.iter().any(is_in_instance)
            }
        }
    }
}
