//! Comparison of `ip -json` with the model in a common text form.

use std::collections::BTreeSet;
use std::net::IpAddr;

use fastlane_mirror::message::{Hop, RouteKind};
use fastlane_mirror::model::{Model, Target};
use fastlane_testing::namespace::command;
use serde_json::Value;

use crate::rig::Rig;

/// Runs `ip -json`.
fn ip(arguments: &str) -> Vec<Value> {
    let text = command("ip", &format!("-json {arguments}"));
    if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

fn number(value: &Value, key: &str, otherwise: u64) -> u64 {
    value[key].as_u64().unwrap_or(otherwise)
}

fn has(value: &Value, key: &str, word: &str) -> bool {
    value[key].as_array().is_some_and(|list| list.iter().any(|is| is == word))
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

fn shown_links() -> BTreeSet<String> {
    let line = |link: &Value| {
        let running =
            has(link, "flags", "LOWER_UP") && ["UP", "UNKNOWN"].contains(&text(link, "operstate"));
        format!(
            "link {} {} {} mtu {} up {} running {running}",
            number(link, "ifindex", 0),
            text(link, "ifname"),
            text(link, "address"),
            number(link, "mtu", 0),
            has(link, "flags", "UP"),
        )
    };
    ip("link show").iter().map(line).collect()
}

fn shown_addresses() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for link in ip("address show") {
        for address in link["addr_info"].as_array().unwrap() {
            let (local, length) = (text(address, "local"), number(address, "prefixlen", 0));
            lines.insert(format!("address {} {local}/{length}", number(&link, "ifindex", 0)));
        }
    }
    lines
}

fn shown_neighbours() -> BTreeSet<String> {
    let line = |neighbour: &Value| {
        let unknown = ["FAILED", "INCOMPLETE", "NONE"];
        let unknown = unknown.iter().any(|state| has(neighbour, "state", state));
        let stale = has(neighbour, "state", "STALE");
        let (dst, dev) = (text(neighbour, "dst"), text(neighbour, "dev"));
        format!("neighbour {dst} {dev} {} {unknown} {stale}", text(neighbour, "lladdr"))
    };
    // Linux makes those of groups for itself, without an event.
    let is_host = |neighbour: &&Value| !text(neighbour, "dst").starts_with("ff0");
    ip("neighbour show nud all").iter().filter(is_host).map(line).collect()
}

fn table(name: &str) -> u32 {
    match name {
        "" | "main" => 254,
        "local" => 255,
        number => number.parse().unwrap(),
    }
}

fn way(gateway: &str, dev: &str, weight: u64) -> String {
    format!("via {gateway} dev {dev} weight {weight}")
}

fn shown_ways(route: &Value) -> String {
    let one = |hop: &Value| {
        let via = match text(hop, "gateway") {
            "" => text(&hop["via"], "host"),
            gateway => gateway,
        };
        way(via, text(hop, "dev"), number(hop, "weight", 1))
    };
    match route["nexthops"].as_array() {
        Some(hops) => hops.iter().map(one).collect::<BTreeSet<_>>(),
        None if text(route, "dev").is_empty() => BTreeSet::new(),
        None => BTreeSet::from([one(route)]),
    }
    .into_iter()
    .collect::<Vec<_>>()
    .join(" ")
}

fn shown_routes(tables: &[u32]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (family, all, length) in [("-4", "0.0.0.0/0", "/32"), ("-6", "::/0", "/128")] {
        for route in ip(&format!("{family} route show table all")) {
            let table = table(text(&route, "table"));
            let kind =
                if text(&route, "type").is_empty() { "unicast" } else { text(&route, "type") };
            let dst = match text(&route, "dst") {
                "default" => all.to_owned(),
                host if !host.contains('/') => format!("{host}{length}"),
                prefix => prefix.to_owned(),
            };
            // Of those that drop, IPv6 shows the loopback, which has no part in it.
            let drops = ["blackhole", "unreachable", "prohibit", "throw"].contains(&kind);
            let ways = if drops { String::new() } else { shown_ways(&route) };
            let metric = number(&route, "metric", 0);
            if tables.contains(&table) {
                lines.insert(format!("route {table} {kind} {dst} metric {metric} {ways}"));
            }
        }
    }
    lines
}

fn name(state: &Model, link: u32) -> &str {
    state.links().get(&link).map_or("?", |link| &link.name)
}

fn known_routes(state: &Model, tables: &[u32]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let destinations = |table: u32| {
        [false, true].into_iter().flat_map(move |ipv6| state.destinations(table, ipv6))
    };
    for &table in tables {
        for destination in destinations(table) {
            for route in state.routes(table, destination) {
                let hops = match state.target(table, destination) {
                    Some(Target::NextHops { hops, .. }) if route.next_hop != 0 => hops,
                    _ => route.hops.clone(),
                };
                let kind = format!("{:?}", route.kind).to_lowercase();
                let drops = [
                    RouteKind::Blackhole,
                    RouteKind::Unreachable,
                    RouteKind::Prohibit,
                    RouteKind::Throw,
                ];
                let one = |hop: &Hop| {
                    let via = hop.gateway.map(|via| via.to_string()).unwrap_or_default();
                    way(&via, name(state, hop.link), u64::from(hop.weight))
                };
                let ways: BTreeSet<String> = match drops.contains(&route.kind) {
                    true => BTreeSet::new(),
                    false => hops.iter().map(one).collect(),
                };
                let ways = ways.into_iter().collect::<Vec<_>>().join(" ");
                let metric = route.metric;
                lines.insert(format!("route {table} {kind} {destination} metric {metric} {ways}"));
            }
        }
    }
    lines
}

fn known(state: &Model, tables: &[u32]) -> BTreeSet<String> {
    let mut lines = known_routes(state, tables);
    for link in state.links().values() {
        let (index, mac) = (link.index, mac(link.mac));
        let facts = format!("{} {mac} mtu {} up {}", link.name, link.mtu, link.up);
        lines.insert(format!("link {index} {facts} running {}", link.running));
    }
    for address in state.addresses() {
        let length = address.prefix.length();
        lines.insert(format!("address {} {}/{length}", address.link, address.address));
    }
    for neighbour in state.neighbours().values().filter(|known| !known.address.is_multicast()) {
        use fastlane_mirror::message::Reachability;
        let (unknown, stale) =
            (neighbour.state == Reachability::Unknown, neighbour.state == Reachability::Stale);
        let lladdr = neighbour.mac.map(mac).unwrap_or_default();
        let dev = name(state, neighbour.link);
        lines.insert(format!("neighbour {} {dev} {lladdr} {unknown} {stale}", neighbour.address));
    }
    lines
}

/// Checks that the model equals what Linux shows.
#[track_caller]
pub(crate) fn is_same(rig: &Rig, tables: &[u32]) {
    let known = known(rig.follower.state(), tables);
    let mut shown = shown_routes(tables);
    shown.extend(shown_links());
    shown.extend(shown_addresses());
    shown.extend(shown_neighbours());
    let missing: Vec<_> = shown.difference(&known).collect();
    let extra: Vec<_> = known.difference(&shown).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:#?}\nextra {extra:#?}");
    assert!(known.len() > 10, "{known:#?}");
}

/// Returns the interface and router of `ip route get`, if there is a route.
pub(crate) fn route_get(destination: IpAddr) -> Option<(String, Option<IpAddr>)> {
    let output = std::process::Command::new("ip")
        .args(["-json", "route", "get", &destination.to_string()])
        .output()
        .unwrap();
    if !output.status.success() {
        return None;
    }
    let routes: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let route = &routes[0];
    if !["", "unicast"].contains(&text(route, "type")) {
        return None;
    }
    Some((text(route, "dev").to_owned(), text(route, "gateway").parse().ok()))
}
