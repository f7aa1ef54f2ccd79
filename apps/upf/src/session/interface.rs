//! Interfaces of the user plane: reference points, network instances and our addresses in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{FailedRuleId, NetworkInstance};
use fastlane_pfcp::{Group, IeType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InstanceId, Refusal};

/// Reference point of a user plane interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// GTP-U from and to the access network.
    N3,
    /// GTP-U from and to other UPFs.
    N9,
    /// IP from and to the data network.
    N6,
}

/// Source Interface (TS 29.244 clause 8.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Source {
    /// Access network: N3, or N9 from a UPF closer to it.
    Access = 0,
    /// Core: N6, or N9 from a UPF closer to the data network.
    Core = 1,
    /// SGi-LAN or N6-LAN: a local network beside the data network.
    SgiLan = 2,
    /// Control plane function (N4-u).
    Control = 3,
}

/// Destination Interface (clause 8.2.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Destination {
    /// Access network.
    Access = 0,
    /// Core network.
    Core = 1,
    /// SGi-LAN or N6-LAN: a local network beside the data network.
    SgiLan = 2,
    /// Control plane function (N4-u).
    Control = 3,
}

/// Network instances and GTP-U addresses of the settings.
#[derive(Clone, Debug)]
pub struct Network {
    names: Vec<String>,
    interfaces: Vec<LocalInterface>,
}

/// User plane interface with our first address of each family.
#[derive(Clone, Copy, Debug)]
struct LocalInterface {
    instance: InstanceId,
    role: Role,
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl Network {
    /// Creates the table from the names of the network instances, in the order of their indices.
    #[must_use]
    pub const fn new(names: Vec<String>) -> Self {
        Self { names, interfaces: Vec::new() }
    }

    /// Adds an interface with our GTP-U addresses, of which the first of each family is used.
    pub fn add(&mut self, role: Role, instance: InstanceId, addresses: &[IpAddr]) {
        let v4 = addresses.iter().find_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        let v6 = addresses.iter().find_map(|address| match address {
            IpAddr::V6(address) => Some(*address),
            IpAddr::V4(_) => None,
        });
        self.interfaces.push(LocalInterface { instance, role, v4, v6 });
    }

    /// Returns the network instance with a name, in text or label form.
    #[must_use]
    pub fn instance(&self, name: NetworkInstance<'_>) -> Option<InstanceId> {
        let index = self.names.iter().position(|known| name.is(known))?;
        InstanceId::try_from(index).ok()
    }

    /// Reads the Network Instance of a PDI or of forwarding parameters, if there is one.
    ///
    /// # Errors
    /// No interface or pool is in this network instance; `failed` is the rule that names it.
    pub(crate) fn instance_of(
        &self,
        group: &Group<'_>,
        failed: FailedRuleId,
    ) -> Result<Option<InstanceId>, Refusal> {
        let Some(name) = group.find::<NetworkInstance<'_>>()? else { return Ok(None) };
        let unknown = Refusal::rule_by(failed, IeType::NETWORK_INSTANCE);
        self.instance(name).map(Some).ok_or(unknown)
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
        let fits = |it: &&LocalInterface| {
            it.role != Role::N6 && instance.is_none_or(|instance| it.instance == instance)
        };
        let interfaces = self.interfaces.iter().filter(fits);
        let interface = interfaces.min_by_key(|it| it.role != first)?;
        Some((interface.v4, interface.v6))
    }

    /// Returns the default data network: the first one.
    #[must_use]
    pub fn data_network(&self) -> InstanceId {
        let n6 = self.interfaces.iter().find(|it| it.role == Role::N6);
        n6.map_or(0, |it| it.instance)
    }

    /// Returns true if an N6 interface has this network instance.
    #[must_use]
    pub fn is_data_network(&self, instance: InstanceId) -> bool {
        self.interfaces.iter().any(|it| it.instance == instance && it.role == Role::N6)
    }
}
