//! Tests of the model without a kernel: sequences of messages and the resulting routes.

use super::super::message::{Member, Reachability};
use super::*;
use crate::message::RouteKind;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix::new(ip(address), length.parse().unwrap())
}

fn hop(gateway: &str, link: u32) -> Hop {
    let gateway = (!gateway.is_empty()).then(|| ip(gateway));
    Hop { gateway, link, weight: 1, dead: false, encapsulated: false }
}

fn route(destination: &str, gateways: &[&str]) -> Route {
    Route {
        table: MAIN,
        destination: prefix(destination),
        kind: RouteKind::Unicast,
        metric: 0,
        origin: (3, 0),
        selector: (0, 0),
        mtu: 0,
        next_hop: 0,
        hops: gateways.iter().map(|gateway| hop(gateway, 1)).collect(),
    }
}

fn link(index: u32) -> Link {
    Link { index, name: format!("d{index}"), mtu: 1500, up: true, running: true, ..Link::default() }
}

/// Creates a model with two links.
fn state() -> Model {
    let mut state = Model::new(&[MAIN]);
    say(&mut state, [Message::Link(link(1)), Message::Link(link(2))]);
    state
}

fn say(state: &mut Model, messages: impl IntoIterator<Item = Message>) -> Changes {
    let mut changes = Changes::default();
    messages.into_iter().for_each(|message| state.apply(message, &mut changes));
    changes
}

/// Returns the gateways of the next hops to a destination.
#[track_caller]
fn routers(state: &Model, destination: &str) -> Vec<String> {
    match state.target(MAIN, &prefix(destination)) {
        Some(Target::NextHops { hops, .. }) => {
            let gateway = |hop: &Hop| hop.gateway.map_or(String::new(), |ip| ip.to_string());
            hops.iter().map(gateway).collect()
        }
        other => panic!("{destination}: {other:?}"),
    }
}

fn fallback(state: &Model, destination: &str) -> Option<FallbackReason> {
    match state.target(MAIN, &prefix(destination)) {
        Some(Target::Fallback(reason)) => Some(reason),
        _ => None,
    }
}

const ONE: &str = "10.0.0.0/8";

#[test]
fn an_interface_takes_ipv6_while_it_has_the_route_to_all_groups() {
    let mut state = state();
    let groups = |link| Route {
        table: LOCAL,
        kind: RouteKind::Multicast,
        metric: 256,
        hops: vec![hop("", link)],
        ..route("ff00::/8", &[])
    };
    let takes = |state: &Model| [1, 2].map(|link| state.takes_ipv6(link));
    assert_eq!(takes(&state), [false; 2]);
    say(&mut state, [1, 2].map(|link| Message::Route(groups(link), Position::Last)));
    assert_eq!(takes(&state), [true; 2]);
    say(&mut state, [Message::RouteRemoved(groups(1))]);
    assert_eq!(takes(&state), [false, true]);
    // Routes of other tables and to single groups do not count.
    let main = Route { table: MAIN, ..groups(1) };
    let group = Route { destination: prefix("ff02::1/128"), ..groups(1) };
    say(&mut state, [main, group].map(|route| Message::Route(route, Position::Last)));
    assert_eq!(takes(&state), [false, true]);
}

#[test]
fn an_interface_has_the_lowest_address_that_is_not_link_local() {
    let mut state = state();
    let on = |link, text| Address { link, address: ip(text), prefix: Prefix::host(ip(text)) };
    let texts = ["169.254.0.1", "203.0.113.9", "203.0.113.1", "fe80::1", "2001:db8::1"];
    let changes = say(&mut state, texts.map(|text| Message::Address(on(1, text))));
    assert!(changes.links.contains(&1));
    say(&mut state, [Message::Address(on(2, "10.0.0.1"))]);
    let (v4, v6) = (Some([203, 0, 113, 1].into()), Some("2001:db8::1".parse().unwrap()));
    assert_eq!(state.addresses_of(1), LinkAddresses { v4, v6 });
    let before = state.clone();
    for text in ["203.0.113.1", "2001:db8::1"] {
        let changes = say(&mut state, [Message::AddressRemoved(on(1, text))]);
        assert!(changes.links.contains(&1), "{text}");
    }
    let v4 = Some([203, 0, 113, 9].into());
    assert_eq!(state.addresses_of(1), LinkAddresses { v4, v6: None });
    assert!(state.differences(&before).links.contains(&1));
    assert_eq!(state.addresses_of(3), LinkAddresses::default());
}

#[test]
fn the_lowest_metric_wins_and_the_others_wait() {
    let mut state = state();
    let with = |metric, gateway: &str| Route { metric, ..route(ONE, &[gateway]) };
    let new = |metric, gateway| Message::Route(with(metric, gateway), Position::First);
    say(&mut state, [new(20, "1.0.0.2"), new(10, "1.0.0.1"), new(30, "1.0.0.3")]);
    assert_eq!(routers(&state, ONE), ["1.0.0.1"]);
    say(&mut state, [Message::RouteRemoved(with(10, "1.0.0.1"))]);
    assert_eq!(routers(&state, ONE), ["1.0.0.2"]);
    say(&mut state, [Message::RouteRemoved(with(20, "1.0.0.2"))]);
    assert_eq!(routers(&state, ONE), ["1.0.0.3"]);
    let changes = say(&mut state, [Message::RouteRemoved(with(30, "1.0.0.3"))]);
    assert_eq!(state.target(MAIN, &prefix(ONE)), None);
    assert_eq!((changes.routes.len(), changes.inconsistency), (1, None));
    let changes = say(&mut state, [Message::RouteRemoved(with(30, "1.0.0.3"))]);
    assert_eq!(changes.inconsistency, Some(Inconsistency::UnknownRoute));
}

/// Covers `ip route prepend`, `append` and `replace` of alike routes.
#[test]
fn alike_routes_are_where_linux_has_put_them() {
    let mut state = state();
    let new = |gateway, position| Message::Route(route(ONE, &[gateway]), position);
    say(&mut state, [new("1.0.0.1", Position::First), new("1.0.0.2", Position::Last)]);
    assert_eq!(routers(&state, ONE), ["1.0.0.1"]);
    say(&mut state, [new("1.0.0.3", Position::First)]);
    assert_eq!(routers(&state, ONE), ["1.0.0.3"]);
    say(&mut state, [new("1.0.0.4", Position::Replace)]);
    assert_eq!(routers(&state, ONE), ["1.0.0.4"]);
    assert_eq!(state.routes(MAIN, &prefix(ONE)).len(), 3);
    // Repeated messages, as after a dump, add nothing.
    say(&mut state, [new("1.0.0.1", Position::First), new("1.0.0.2", Position::Last)]);
    assert_eq!(state.routes(MAIN, &prefix(ONE)).len(), 3);
    say(&mut state, [Message::RouteRemoved(route(ONE, &["1.0.0.4"]))]);
    assert_eq!(routers(&state, ONE), ["1.0.0.1"]);
}

#[test]
fn routes_of_ipv6_through_routers_are_one() {
    const SIX: &str = "2001:db8::/32";
    let mut state = state();
    let new = |gateways: &[&str], position| Message::Route(route(SIX, gateways), position);
    say(
        &mut state,
        [new(&["fe80::1"], Position::First), new(&["fe80::1", "fe80::2"], Position::Last)],
    );
    assert_eq!(routers(&state, SIX), ["fe80::1", "fe80::2"]);
    let changes = say(&mut state, [Message::RouteRemoved(route(SIX, &["fe80::1"]))]);
    assert_eq!((routers(&state, SIX), changes.inconsistency), (vec!["fe80::2".to_owned()], None));
    say(&mut state, [new(&["fe80::3"], Position::Replace)]);
    assert_eq!(routers(&state, SIX), ["fe80::3"]);
    // A route without a gateway stays beside them; only Linux knows which one it uses.
    say(&mut state, [new(&[""], Position::First)]);
    assert_eq!(fallback(&state, SIX), Some(FallbackReason::Unsupported));
    say(&mut state, [Message::RouteRemoved(route(SIX, &["fe80::3"]))]);
    assert_eq!(routers(&state, SIX), [""]);
}

#[test]
fn what_is_not_done_here_is_linuxs() {
    let mut state = state();
    let first = |route| Message::Route(route, Position::First);
    say(&mut state, [first(route(ONE, &["1.0.0.1"]))]);
    let service = Route { selector: (16, 0), ..route(ONE, &["1.0.0.2"]) };
    say(&mut state, [first(service.clone())]);
    assert_eq!(fallback(&state, ONE), Some(FallbackReason::Unsupported), "a type of service");
    say(&mut state, [Message::RouteRemoved(service)]);
    assert_eq!(routers(&state, ONE), ["1.0.0.1"]);
    let mut around = route("11.0.0.0/8", &["1.0.0.1"]);
    around.hops[0].encapsulated = true;
    say(&mut state, [first(around), first(route("12.0.0.0/8", &[]))]);
    assert_eq!(fallback(&state, "11.0.0.0/8"), Some(FallbackReason::Unsupported));
    assert_eq!(fallback(&state, "12.0.0.0/8"), Some(FallbackReason::Incomplete), "no next hop");
}

#[test]
fn the_local_table_comes_first() {
    let mut state = state();
    let local = |destination: &str| Route {
        table: LOCAL,
        kind: RouteKind::Local,
        ..route(destination, &[""])
    };
    let first = |route| Message::Route(route, Position::First);
    say(&mut state, [first(route("10.0.0.0/16", &["1.0.0.1"])), first(local(ONE))]);
    assert_eq!(fallback(&state, "10.0.0.0/16"), Some(FallbackReason::Local), "though it is longer");
    assert_eq!(fallback(&state, ONE), Some(FallbackReason::Local));
    assert_eq!(state.target(MAIN, &prefix("10.1.0.0/16")), None, "nobody's destination");
    let covered: Vec<_> = state.covered(MAIN, &prefix(ONE)).collect();
    assert_eq!(covered, [prefix("10.0.0.0/16")]);
    say(&mut state, [Message::RouteRemoved(local(ONE))]);
    assert_eq!(routers(&state, "10.0.0.0/16"), ["1.0.0.1"]);
}

#[test]
fn a_removed_rule_may_leave_others_that_are_like_it_here() {
    let rule = |priority, table, plain| {
        let (vrf, is_beyond_lookup) = (false, false);
        Rule { ipv6: false, priority, table, plain, vrf, is_beyond_lookup }
    };
    let mut state = state();
    say(&mut state, [rule(0, LOCAL, true), rule(32766, MAIN, true)].map(Message::Rule));
    assert!(!state.has_policy(false));
    // By source, which the model does not keep: two of them are one.
    let by_source = rule(100, 100, false);
    say(&mut state, [by_source, by_source].map(Message::Rule));
    for _ in 0..2 {
        let changes = say(&mut state, [Message::RuleRemoved(by_source)]);
        assert_eq!(changes.inconsistency, Some(Inconsistency::SilentChange));
        assert!(state.has_policy(false), "until all was read anew");
    }
    // What makes a policy counts at once.
    let mut plain = Model::new(&[MAIN]);
    say(&mut plain, [rule(0, LOCAL, true), rule(32766, MAIN, true)].map(Message::Rule));
    say(&mut plain, [Message::RuleRemoved(rule(0, LOCAL, true))]);
    assert!(plain.has_policy(false));
}

#[test]
fn dead_hops_are_read_anew_when_the_carrier_is_back() {
    let mut state = state();
    let lost = || Message::Link(Link { running: false, ..link(1) });
    say(&mut state, [lost(), Message::Route(route(ONE, &["1.0.0.1"]), Position::First)]);
    assert_eq!(say(&mut state, [Message::Link(link(1))]).inconsistency, None);
    let mut dead = route(ONE, &["1.0.0.1"]);
    dead.hops[0].dead = true;
    say(&mut state, [lost(), Message::Route(dead, Position::First)]);
    let changes = say(&mut state, [Message::Link(link(1))]);
    assert_eq!(changes.inconsistency, Some(Inconsistency::SilentChange));
}

#[test]
fn an_interface_that_went_down_is_in_doubt_until_all_is_read_anew() {
    let mut state = state();
    say(&mut state, [Message::Route(route(ONE, &["1.0.0.1"]), Position::First)]);
    assert!(state.is_usable(1));
    let down = Link { up: false, ..link(1) };
    let changes = say(&mut state, [Message::Link(down), Message::Link(link(1))]);
    assert_eq!(
        (changes.inconsistency, changes.links.len()),
        (Some(Inconsistency::SilentChange), 1)
    );
    assert!(!state.is_usable(1) && state.is_usable(2));
    let mut fresh = Model::new(&[MAIN]);
    say(&mut fresh, [Message::Link(link(1)), Message::Link(link(2))]);
    assert!(fresh.is_usable(1));
    let changes = fresh.differences(&state);
    assert_eq!(changes.links.into_iter().collect::<Vec<_>>(), [1]);
    assert_eq!(changes.routes.into_iter().collect::<Vec<_>>(), [(MAIN, prefix(ONE))]);
    // Without a carrier it is not usable, but Linux keeps the routes.
    let lost = Link { running: false, ..link(2) };
    assert_eq!(say(&mut state, [Message::Link(lost)]).inconsistency, None);
    assert!(!state.is_usable(2));
    say(&mut state, [Message::Link(link(2))]);
    assert!(state.is_usable(2));
    assert_eq!(
        say(&mut state, [Message::LinkRemoved(2)]).inconsistency,
        Some(Inconsistency::SilentChange)
    );
    assert_eq!(
        say(&mut state, [Message::LinkRemoved(2)]).inconsistency,
        None,
        "it is gone already"
    );
}

#[test]
fn with_its_last_ipv4_address_an_interface_loses_its_routes() {
    let mut state = state();
    let address = |text: &str| {
        let (address, _) = text.split_once('/').unwrap();
        Address { link: 1, address: ip(address), prefix: prefix(text) }
    };
    let [one, two] = ["1.0.0.1/24", "1.0.1.1/24"].map(address);
    let six = address("2001:db8::1/64");
    say(&mut state, [one, two, six].map(Message::Address));
    assert_eq!(state.link_of(ip("1.0.1.1")), Some(1));
    say(&mut state, [Message::AddressRemoved(one)]);
    assert!(state.is_usable(1));
    let changes = say(&mut state, [Message::AddressRemoved(two)]);
    assert!(!state.is_usable(1) && changes.links.contains(&1));
    assert_eq!(changes.inconsistency, Some(Inconsistency::SilentChange));
    assert_eq!(say(&mut state, [Message::AddressRemoved(six)]).inconsistency, None);
}

#[test]
fn objects_change_under_their_routes() {
    let mut state = state();
    let is = |id, kind| Message::NextHop(NextHop { id, kind });
    let named = |destination: &str, next_hop| {
        Message::Route(Route { next_hop, ..route(destination, &[]) }, Position::First)
    };
    say(&mut state, [named(ONE, 9), named("11.0.0.0/8", 1)]);
    assert_eq!(fallback(&state, ONE), Some(FallbackReason::Incomplete), "not known yet");
    let members = [(1, 3), (2, 1)].map(|(id, weight)| Member { id, weight });
    let changes = say(
        &mut state,
        [
            is(1, NextHopKind::Hop(hop("1.0.0.1", 1))),
            is(2, NextHopKind::Hop(hop("1.0.0.2", 2))),
            is(9, NextHopKind::Group(members.to_vec())),
        ],
    );
    assert_eq!(changes.routes.len(), 2);
    assert_eq!(routers(&state, ONE), ["1.0.0.1", "1.0.0.2"]);
    let Some(Target::NextHops { hops, .. }) = state.target(MAIN, &prefix(ONE)) else { panic!() };
    assert_eq!((hops[0].weight, hops[1].weight), (3, 1));
    let changes = say(&mut state, [is(1, NextHopKind::Hop(hop("1.0.0.9", 1)))]);
    assert_eq!(changes.routes.len(), 2, "its own route, and that of its group");
    assert_eq!(routers(&state, ONE), ["1.0.0.9", "1.0.0.2"]);
    say(&mut state, [is(2, NextHopKind::Blackhole)]);
    assert_eq!(fallback(&state, ONE), Some(FallbackReason::Blackhole));
    let changes = say(&mut state, [Message::NextHopRemoved(1)]);
    assert_eq!(
        changes.inconsistency,
        Some(Inconsistency::SilentChange),
        "its routes go without a word"
    );
    assert_eq!(fallback(&state, "11.0.0.0/8"), Some(FallbackReason::Incomplete));
}

#[test]
fn only_what_differs_is_a_change() {
    let mut state = state();
    let neighbour = Neighbour {
        link: 1,
        address: ip("1.0.0.1"),
        mac: Some([2, 0, 0, 0, 0, 1]),
        state: Reachability::Usable,
    };
    assert_eq!(say(&mut state, [Message::Neighbour(neighbour)]).neighbours.len(), 1);
    assert!(say(&mut state, [Message::Neighbour(neighbour), Message::Link(link(1))]).is_empty());
    assert!(state.differences(&state.clone()).is_empty());
    assert_eq!(say(&mut state, [Message::NeighbourRemoved(neighbour)]).neighbours.len(), 1);
    assert!(say(&mut state, [Message::NeighbourRemoved(neighbour)]).is_empty());
    let elsewhere = Route { table: 77, ..route(ONE, &["1.0.0.1"]) };
    assert!(
        say(&mut state, [Message::Route(elsewhere, Position::First)]).is_empty(),
        "not asked for"
    );
}

#[test]
fn traffic_control_is_known_until_linux_is_read_again() {
    let control = |effect| TrafficControl { link: 1, effect };
    let mut state = state();
    for effect in [Effect::None, Effect::Filters] {
        let changes = say(&mut state, [Message::TrafficControl(control(effect))]);
        assert!(changes.is_empty() && !state.has_traffic_control(1), "{effect:?}");
    }
    let changes = say(&mut state, [Message::TrafficControl(control(Effect::Control))]);
    assert!(changes.links.contains(&1) && changes.inconsistency.is_none());
    assert!(state.has_traffic_control(1) && !state.has_traffic_control(2));
    assert!(state.differences(&self::state()).links.contains(&1));
    // Another one may be left, so only a dump tells.
    for effect in [Effect::Control, Effect::Filters] {
        let changes = say(&mut state, [Message::TrafficControlRemoved(control(effect))]);
        assert_eq!(changes.inconsistency, Some(Inconsistency::SilentChange), "{effect:?}");
        assert!(state.has_traffic_control(1));
    }
    assert!(self::state().differences(&state).links.contains(&1));
    say(&mut state, [Message::LinkRemoved(1), Message::Link(link(1))]);
    assert!(!state.has_traffic_control(1), "it is another interface");
}
