//! Listener for changes of the forwarding state of Linux, for those who remember results of its
//! route lookups: tells that something has changed, and keeps neighbours in use alive.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::Prefix;
use super::message::{Dump, Effect, Link, Message, Neighbour, Reachability, TrafficControl, probe};
use super::model::NeighbourId;
use super::route_mtus::RouteMtus;
use super::socket::{
    Dumper, NETCONF_GROUPS, ROUTING_GROUPS, Received, Socket, TRAFFIC_CONTROL_GROUP,
};
use super::waiting_neighbours::WaitingNeighbours;

/// Receive buffer for events in bytes.
const EVENTS_BUFFER: usize = 4 << 20;
/// Minimum time between two probes of neighbours.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// Outcome of [`RouteListener::hear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteChange {
    /// Remembered lookups hold.
    Nothing,
    /// Remembered lookups may be wrong.
    Routes,
    /// Remembered lookups may be wrong, and interfaces or rules have changed.
    Links,
}

/// Listens for changes of links, traffic control, addresses, neighbours, routes, rules and
/// forwarding settings in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct RouteListener {
    events: Socket,
    dumper: Dumper,
    requests: Socket,
    /// Usable Ethernet address of each neighbour that was reported.
    neighbours: HashMap<NeighbourId, Option<[u8; 6]>>,
    /// Neighbours that Linux should confirm.
    stale: WaitingNeighbours,
    next_probe: Instant,
    /// True if neighbours may be unknown, as no event has reported them.
    must_read: bool,
    mtus: RouteMtus,
    /// True if `mtus` may not be those of the routes.
    must_read_mtus: bool,
}

impl RouteListener {
    /// Subscribes to events and reads the neighbours, as no event reports one that is stale
    /// already, and the IPv4 routes.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket or the dump.
    pub fn open() -> io::Result<Self> {
        Self::with_buffer(EVENTS_BUFFER)
    }

    /// Does the same with a receive buffer of about that many bytes.
    fn with_buffer(bytes: usize) -> io::Result<Self> {
        let groups = [&ROUTING_GROUPS[..], &NETCONF_GROUPS, &[TRAFFIC_CONTROL_GROUP]].concat();
        let mut listener = Self {
            events: Socket::of_events(&groups, bytes)?,
            dumper: Dumper::new()?,
            requests: Socket::of_requests()?,
            neighbours: HashMap::new(),
            stale: WaitingNeighbours::default(),
            next_probe: Instant::now(),
            must_read: true,
            mtus: RouteMtus::default(),
            must_read_mtus: true,
        };
        listener.read_neighbours()?;
        listener.read_mtus()?;
        Ok(listener)
    }

    /// Reads the MTUs of all routes, if they may be others than before.
    fn read_mtus(&mut self) -> io::Result<()> {
        if !self.must_read_mtus {
            return Ok(());
        }
        let (mut mtus, mut is_whole) = (RouteMtus::default(), true);
        // Once more if some have an MTU, for the routes without one that they cover.
        for _ in 0..2 {
            is_whole &= self.dumper.dump(Dump::Routes(libc::AF_INET), |messages| {
                for message in messages {
                    if let Message::Route(route, _) = message {
                        mtus.add(&route);
                    }
                }
                true
            })?;
            if mtus.is_empty() {
                break;
            }
        }
        (self.mtus, self.must_read_mtus) = (mtus, !is_whole);
        Ok(())
    }

    /// Returns the least MTU of IPv4 routes by their prefixes, [`u32::MAX`] for a route without one
    /// that a route with one covers. It holds for the addresses of a prefix that no longer one
    /// covers, whichever routing table is asked.
    #[must_use]
    pub fn route_mtus(&self) -> BTreeMap<Prefix, u32> {
        self.mtus.by_prefix()
    }

    /// Reads all neighbours, if some may be unknown.
    fn read_neighbours(&mut self) -> io::Result<()> {
        if !self.must_read {
            return Ok(());
        }
        let (neighbours, stale) = (&mut self.neighbours, &mut self.stale);
        neighbours.clear();
        stale.clear();
        let is_whole = self.dumper.dump(Dump::Neighbours, |messages| {
            for message in messages {
                if let Message::Neighbour(neighbour) = message {
                    note(neighbours, stale, &neighbour);
                }
            }
            true
        })?;
        self.must_read = !is_whole;
        Ok(())
    }

    /// Reads pending events without waiting. A neighbour that only ages is no change.
    ///
    /// # Errors
    /// Returns an error if a socket fails.
    pub fn hear(&mut self) -> io::Result<RouteChange> {
        let mut change = RouteChange::Nothing;
        loop {
            let messages = match self.events.receive()? {
                Received::Nothing => break,
                Received::Lost => {
                    (self.must_read, self.must_read_mtus) = (true, true);
                    change = RouteChange::Links;
                    continue;
                }
                Received::Messages(messages) => messages,
            };
            for message in messages {
                self.must_read_mtus |= match &message {
                    Ok((_, Message::Route(route, _))) => !self.mtus.add(route),
                    Ok((_, Message::RouteRemoved(route))) => !self.mtus.remove(route),
                    // Linux does not tell which routes end with them.
                    Ok((
                        _,
                        Message::Link(_)
                        | Message::LinkRemoved(_)
                        | Message::AddressRemoved(_)
                        | Message::NextHopRemoved(_),
                    )) => !self.mtus.is_empty(),
                    _ => false,
                };
                let found = match message {
                    Ok((_, Message::Neighbour(neighbour))) => {
                        note(&mut self.neighbours, &mut self.stale, &neighbour)
                    }
                    Ok((_, Message::NeighbourRemoved(Neighbour { link, address, .. }))) => {
                        self.stale.set(NeighbourId { link, address }, false);
                        self.neighbours.remove(&NeighbourId { link, address });
                        RouteChange::Routes
                    }
                    Ok((_, Message::Other)) => RouteChange::Nothing,
                    Ok((_, Message::TrafficControl(it) | Message::TrafficControlRemoved(it)))
                        if it.effect == Effect::None =>
                    {
                        RouteChange::Nothing
                    }
                    // Linux has begun to take IPv6 packets from an interface, or has ended it.
                    Ok((_, Message::Route(route, _) | Message::RouteRemoved(route)))
                        if route.shows_ipv6() =>
                    {
                        RouteChange::Links
                    }
                    Ok((
                        _,
                        Message::Link(_)
                        | Message::LinkRemoved(_)
                        | Message::TrafficControl(_)
                        | Message::TrafficControlRemoved(_)
                        | Message::Rule(_)
                        | Message::RuleRemoved(_)
                        | Message::Overrun,
                    ))
                    | Err(_) => RouteChange::Links,
                    Ok(_) => RouteChange::Routes,
                };
                change = change.max(found);
            }
        }
        self.read_neighbours()?;
        let has_read = self.must_read_mtus;
        self.read_mtus()?;
        Ok(if has_read { change.max(RouteChange::Routes) } else { change })
    }

    /// Returns all interfaces.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let mut links = Vec::new();
        self.dumper.dump(Dump::Links, |messages| {
            links.extend(messages.into_iter().filter_map(|message| match message {
                Message::Link(link) => Some(link),
                _ => None,
            }));
            true
        })?;
        Ok(links)
    }

    /// Returns the interfaces with traffic control for frames that leave.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn controlled_links(&mut self) -> io::Result<BTreeSet<u32>> {
        let (mut controlled, mut dumps) = (BTreeSet::new(), vec![Dump::Disciplines]);
        while let Some(what) = dumps.pop() {
            self.dumper.dump(what, |messages| {
                dumps.extend(messages.iter().filter_map(Dump::following));
                controlled.extend(messages.into_iter().filter_map(|message| match message {
                    Message::TrafficControl(TrafficControl { link, effect: Effect::Control }) => {
                        Some(link)
                    }
                    _ => None,
                }));
                true
            })?;
        }
        Ok(controlled)
    }

    /// Returns true if a routing rule asks for more than an XDP program's route lookup knows.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn has_rule_beyond_lookup(&mut self) -> io::Result<bool> {
        let mut is_beyond = false;
        self.dumper.dump(Dump::Rules, |messages| {
            is_beyond |= messages
                .iter()
                .any(|message| matches!(message, Message::Rule(rule) if rule.is_beyond_lookup));
            true
        })?;
        Ok(is_beyond)
    }

    /// Asks Linux to confirm one stale neighbour on these interfaces, if a request is due: Linux
    /// does not see the packets sent to it. The result is an event.
    pub fn keep_alive(&mut self, is_in_use: impl Fn(u32) -> bool) {
        if Instant::now() < self.next_probe {
            return;
        }
        if let Some(NeighbourId { link, address }) = self.stale.take_next(is_in_use) {
            self.requests.request(&probe(link, address));
            self.next_probe = Instant::now() + PROBE_INTERVAL;
        }
    }
}

/// Notes a neighbour, and returns if its usable address has changed.
fn note(
    neighbours: &mut HashMap<NeighbourId, Option<[u8; 6]>>,
    stale: &mut WaitingNeighbours,
    neighbour: &Neighbour,
) -> RouteChange {
    let key = NeighbourId { link: neighbour.link, address: neighbour.address };
    stale.set(key, neighbour.state == Reachability::Stale);
    let mac = neighbour.mac.filter(|_| neighbour.is_usable());
    match neighbours.insert(key, mac) == Some(mac) {
        true => RouteChange::Nothing,
        false => RouteChange::Routes,
    }
}

impl AsFd for RouteListener {
    /// Returns the event socket; it is readable when events are pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_address_of_a_neighbour_is_a_change() {
        let (mut neighbours, mut stale) = (HashMap::new(), WaitingNeighbours::default());
        let (link, address) = (7, std::net::IpAddr::from([10, 0, 0, 2]));
        let mut tell = |mac, state| {
            let changed =
                note(&mut neighbours, &mut stale, &Neighbour { link, address, mac, state });
            (changed == RouteChange::Routes, !stale.is_empty())
        };
        let (one, other) = (Some([2, 0, 0, 0, 0, 1]), Some([2, 0, 0, 0, 0, 2]));
        assert_eq!(tell(one, Reachability::Usable), (true, false));
        assert_eq!(tell(one, Reachability::Stale), (false, true));
        assert_eq!(tell(one, Reachability::Usable), (false, false));
        assert_eq!(tell(other, Reachability::Usable), (true, false));
        assert_eq!(tell(other, Reachability::Unknown), (true, false));
        assert_eq!(tell(None, Reachability::Unknown), (false, false));
        assert_eq!(tell(other, Reachability::Stale), (true, true));
    }

    /// Runs `ip` in this namespace.
    fn ip(words: &str) -> String {
        let output = std::process::Command::new("ip").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns true if Linux probes a neighbour of `veth0`, or has found that it does not reply.
    fn is_probed(address: &str) -> bool {
        let shown = ip(&format!("neigh show {address} dev veth0"));
        ["DELAY", "PROBE", "FAILED"].iter().any(|state| shown.contains(state))
    }

    fn make_stale(address: &str) {
        ip(&format!("neigh replace {address} lladdr 02:00:00:00:00:02 dev veth0 nud stale"));
    }

    #[test]
    fn stale_neighbours_without_an_event_are_probed() {
        if !fastlane_testing::namespace::private("routes-stale") {
            return;
        }
        ip("link add veth0 type veth peer veth1");
        ip("link set veth1 up");
        ip("link set veth0 up");
        ip("address add 10.0.0.1/24 dev veth0");
        make_stale("10.0.0.2");
        // Few events fit.
        let mut listener = RouteListener::with_buffer(4096).unwrap();
        listener.hear().unwrap();
        listener.keep_alive(|_| false);
        assert!(!is_probed("10.0.0.2"), "the interface is not in use");
        listener.keep_alive(|_| true);
        assert!(is_probed("10.0.0.2"), "it is from before the start");
        for number in 0..200 {
            ip(&format!("route add 10.1.{number}.0/24 dev veth0"));
        }
        make_stale("10.0.0.3");
        assert_eq!(listener.hear().unwrap(), RouteChange::Links, "events were lost");
        std::thread::sleep(PROBE_INTERVAL);
        listener.keep_alive(|_| true);
        assert!(is_probed("10.0.0.3"), "its event was lost");
    }

    #[test]
    fn rules_beyond_the_lookup_of_a_program_are_told() {
        if !fastlane_testing::namespace::private("routes-rules") {
            return;
        }
        ip("link add veth0 type veth peer veth1");
        let mut listener = RouteListener::open().unwrap();
        assert!(!listener.has_rule_beyond_lookup().unwrap(), "those that every host has");
        for (family, condition, is_beyond) in [
            ("-4", "fwmark 0x7/0xf", true),
            ("-6", "fwmark 7", true),
            ("-4", "tos 0x10", true),
            ("-4", "uidrange 0-99", true),
            ("-4", "not fwmark 7", true),
            ("-4", "from 10.9.0.0/16 to 10.8.0.0/16 iif veth0", false),
            ("-6", "ipproto tcp sport 1-9 dport 80", false),
            ("-4", "not from 10.9.0.1 oif veth0", false),
            ("-4", "from all suppress_prefixlength 0", false),
        ] {
            ip(&format!("{family} rule add {condition} lookup 7 pref 99"));
            assert_eq!(listener.hear().unwrap(), RouteChange::Links, "{condition}");
            assert_eq!(listener.has_rule_beyond_lookup().unwrap(), is_beyond, "{condition}");
            ip(&format!("{family} rule del pref 99"));
            assert_eq!(listener.hear().unwrap(), RouteChange::Links, "{condition}");
            assert!(!listener.has_rule_beyond_lookup().unwrap(), "{condition}");
        }
    }

    #[test]
    fn mtus_of_routes_are_followed() {
        if !fastlane_testing::namespace::private("routes-mtus") {
            return;
        }
        ip("link add veth0 type veth peer veth1");
        ip("link set veth1 up");
        ip("link set veth0 up");
        ip("route add 10.1.0.0/16 dev veth0 mtu 1300");
        let mut listener = RouteListener::open().unwrap();
        for (words, expected) in [
            ("show", "10.1.0.0/16 1300"),
            ("add 10.2.0.0/16 dev veth0", "10.1.0.0/16 1300"),
            ("add 10.2.0.0/16 dev veth0 metric 9 mtu 1200", "10.1.0.0/16 1300 10.2.0.0/16 1200"),
            ("change 10.1.0.0/16 dev veth0 mtu lock 1400", "10.1.0.0/16 1400 10.2.0.0/16 1200"),
            ("replace 10.1.0.0/16 dev veth0", "10.2.0.0/16 1200"),
            ("del 10.2.0.0/16 metric 9", ""),
            ("add 10.3.0.0/16 dev veth0 mtu 1300", "10.3.0.0/16 1300"),
        ] {
            ip(&format!("route {words}"));
            listener.hear().unwrap();
            let found = listener.route_mtus();
            let found: Vec<String> =
                found.iter().map(|(prefix, mtu)| format!("{prefix} {mtu}")).collect();
            assert_eq!(found.join(" "), expected, "{words}");
        }
        // Linux does not tell which routes end with an address, a next hop or an interface.
        // Without any address the interface would have no route left.
        ip("address add 10.8.0.1/24 dev veth0");
        ip("address add 10.9.0.1/24 dev veth0");
        ip("nexthop add id 7 dev veth0");
        for (routed, ended) in [
            ("10.4.0.0/16 dev veth0 src 10.9.0.1", "address del 10.9.0.1/24 dev veth0"),
            ("10.4.0.0/16 nhid 7", "nexthop del id 7"),
            ("10.4.0.0/16 dev veth0", "link set veth0 down"),
        ] {
            ip(&format!("route add {routed} mtu 1300"));
            listener.hear().unwrap();
            assert_eq!(listener.route_mtus().len(), 2, "{routed}");
            ip(ended);
            assert!(listener.hear().unwrap() >= RouteChange::Routes, "{ended}");
            assert!(listener.route_mtus().len() < 2, "{ended}");
        }
    }

    #[test]
    fn changes_of_linux_are_heard_once() {
        if !fastlane_testing::namespace::private("routes-listener") {
            return;
        }
        let mut listener = RouteListener::open().unwrap();
        assert_eq!(listener.hear().unwrap(), RouteChange::Nothing);
        for words in [
            "link add veth0 type veth peer veth1",
            "link set veth1 up",
            "link set veth0 up",
            "address add 10.0.0.1/24 dev veth0",
            "route add 10.1.0.0/16 via 10.0.0.2",
            "neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev veth0 nud permanent",
            "rule add from 10.0.0.9 lookup 7",
        ] {
            let done = std::process::Command::new("ip").args(words.split(' ')).status().unwrap();
            assert!(done.success(), "{words}");
            let change = listener.hear().unwrap();
            let wanted = match words.starts_with("link") {
                true => RouteChange::Links,
                false => RouteChange::Routes,
            };
            assert!(change >= wanted, "{words}: {change:?}");
        }
        let index = |listener: &mut RouteListener| {
            let mut links = listener.links().unwrap().into_iter();
            links.find(|link| link.name == "veth0").unwrap().index
        };
        let veth0 = index(&mut listener);
        let filter = "protocol ip u32 match u32 0 0 classid 1:1";
        for (words, change, is_controlled) in [
            ("qdisc add dev veth0 clsact".to_owned(), RouteChange::Links, false),
            (format!("filter add dev veth0 ingress {filter}"), RouteChange::Nothing, false),
            (format!("filter add dev veth0 egress {filter}"), RouteChange::Links, true),
            ("qdisc del dev veth0 clsact".to_owned(), RouteChange::Links, false),
            ("qdisc add dev veth0 egress_block 7 clsact".to_owned(), RouteChange::Links, true),
            (format!("filter add block 7 {filter}"), RouteChange::Nothing, true),
            ("qdisc del dev veth0 clsact".to_owned(), RouteChange::Links, false),
            ("qdisc add dev veth0 root pfifo".to_owned(), RouteChange::Nothing, false),
            ("qdisc replace dev veth0 root htb".to_owned(), RouteChange::Links, true),
            ("qdisc del dev veth0 root".to_owned(), RouteChange::Links, false),
        ] {
            let done = std::process::Command::new("tc").args(words.split(' ')).status().unwrap();
            assert!(done.success(), "{words}");
            assert_eq!(listener.hear().unwrap(), change, "{words}");
            let controlled = listener.controlled_links().unwrap();
            assert_eq!(controlled.contains(&veth0), is_controlled, "{words}");
        }
        std::fs::write("/proc/sys/net/ipv4/conf/lo/forwarding", "1").unwrap();
        assert_eq!(listener.hear().unwrap(), RouteChange::Routes);
        assert_eq!(listener.hear().unwrap(), RouteChange::Nothing);
        let names: Vec<String> =
            listener.links().unwrap().into_iter().map(|link| link.name).collect();
        assert!(names.contains(&"veth0".to_owned()), "{names:?}");
    }
}
