//! What each port is to the user plane: the interfaces on it, and which addresses are ours.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::kernel::mirror::{Answer, NextHop};
use fastlane::{Error, PortId, Turn};

use super::ways::Routes;
use crate::config::{Role, Settings};
use crate::session::InstanceId;

/// The Ethernet address that packets come from where Linux has no interface.
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The longest IP packet for a next hop that Linux does not know.
const FIXED_MTU: u32 = 1500;

/// What comes in by a port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    /// GTP-U addresses of all interfaces, and of those on this port the interface.
    own4: Vec<(Ipv4Addr, Option<u8>)>,
    own6: Vec<(Ipv6Addr, Option<u8>)>,
    /// The network instance of IP that came through no tunnel; `None`: such packets are Linux's.
    plain: Option<InstanceId>,
    /// Whether it is the way from lane to lane: the instance is in the frame.
    pub(crate) is_hairpin: bool,
}

impl Side {
    /// Whether IP without a tunnel can be for users.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain.is_some()
    }

    /// The network instance of IP that came through no tunnel.
    #[inline]
    pub(crate) fn plain(&self) -> InstanceId {
        self.plain.unwrap_or_default()
    }

    /// Whether an IPv4 address is one of our GTP-U addresses, and the interface if that is on this
    /// port.
    #[inline]
    pub(crate) fn own4(&self, address: Ipv4Addr) -> Option<Option<u8>> {
        self.own4.iter().find(|(own, _)| *own == address).map(|(_, interface)| *interface)
    }

    /// As [`own4`](Self::own4), of IPv6.
    #[inline]
    pub(crate) fn own6(&self, address: Ipv6Addr) -> Option<Option<u8>> {
        self.own6.iter().find(|(own, _)| *own == address).map(|(_, interface)| *interface)
    }
}

/// An interface of the user plane.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// Its port.
    pub(crate) port: PortId,
    /// What it is.
    pub(crate) role: Role,
    /// Its network instance.
    pub(crate) instance: InstanceId,
    /// Its first IPv4 address, from which its packets come.
    pub(crate) v4: Option<Ipv4Addr>,
    /// Its first IPv6 address.
    pub(crate) v6: Option<Ipv6Addr>,
    /// Linux's routing table for what leaves by it.
    pub(crate) route_table: Option<u32>,
    /// The next hop of all that leaves by it, whatever Linux routes.
    pub(crate) fixed: Option<NextHop>,
}

/// All interfaces of the user plane, in the order of their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sides {
    /// By the number of the port.
    sides: Vec<Side>,
    /// By place.
    pub(crate) interfaces: Vec<Interface>,
    /// The port by which packets from user to user change lanes.
    pub(crate) hairpin: Option<PortId>,
}

impl Sides {
    /// The interfaces of these settings; `port` finds a port by its name.
    ///
    /// # Errors
    /// What `port` says; what cannot be, in words.
    pub(crate) fn new(
        settings: &Settings,
        ports: usize,
        port: impl Fn(&str) -> Result<PortId, Error>,
    ) -> Result<Self, Error> {
        let mut sides = vec![Side::default(); ports];
        let mut interfaces = Vec::with_capacity(settings.interfaces.len());
        let mut own = Vec::new();
        for (place, (name, interface)) in settings.interfaces.iter().enumerate() {
            let id = port(&interface.port)?;
            let instance = settings.instance(&interface.network_instance).unwrap_or_default();
            let place = u8::try_from(place)
                .map_err(|_| wrong(name, "there are more than 256 interfaces".to_owned()))?;
            if interface.role == Role::N6 {
                let side = sides.get_mut(usize::from(id.0));
                let before = side.and_then(|side| side.plain.replace(instance));
                if before.is_some_and(|before| before != instance) {
                    let what = format!(
                        "its port `{}` is N6 of another network instance, too; give each a port",
                        interface.port
                    );
                    return Err(wrong(name, what));
                }
            } else {
                own.extend(interface.addresses.iter().map(|address| (*address, id, place)));
            }
            interfaces.push(Interface {
                port: id,
                role: interface.role,
                instance,
                v4: interface.addresses.iter().find_map(|address| match address {
                    IpAddr::V4(address) => Some(*address),
                    IpAddr::V6(_) => None,
                }),
                v6: interface.addresses.iter().find_map(|address| match address {
                    IpAddr::V6(address) => Some(*address),
                    IpAddr::V4(_) => None,
                }),
                route_table: interface.route_table,
                fixed: interface.fixed_hop().map(|address| fixed(id, address)),
            });
        }
        for (number, side) in sides.iter_mut().enumerate() {
            for (address, port, place) in &own {
                let here = (usize::from(port.0) == number).then_some(*place);
                match address {
                    IpAddr::V4(address) => side.own4.push((*address, here)),
                    IpAddr::V6(address) => side.own6.push((*address, here)),
                }
            }
        }
        Ok(Self { sides, interfaces, hairpin: None })
    }

    /// Says by which port packets from user to user change lanes.
    pub(crate) fn set_hairpin(&mut self, port: PortId) {
        self.hairpin = Some(port);
        if let Some(side) = self.sides.get_mut(usize::from(port.0)) {
            (side.is_hairpin, side.plain) = (true, Some(0));
        }
    }

    /// What comes in by a port.
    #[inline]
    pub(crate) fn of(&self, port: PortId) -> Option<&Side> {
        self.sides.get(usize::from(port.0))
    }

    /// Whether an address is one of our GTP-U addresses.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        let side = self.sides.first();
        match address {
            IpAddr::V4(address) => side.is_some_and(|side| side.own4(address).is_some()),
            IpAddr::V6(address) => side.is_some_and(|side| side.own6(address).is_some()),
        }
    }

    /// The interface of a role by which packets leave a port, in a network instance if there is one
    /// named.
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
                && instance.is_none_or(|instance| instance == interface.instance)
        })
    }

    /// What decides about what leaves by interfaces of a role, in a network instance if there is
    /// one named: Linux's routing table, or one next hop.
    pub(crate) fn leading(
        &self,
        instance: Option<InstanceId>,
        accepts: impl Fn(Role) -> bool,
    ) -> Leading {
        let is_it = |interface: &&Interface| {
            accepts(interface.role)
                && instance.is_none_or(|instance| instance == interface.instance)
        };
        match self.interfaces.iter().find(is_it) {
            Some(Interface { fixed: Some(hop), .. }) => Leading::Fixed(*hop),
            found => Leading::Table(found.and_then(|interface| interface.route_table)),
        }
    }

    /// An address of ours that errors about users' packets come from: of N6 if there is one.
    pub(crate) fn speaker(&self, is_v6: bool) -> Option<IpAddr> {
        let of = |interface: &Interface| match is_v6 {
            false => interface.v4.map(IpAddr::V4),
            true => interface.v6.map(IpAddr::V6),
        };
        let (n6, others): (Vec<&Interface>, Vec<&Interface>) =
            self.interfaces.iter().partition(|interface| interface.role == Role::N6);
        n6.into_iter().chain(others).find_map(of)
    }
}

/// What decides where packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leading {
    /// Linux's routing table of this number; without one, the first that is mirrored.
    Table(Option<u32>),
    /// All go there.
    Fixed(NextHop),
}

impl Leading {
    /// The way of a packet, of which the flow hash chooses where there are several.
    #[inline]
    pub(crate) fn way<R: Routes>(self, routes: &R, turn: &Turn, to: IpAddr, flow: u32) -> Answer {
        match self {
            Self::Table(table) => routes.way(turn, table, to, flow),
            Self::Fixed(hop) => Answer::Forward(hop),
        }
    }
}

/// A next hop that Linux does not know.
const fn fixed(port: PortId, destination: [u8; 6]) -> NextHop {
    NextHop { port, source: OWN, destination, mtu: FIXED_MTU, link: 0, route: 0 }
}

fn wrong(interface: &str, what: String) -> Error {
    Error::Value { path: format!("app.interfaces.{interface}"), what, meant: None }
}
