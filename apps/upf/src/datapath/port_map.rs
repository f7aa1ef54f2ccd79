//! Port map: the user plane interfaces on each port, the local GTP-U addresses, and the UE address
//! pools.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::NextHop;
use fastlane::wire::{Ethernet, header};
use fastlane::{Error, PortId};

use super::lane_tables::DestinationAddress;
use super::routes::RouteSource;
use crate::config::{Role, Settings, SourcePort, addresses};
use crate::session::{InstanceId, Prefix};

/// Source Ethernet address of ports without a Linux interface.
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Fourth octet of the destination of outer packets that change lanes after their reassembly.
const REASSEMBLED: u8 = 1;
/// Source of ICMP errors of nodes without an IPv4 address (RFC 7600 clause 4.8), as in Linux.
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// MTU towards a configured next hop.
const FIXED_MTU: u32 = 1500;

/// Role of a port for received packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortRole {
    /// Local GTP-U addresses of all interfaces, with the interface if it is on this port.
    own4: Vec<(Ipv4Addr, Option<u8>)>,
    own6: Vec<(Ipv6Addr, Option<u8>)>,
    /// Network instance of IP packets without a tunnel; `None`: they belong to Linux.
    ip_instance: Option<InstanceId>,
    /// True for the port between lanes; its frames carry the network instance.
    pub(crate) is_hairpin: bool,
}

impl PortRole {
    /// Creates the role of a port with one local IPv4 address.
    #[cfg(test)]
    pub(crate) fn new4(
        own: Ipv4Addr,
        interface: Option<u8>,
        ip_instance: Option<InstanceId>,
        is_hairpin: bool,
    ) -> Self {
        Self { own4: vec![(own, interface)], own6: Vec::new(), ip_instance, is_hairpin }
    }

    /// Adds a local IPv6 address.
    #[cfg(test)]
    pub(crate) fn with6(mut self, own: Ipv6Addr, interface: Option<u8>) -> Self {
        self.own6.push((own, interface));
        self
    }

    /// Returns true if IP packets without a tunnel can be for UEs.
    #[inline]
    pub(crate) fn takes_ip(&self) -> bool {
        self.ip_instance.is_some()
    }

    /// Returns the network instance of a frame with an IP packet without a tunnel.
    #[inline]
    pub(crate) fn instance_of(&self, frame: &[u8]) -> InstanceId {
        if !self.is_hairpin {
            return self.ip_instance.unwrap_or_default();
        }
        let ethernet = header::<Ethernet>(frame, 0);
        let [.., high, low] = ethernet.map_or([0; 6], |ethernet| ethernet.destination.0);
        InstanceId::from_be_bytes([high, low])
    }

    /// Returns the interface on which a GTP-U packet arrived before it changed lanes, if it did.
    #[cold]
    pub(crate) fn interface_before(&self, frame: &[u8]) -> Option<u8> {
        let [.., kind, _, interface] = header::<Ethernet>(frame, 0)?.destination.0;
        (self.is_hairpin && kind == REASSEMBLED).then_some(interface)
    }

    /// Returns `None` if an IPv4 address is no local GTP-U address, otherwise the interface if it
    /// is on this port.
    #[inline]
    pub(crate) fn own4(&self, address: Ipv4Addr) -> Option<Option<u8>> {
        self.own4.iter().find(|(own, _)| *own == address).map(|(_, interface)| *interface)
    }

    /// Returns the same as [`own4`](Self::own4) for IPv6.
    #[inline]
    pub(crate) fn own6(&self, address: Ipv6Addr) -> Option<Option<u8>> {
        self.own6.iter().find(|(own, _)| *own == address).map(|(_, interface)| *interface)
    }
}

/// A user plane interface.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// Port of the interface.
    pub(crate) port: PortId,
    /// Role: N3, N9 or N6.
    pub(crate) role: Role,
    /// Network instance of packets that arrive by it: the first one that it serves.
    pub(crate) instance: InstanceId,
    /// Network instances of packets that leave by it.
    pub(crate) exits: Vec<InstanceId>,
    /// First IPv4 address, the source of its packets.
    pub(crate) v4: Option<Ipv4Addr>,
    /// First IPv6 address.
    pub(crate) v6: Option<Ipv6Addr>,
    /// Linux routing table for packets that leave by it.
    pub(crate) route_table: Option<u32>,
    /// Configured source addresses of ICMP errors: IPv4, IPv6.
    pub(crate) icmp4: Option<Ipv4Addr>,
    pub(crate) icmp6: Option<Ipv6Addr>,
    /// Configured next hop for everything that leaves by it, regardless of Linux's routes.
    pub(crate) configured_next_hop: Option<NextHop>,
}

/// All user plane interfaces, in the order of their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortMap {
    /// By port number.
    ports: Vec<PortRole>,
    /// By index.
    pub(crate) interfaces: Vec<Interface>,
    /// Port by which packets between UEs change lanes.
    pub(crate) hairpin: Option<PortId>,
    /// UDP source port of user data.
    pub(crate) source_port: SourcePort,
}

impl Interface {
    /// Returns true if packets of a network instance leave by it.
    #[expect(clippy::manual_contains, reason = "`contains` is not inlined")]
    #[inline(always)]
    fn leads_to(&self, instance: InstanceId) -> bool {
        self.exits.iter().any(|exit| *exit == instance)
    }
}

impl PortMap {
    /// Creates the port map of a configuration; `port` finds a port by its name.
    ///
    /// # Errors
    /// Errors of `port`, and invalid settings.
    pub(crate) fn new(
        settings: &Settings,
        ports: usize,
        port: impl Fn(&str) -> Result<PortId, Error>,
    ) -> Result<Self, Error> {
        let mut ports = vec![PortRole::default(); ports];
        let mut interfaces = Vec::with_capacity(settings.interfaces.len());
        let mut own = Vec::new();
        let network = settings.network();
        for (index, (name, interface)) in settings.interfaces.iter().enumerate() {
            let id = port(&interface.port)?;
            let exits = network.served_by(index);
            let instance = exits.first().copied().unwrap_or_default();
            let index = u8::try_from(index)
                .map_err(|_| wrong(name, "there are more than 256 interfaces".to_owned()))?;
            if interface.role == Role::N6 {
                let role = ports.get_mut(usize::from(id.0));
                let before = role.and_then(|role| role.ip_instance.replace(instance));
                if before.is_some_and(|before| before != instance) {
                    let what = format!(
                        "its port `{}` is N6 of another network instance, too; give each a port",
                        interface.port
                    );
                    return Err(wrong(name, what));
                }
            } else {
                own.extend(interface.addresses.iter().map(|address| (*address, id, index)));
            }
            interfaces.push(Interface {
                port: id,
                role: interface.role,
                instance,
                exits,
                v4: first_v4(&interface.addresses),
                v6: first_v6(&interface.addresses),
                icmp4: first_v4(&interface.icmp_addresses),
                icmp6: first_v6(&interface.icmp_addresses),
                route_table: interface.route_table,
                configured_next_hop: interface
                    .fixed_hop()
                    .map(|address| configured_next_hop(id, address)),
            });
        }
        for (number, role) in ports.iter_mut().enumerate() {
            for (address, port, index) in &own {
                let interface = (usize::from(port.0) == number).then_some(*index);
                match address {
                    IpAddr::V4(address) => role.own4.push((*address, interface)),
                    IpAddr::V6(address) => role.own6.push((*address, interface)),
                }
            }
        }
        let source_port = settings.gtp.udp_source_port;
        Ok(Self { ports, interfaces, hairpin: None, source_port })
    }

    /// Sets the port by which packets between UEs change lanes.
    pub(crate) fn set_hairpin(&mut self, port: PortId) {
        self.hairpin = Some(port);
        if let Some(role) = self.ports.get_mut(usize::from(port.0)) {
            (role.is_hairpin, role.ip_instance) = (true, Some(0));
        }
    }

    /// Returns the role of a port.
    #[inline]
    pub(crate) fn of(&self, port: PortId) -> Option<&PortRole> {
        self.ports.get(usize::from(port.0))
    }

    /// Returns true if an address is a local GTP-U address.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        let role = self.ports.first();
        match address {
            IpAddr::V4(address) => role.is_some_and(|role| role.own4(address).is_some()),
            IpAddr::V6(address) => role.is_some_and(|role| role.own6(address).is_some()),
        }
    }

    /// Returns the interface by which packets leave a port, by role and, if given, network
    /// instance.
    #[inline]
    pub(crate) fn exit(
        &self,
        port: PortId,
        instance: Option<InstanceId>,
        accepts: impl Fn(Role) -> bool,
    ) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| {
            interface.port == port
                && accepts(interface.role)
                && instance.is_none_or(|instance| interface.leads_to(instance))
        })
    }

    /// Returns what routes packets that leave by interfaces of a role and, if given, a network
    /// instance.
    pub(crate) fn route_source(
        &self,
        instance: Option<InstanceId>,
        accepts: impl Fn(Role) -> bool,
    ) -> RouteSource {
        let is_it = |interface: &&Interface| {
            accepts(interface.role) && instance.is_none_or(|instance| interface.leads_to(instance))
        };
        match self.interfaces.iter().find(is_it) {
            Some(Interface { configured_next_hop: Some(hop), .. }) => RouteSource::Fixed(*hop),
            found => RouteSource::Table(found.and_then(|interface| interface.route_table)),
        }
    }

    /// Returns the source address of ICMP errors about packets of a network instance: of its N6, as
    /// configured or as `of_linux` finds it for a port, then of another N6, then one that is
    /// configured elsewhere. Addresses of the access network are never used.
    pub(crate) fn icmp_source(
        &self,
        instance: Option<InstanceId>,
        is_v6: bool,
        of_linux: impl Fn(PortId) -> Option<IpAddr>,
    ) -> Option<IpAddr> {
        let configured = |interface: &Interface| match is_v6 {
            false => interface.icmp4.map(IpAddr::V4),
            true => interface.icmp6.map(IpAddr::V6),
        };
        let n6 = || self.interfaces.iter().filter(|interface| interface.role == Role::N6);
        let serves =
            |interface: &&Interface| instance.is_some_and(|instance| interface.leads_to(instance));
        let dummy = (!is_v6).then_some(IpAddr::V4(DUMMY));
        n6().filter(serves)
            .chain(n6())
            .find_map(|interface| configured(interface).or_else(|| of_linux(interface.port)))
            .or_else(|| self.interfaces.iter().find_map(configured))
            .or(dummy)
    }
}

fn first_v4(addresses: &[IpAddr]) -> Option<Ipv4Addr> {
    addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    })
}

fn first_v6(addresses: &[IpAddr]) -> Option<Ipv6Addr> {
    addresses.iter().find_map(|address| match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    })
}

/// Returns the Ethernet destination of a packet between UEs, which carries its network instance.
pub(crate) fn between_ues(instance: InstanceId) -> [u8; 6] {
    let [high, low] = instance.to_be_bytes();
    [2, 0, 0, 0, high, low]
}

/// Returns the Ethernet destination of an outer packet that changes lanes after its reassembly. It
/// carries the interface on which its fragments arrived.
pub(crate) const fn reassembled(interface: u8) -> [u8; 6] {
    [2, 0, 0, REASSEMBLED, 0, interface]
}

/// Builds a configured next hop.
const fn configured_next_hop(port: PortId, destination: [u8; 6]) -> NextHop {
    let (mtu, link, route, is_divided) = (FIXED_MTU, 0, 0, false);
    NextHop { port, source: OWN, destination, mtu, link, route, is_divided }
}

fn wrong(interface: &str, what: String) -> Error {
    Error::Value { path: format!("app.interfaces.{interface}"), what, meant: None }
}

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
        let network = settings.network();
        for pool in &settings.pools {
            let instance = settings.instance(&pool.network_instance);
            let instance = instance.and_then(|it| network.domain(it)).unwrap_or_default();
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
    // A call would keep the address in memory.
    #[inline(always)]
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
