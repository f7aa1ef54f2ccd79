//! Network instances and our addresses in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::NetworkInstance;

use super::{InstanceId, Source};
use crate::config::{Role, Settings};

/// Network instances and GTP-U addresses of the settings.
#[derive(Clone, Debug)]
pub struct Network {
    names: Vec<String>,
    interfaces: Vec<Side>,
}

#[derive(Clone, Copy, Debug)]
struct Side {
    instance: InstanceId,
    role: Role,
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl Network {
    /// Creates the table from settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let names = settings.instances().into_iter().map(str::to_owned).collect();
        let side = |it: &crate::config::Interface| {
            let v4 = it.addresses.iter().find_map(|address| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            });
            let v6 = it.addresses.iter().find_map(|address| match address {
                IpAddr::V6(address) => Some(*address),
                IpAddr::V4(_) => None,
            });
            Some(Side { instance: settings.instance(&it.network_instance)?, role: it.role, v4, v6 })
        };
        Self { names, interfaces: settings.interfaces.values().filter_map(side).collect() }
    }

    /// Returns the network instance with a name, in text or label form.
    #[must_use]
    pub fn instance(&self, name: NetworkInstance<'_>) -> Option<InstanceId> {
        let place = self.names.iter().position(|known| name.is(known))?;
        InstanceId::try_from(place).ok()
    }

    /// Returns our addresses for a tunnel with packets from `source`. They are in `instance` if it
    /// is given, else on the interface where such packets usually arrive.
    #[must_use]
    pub fn endpoint(
        &self,
        instance: Option<InstanceId>,
        source: Source,
    ) -> Option<(Option<Ipv4Addr>, Option<Ipv6Addr>)> {
        let first = if source == Source::Access { Role::N3 } else { Role::N9 };
        let fits = |side: &&Side| {
            side.role != Role::N6 && instance.is_none_or(|instance| side.instance == instance)
        };
        let sides = self.interfaces.iter().filter(fits);
        let side = sides.min_by_key(|side| side.role != first)?;
        Some((side.v4, side.v6))
    }

    /// Returns the default data network: the first one.
    #[must_use]
    pub fn data_network(&self) -> InstanceId {
        let n6 = self.interfaces.iter().find(|side| side.role == Role::N6);
        n6.map_or(0, |side| side.instance)
    }

    /// Returns true if an N6 interface has this network instance.
    #[must_use]
    pub fn is_data_network(&self, instance: InstanceId) -> bool {
        self.interfaces.iter().any(|side| side.instance == instance && side.role == Role::N6)
    }
}
