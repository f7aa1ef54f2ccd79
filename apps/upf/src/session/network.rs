//! Network instances and our GTP-U addresses, as the settings describe them.
//!
//! An interface serves the network instances that it lists, or all that no other one lists. SMFs
//! differ in what they call a network instance: some name the access network, most name the data
//! network (DNN) for uplink and downlink alike. So a tunnel endpoint is that of an interface that
//! lists the name, else of one that lists none, else that of the role, which several data networks
//! share. A packet of the data network has no such choice: an N6 interface must serve the name.
//!
//! The network instances of one N6 interface have their UE addresses in common, because packets
//! from the data network do not say which one they belong to. Their first index stands for them
//! all, in lookup keys and in rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{FailedRuleId, NetworkInstance};
use fastlane_pfcp::{Group, IeType};

use super::{InstanceId, Refusal, Role, Source};

/// Addresses in both families.
type AddressPair = (Option<Ipv4Addr>, Option<Ipv6Addr>);

/// Index of all network instances that the settings do not name. It is the same for every
/// configuration, because rules and keys in the tables outlive a reload.
const UNLISTED: InstanceId = InstanceId::MAX - 1;

/// Network instances and interfaces of the settings.
#[derive(Clone, Debug)]
pub struct Network {
    /// Names by index; empty for an index whose name is no longer configured.
    names: Vec<String>,
    interfaces: Vec<LocalInterface>,
    /// First address of N4 of each family, for tunnels of control plane functions.
    n4: AddressPair,
}

/// User plane interface with our first address of each family.
#[derive(Clone, Debug)]
struct LocalInterface {
    /// Network instances that it lists; empty if it serves all others.
    instances: Vec<InstanceId>,
    role: Role,
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl LocalInterface {
    fn is_tunnel(&self) -> bool {
        self.role != Role::N6
    }
}

impl Network {
    /// Creates the table from the names of the network instances, in the order of their indices.
    #[must_use]
    pub const fn new(names: Vec<String>) -> Self {
        Self { names, interfaces: Vec::new(), n4: (None, None) }
    }

    /// Adds the next interface of the settings, with the network instances that it lists and our
    /// GTP-U addresses, of which the first of each family is used.
    pub fn add(&mut self, role: Role, instances: Vec<InstanceId>, addresses: &[IpAddr]) {
        let (v4, v6) = first_of_each(addresses);
        self.interfaces.push(LocalInterface { instances, role, v4, v6 });
    }

    /// Sets our addresses on N4 at which control plane functions send user packets. Without any,
    /// they send them to an interface for tunnels.
    pub fn set_n4(&mut self, addresses: &[IpAddr]) {
        self.n4 = first_of_each(addresses);
    }

    /// Returns our addresses on N4 if packets from `source` arrive there.
    fn n4_of(&self, source: Source) -> Option<AddressPair> {
        let has_any = self.n4.0.is_some() || self.n4.1.is_some();
        (source == Source::Control && has_any).then_some(self.n4)
    }

    /// Returns the index of all network instances that the settings do not name.
    #[must_use]
    pub const fn unlisted(&self) -> InstanceId {
        UNLISTED
    }

    /// Returns the network instance with a name, in text or label form. A name that the settings
    /// do not have exists if an interface serves all.
    #[must_use]
    pub fn instance(&self, name: NetworkInstance<'_>) -> Option<InstanceId> {
        let index = self.names.iter().position(|known| !known.is_empty() && name.is(known));
        let unlisted = || {
            let serves_all = self.interfaces.iter().any(|it| it.instances.is_empty());
            serves_all.then(|| self.unlisted())
        };
        index.and_then(|index| InstanceId::try_from(index).ok()).or_else(unlisted)
    }

    /// Returns the name of a network instance of the settings.
    #[must_use]
    pub fn name(&self, instance: InstanceId) -> Option<&str> {
        let name = self.names.get(usize::from(instance)).map(String::as_str);
        name.filter(|name| !name.is_empty())
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

    /// Returns the interfaces for tunnels of a network instance: those that list it, else those
    /// that list none, else all if it is a data network's. Without a network instance, all.
    fn tunnels(&self, instance: Option<InstanceId>) -> impl Iterator<Item = &LocalInterface> {
        let all = || self.interfaces.iter().filter(|it| it.is_tunnel());
        let lists = |it: &LocalInterface| instance.is_some_and(|id| it.instances.contains(&id));
        let is_listed = all().any(lists);
        let has_other = all().any(|it| it.instances.is_empty());
        let is_known = instance.is_none_or(|id| self.domain(id).is_some());
        all().filter(move |it| match instance {
            Some(id) if is_listed => it.instances.contains(&id),
            Some(_) if has_other => it.instances.is_empty(),
            _ => is_known,
        })
    }

    /// Returns true if an interface, by its position in the settings, is one for tunnels of a
    /// network instance.
    #[must_use]
    pub fn is_tunnel_of(&self, interface: usize, instance: Option<InstanceId>) -> bool {
        let meant = self.interfaces.get(interface);
        meant.is_some_and(|meant| self.tunnels(instance).any(|it| std::ptr::eq(it, meant)))
    }

    /// Returns our addresses for a tunnel with packets from `source`: on N4 if it is the CP
    /// function, else in `instance` if it is given, and on the interface where such packets usually
    /// arrive.
    #[must_use]
    pub fn endpoint(
        &self,
        instance: Option<InstanceId>,
        source: Source,
    ) -> Option<(Option<Ipv4Addr>, Option<Ipv6Addr>)> {
        self.n4_of(source).or_else(|| self.interface_endpoint(instance, source))
    }

    /// Returns our addresses for a tunnel like [`endpoint`](Self::endpoint), but on an interface
    /// for tunnels also for the CP function.
    #[must_use]
    pub fn interface_endpoint(
        &self,
        instance: Option<InstanceId>,
        source: Source,
    ) -> Option<(Option<Ipv4Addr>, Option<Ipv6Addr>)> {
        let first = role_of(source);
        let interface = self.tunnels(instance).min_by_key(|it| it.role != first)?;
        Some((interface.v4, interface.v6))
    }

    /// Returns our addresses for a tunnel like [`endpoint`](Self::endpoint), if no other interface
    /// of the role could be meant. Without an address of N4, the CP function sends by any role
    /// where there is no N3.
    #[must_use]
    pub fn only_endpoint(
        &self,
        instance: Option<InstanceId>,
        source: Source,
    ) -> Option<(Option<Ipv4Addr>, Option<Ipv6Addr>)> {
        if let Some(n4) = self.n4_of(source) {
            return Some(n4);
        }
        let role = role_of(source);
        let has_role = self.tunnels(instance).any(|it| it.role == role);
        let is_any = source == Source::Control && !has_role;
        let mut fitting = self.tunnels(instance).filter(|it| is_any || it.role == role);
        let only = fitting.next()?;
        fitting.next().is_none().then_some((only.v4, only.v6))
    }

    /// Returns true if this is one of our GTP-U addresses in use.
    #[must_use]
    pub fn is_endpoint(&self, address: IpAddr) -> bool {
        self.interfaces.iter().filter(|it| it.is_tunnel()).any(|it| match address {
            IpAddr::V4(address) => it.v4 == Some(address),
            IpAddr::V6(address) => it.v6 == Some(address),
        })
    }

    /// Returns the address of a peer that we can send to: the IPv4 address if an
    /// interface for the network instance has one, too, else the IPv6 address.
    #[must_use]
    pub fn peer(&self, addresses: AddressPair, instance: Option<InstanceId>) -> Option<IpAddr> {
        let (v4, v6) = addresses;
        let v4 = v4.filter(|_| self.tunnels(instance).any(|it| it.v4.is_some()));
        let v6 = v6.filter(|_| self.tunnels(instance).any(|it| it.v6.is_some()));
        v4.map(IpAddr::V4).or(v6.map(IpAddr::V6))
    }

    /// Returns the address of a CP function that we can send to: the IPv4 address if N4 or an
    /// interface for tunnels has one, too, else the IPv6 address.
    #[must_use]
    pub fn control_peer(&self, addresses: AddressPair) -> Option<IpAddr> {
        let (v4, v6) = addresses;
        let v4 = v4.filter(|_| self.n4.0.is_some()).map(IpAddr::V4);
        let v6 = v6.filter(|_| self.n4.1.is_some()).map(IpAddr::V6);
        v4.or(v6).or_else(|| self.peer(addresses, None))
    }

    /// Returns what stands for a network instance in rules for tunnels: itself if an interface
    /// lists it, else all that no interface lists. `None` if the role decides.
    #[must_use]
    pub fn exit(&self, instance: Option<InstanceId>) -> Option<InstanceId> {
        let instance = instance?;
        let mut all = self.interfaces.iter().filter(|it| it.is_tunnel());
        if all.clone().any(|it| it.instances.contains(&instance)) {
            return Some(instance);
        }
        all.any(|it| it.instances.is_empty()).then(|| self.unlisted())
    }

    /// Returns the network instances that an interface, by its position in the settings, serves in
    /// rules: for N6 what stands for them all.
    #[must_use]
    pub fn served_by(&self, interface: usize) -> Vec<InstanceId> {
        let Some(interface) = self.interfaces.get(interface) else { return Vec::new() };
        match interface.instances.first() {
            None => vec![self.unlisted()],
            Some(_) if interface.is_tunnel() => interface.instances.clone(),
            Some(first) => self.domain(*first).into_iter().collect(),
        }
    }

    /// Returns what stands for a data network in lookup keys and rules: the lowest of all network
    /// instances that N6 interfaces connect with it. `None` if no N6 interface serves it.
    #[must_use]
    pub fn domain(&self, instance: InstanceId) -> Option<InstanceId> {
        let n6 = || self.interfaces.iter().filter(|it| it.role == Role::N6);
        if !n6().any(|it| it.instances.contains(&instance)) {
            return n6().any(|it| it.instances.is_empty()).then(|| self.unlisted());
        }
        let mut lowest = instance;
        loop {
            let with = n6().filter(|it| it.instances.contains(&lowest));
            let next = with.flat_map(|it| &it.instances).min().copied().unwrap_or(lowest);
            if next == lowest {
                return Some(lowest);
            }
            lowest = next;
        }
    }

    /// Returns what stands for each data network, each once.
    #[must_use]
    pub fn domains(&self) -> Vec<InstanceId> {
        let n6 = self.interfaces.iter().filter(|it| it.role == Role::N6);
        let first = |it: &LocalInterface| it.instances.first().copied();
        let all = n6.filter_map(|it| self.domain(first(it).unwrap_or_else(|| self.unlisted())));
        let mut domains: Vec<InstanceId> = all.collect();
        domains.sort_unstable();
        domains.dedup();
        domains
    }

    /// Returns the default data network: that of the first N6 interface.
    #[must_use]
    pub fn data_network(&self) -> InstanceId {
        let n6 = self.interfaces.iter().position(|it| it.role == Role::N6);
        n6.and_then(|at| self.served_by(at).first().copied()).unwrap_or(0)
    }

    /// Returns true if there is an N6 interface.
    #[must_use]
    pub fn has_n6(&self) -> bool {
        self.interfaces.iter().any(|it| it.role == Role::N6)
    }

    /// Returns true if an N6 interface lists this network instance.
    #[must_use]
    pub fn is_data_network(&self, instance: InstanceId) -> bool {
        let mut n6 = self.interfaces.iter().filter(|it| it.role == Role::N6);
        n6.any(|it| it.instances.contains(&instance))
    }
}

#[cfg(test)]
impl Network {
    /// Creates a network in which N3 serves all, in both families, and each of these network
    /// instances has an N6 interface.
    pub(crate) fn of_data_networks(instances: &[InstanceId]) -> Self {
        let last = instances.iter().max().copied().unwrap_or(0);
        let mut network = Self::new((0..=last).map(|it| it.to_string()).collect());
        let own = [IpAddr::from([10, 3, 0, 1]), IpAddr::from([0xfd03, 0, 0, 0, 0, 0, 0, 1_u16])];
        network.add(Role::N3, Vec::new(), &own);
        instances.iter().for_each(|it| network.add(Role::N6, vec![*it], &[]));
        network
    }
}

/// Returns the first address of each family.
fn first_of_each(addresses: &[IpAddr]) -> AddressPair {
    let v4 = addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    let v6 = addresses.iter().find_map(|address| match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    });
    (v4, v6)
}

/// Returns the role of the interface on which tunnelled packets from `source` usually arrive. Where
/// lanes have the address of N4, the CP function sends to the access network's interface, which is
/// where the session's own tunnel ends.
const fn role_of(source: Source) -> Role {
    match source {
        Source::Access | Source::Control => Role::N3,
        Source::Core | Source::SgiLan => Role::N9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N3: [u8; 4] = [10, 3, 0, 1];
    const N9: [u8; 4] = [10, 9, 0, 1];

    /// Creates a network: N3 and N9 with one address each, and N6 interfaces.
    fn network(names: &[&str], n3: &[u16], n9: &[u16], n6: &[&[u16]]) -> Network {
        let mut network = Network::new(names.iter().map(|name| (*name).to_owned()).collect());
        network.add(Role::N3, n3.to_vec(), &[N3.into()]);
        network.add(Role::N9, n9.to_vec(), &[N9.into()]);
        n6.iter().for_each(|instances| network.add(Role::N6, instances.to_vec(), &[]));
        network
    }

    fn v4(network: &Network, instance: Option<u16>, source: Source) -> Option<[u8; 4]> {
        network.endpoint(instance, source)?.0.map(|it| it.octets())
    }

    #[test]
    fn an_interface_that_lists_the_name_is_chosen_before_the_role() {
        let network = network(&["access", "internet", "n9"], &[0], &[2], &[&[1]]);
        assert_eq!(v4(&network, Some(0), Source::Access), Some(N3));
        assert_eq!(v4(&network, Some(2), Source::Access), Some(N9));
        // Data networks share the interfaces of the role.
        assert_eq!(v4(&network, Some(1), Source::Access), Some(N3));
        assert_eq!(v4(&network, Some(1), Source::Core), Some(N9));
        assert_eq!(v4(&network, None, Source::Access), Some(N3));
        assert_eq!(network.instance(NetworkInstance(b"other")), None);
        assert_eq!(network.exit(Some(1)), None);
    }

    #[test]
    fn an_interface_without_a_list_serves_all_others() {
        let network = network(&["ims", "internet"], &[0], &[], &[&[1]]);
        let other = network.instance(NetworkInstance(b"other")).unwrap();
        assert_eq!(other, network.unlisted());
        assert_eq!(v4(&network, Some(0), Source::Access), Some(N3));
        assert_eq!(v4(&network, Some(1), Source::Access), Some(N9), "N3 has a list without it");
        assert_eq!(v4(&network, Some(other), Source::Access), Some(N9));
        assert_eq!(network.exit(Some(1)), Some(other));
        assert_eq!(network.exit(Some(0)), Some(0));
        assert_eq!(network.served_by(1), [other]);
        assert_eq!(network.domain(other), None, "no N6 interface serves it");
    }

    #[test]
    fn network_instances_of_one_n6_interface_are_one_domain() {
        let network = network(&["a", "b", "c", "d"], &[], &[], &[&[1, 2], &[3, 2], &[0]]);
        assert_eq!([0, 1, 2, 3].map(|it| network.domain(it)), [Some(0), Some(1), Some(1), Some(1)]);
        assert_eq!(network.domains(), [0, 1]);
        assert_eq!(network.served_by(3), [1]);
        assert_eq!(network.data_network(), 1);
    }

    #[test]
    fn a_dual_stack_peer_is_reached_in_the_family_that_n3_has() {
        let network = network(&["internet"], &[], &[], &[&[0]]);
        let v6 = "2001:db8::1".parse().unwrap();
        let both = (Some([10, 3, 0, 2].into()), Some(v6));
        assert_eq!(network.peer(both, Some(0)), Some([10, 3, 0, 2].into()));
        assert_eq!(network.peer((None, Some(v6)), Some(0)), None);
        let mut of_v6 = Network::new(vec![]);
        of_v6.add(Role::N3, vec![], &["2001:db8::3".parse().unwrap()]);
        assert_eq!(of_v6.peer(both, None), Some(v6.into()));
    }

    #[test]
    fn an_endpoint_is_the_only_one_or_ambiguous() {
        let mut network = network(&["internet"], &[], &[], &[&[0]]);
        let only = Some((Some(N3.into()), None));
        assert_eq!(network.only_endpoint(Some(0), Source::Access), only);
        network.add(Role::N3, vec![], &[[10, 3, 1, 1].into()]);
        assert_eq!(network.only_endpoint(Some(0), Source::Access), None);
    }

    #[test]
    fn the_cp_function_sends_to_n3_or_to_the_only_interface_for_tunnels() {
        let mut both = network(&["internet"], &[], &[], &[&[0]]);
        let of = |network: &Network| {
            let only = network.only_endpoint(None, Source::Control);
            only.and_then(|(v4, _)| v4).map(|it| it.octets())
        };
        assert_eq!(v4(&both, None, Source::Control), Some(N3));
        assert_eq!(of(&both), Some(N3));
        both.add(Role::N3, vec![], &[[10, 3, 1, 1].into()]);
        assert_eq!(of(&both), None);
        let mut n9 = Network::new(vec![]);
        n9.add(Role::N9, vec![], &[N9.into()]);
        assert_eq!(of(&n9), Some(N9));
        n9.add(Role::N9, vec![], &[[10, 9, 1, 1].into()]);
        assert_eq!(of(&n9), None);
    }

    #[test]
    fn the_cp_function_sends_to_n4_where_that_has_an_address_of_its_own() {
        let mut network = network(&["internet"], &[], &[], &[&[0]]);
        let n4: [IpAddr; 3] =
            [[10, 4, 0, 1].into(), [10, 4, 0, 2].into(), "fd04::1".parse().unwrap()];
        network.set_n4(&n4);
        let own = Some((Some([10, 4, 0, 1].into()), Some("fd04::1".parse().unwrap())));
        assert_eq!(network.endpoint(Some(0), Source::Control), own);
        assert_eq!(network.only_endpoint(Some(0), Source::Control), own);
        let n3 = Some((Some(N3.into()), None));
        assert_eq!(network.interface_endpoint(Some(0), Source::Control), n3);
        assert_eq!(v4(&network, Some(0), Source::Access), Some(N3));
        // N3 has IPv4 only.
        let peer = (None, Some("fd04::2".parse().unwrap()));
        assert_eq!(network.peer(peer, None), None);
        assert_eq!(network.control_peer(peer), Some("fd04::2".parse().unwrap()));
        network.set_n4(&[]);
        assert_eq!(network.control_peer(peer), None);
    }
}
