//! Selection of the GTP-U path of a FAR.

use std::net::IpAddr;

use crate::config::{Role, Settings};
use crate::session::{Destination, Forwarding, InstanceId, OuterHeader, Session};

/// GTP-U path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Index of the interface in the configuration.
    pub interface: u16,
    /// Address of the peer.
    pub remote: IpAddr,
}

/// Interfaces with GTP-U addresses.
#[derive(Clone, Debug)]
pub struct Interfaces {
    all: Vec<Interface>,
}

#[derive(Clone, Debug)]
struct Interface {
    place: u16,
    role: Role,
    instance: Option<InstanceId>,
    addresses: Vec<IpAddr>,
}

impl Interfaces {
    /// Creates the list from settings.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let all = (0..).zip(settings.interfaces.values()).map(|(place, it)| Interface {
            place,
            role: it.role,
            instance: settings.instance(&it.network_instance),
            addresses: it.addresses.clone(),
        });
        Self { all: all.filter(|it| it.role != Role::N6).collect() }
    }

    /// Returns the paths of a session, one for each FAR that forwards or duplicates into a tunnel.
    pub fn routes<'a>(&'a self, session: &'a Session) -> impl Iterator<Item = Route> + 'a {
        let ways =
            session.fars.iter().flat_map(|far| far.forwarding.iter().chain(&far.duplicating));
        ways.filter_map(|way| self.route(way))
    }

    pub(super) fn route(&self, way: &Forwarding) -> Option<Route> {
        let OuterHeader { teid: Some(_), v4, v6, .. } = way.outer? else { return None };
        let remote = v4.map(IpAddr::V4).or(v6.map(IpAddr::V6))?;
        let wanted = match way.destination {
            Destination::Access => Role::N3,
            Destination::Core | Destination::SgiLan => Role::N9,
            Destination::Control => return None,
        };
        let fits = |it: &&Interface| {
            let of_instance = way.instance.is_none_or(|wanted| it.instance == Some(wanted));
            of_instance && it.addresses.iter().any(|ours| ours.is_ipv4() == remote.is_ipv4())
        };
        let fitting = || self.all.iter().filter(fits);
        let found = fitting().find(|it| it.role == wanted).or_else(|| fitting().next())?;
        Some(Route { interface: found.place, remote })
    }

    /// Returns our address on a path.
    #[must_use]
    pub fn local(&self, route: Route) -> Option<IpAddr> {
        let interface = self.all.iter().find(|it| it.place == route.interface)?;
        let same = |ours: &&IpAddr| ours.is_ipv4() == route.remote.is_ipv4();
        interface.addresses.iter().find(same).copied()
    }
}
