//! Check of a reload: the changes that a running UPF can make, and the reasons against others.

use super::Role;
use super::change::{Change, difference};
use super::nat_plan::NatPlan;
use super::running::RunningConfig;
use crate::session::InstanceId;

/// Keys that a reload may change, by their path, which covers all below it. Of an interface that
/// stays, only its network instances may change.
pub const RELOADABLE: &[&str] = &[
    "ports.*.steer",
    "app.interfaces",
    "app.pools",
    "app.predefined",
    "app.sessions",
    "app.n4.peers",
    "app.n4.allow",
    "app.n4.heartbeat-s",
    "app.n4.keep-sessions-s",
    "app.n4.establishments-per-s",
    "app.n4.limits",
    "app.limits.pdrs",
    "app.limits.fars",
    "app.limits.qers",
    "app.limits.urrs",
    "app.limits.filters",
    "app.limits.held-ms",
    "app.slices",
    "app.gtp.probe-s",
    "app.gtp.t3-ms",
    "app.gtp.n3",
];

/// Reasons why other keys cannot change, by the beginning of their path.
const FIXED: &[(&str, &str)] = &[
    ("app.reserved-sessions", "the tables have the size of the start"),
    ("app.limits.complex-sessions", "the tables have the size of the start"),
    ("app.limits", "lanes have their memory from the start"),
    ("app.gtp", "lanes have it from the start"),
    ("app.node-id", "peers know this node by it"),
    ("app.n4.addresses", "the sockets are open"),
    ("app.n4.port", "the sockets are open"),
    ("app.n4", "stored responses live by it"),
    ("app.api", "the server listens there"),
    ("app.usage-export", "collectors are connected there"),
    ("app.teid", "it was announced to peers, and the tables depend on it"),
    ("app.interfaces", "tunnels and routes of sessions depend on it"),
    ("mirror.tables", "the mirror follows the routing tables of the start"),
    ("ports", "ports open at the start"),
    ("tables", "the tables have the size of the start"),
];

/// Keys that follow from settings. They are named only if no key of the settings is.
const DERIVED: &[&str] = &["tables", "lanes.hold", "mirror.tables"];

fn is_below(path: &[String], pattern: &str) -> bool {
    let mut keys = path.iter();
    pattern.split('.').all(|one| keys.next().is_some_and(|key| one == "*" || one == key))
}

/// Returns true if a reload may make this change, as far as its path says.
fn is_reloadable(change: &Change) -> bool {
    let path = &change.path;
    // An interface comes or goes as a whole.
    let is_fixed = is_below(path, "app.interfaces.*.*")
        && !is_below(path, "app.interfaces.*.network-instances");
    !is_fixed && RELOADABLE.iter().any(|pattern| is_below(path, pattern))
}

/// Returns the changes from one configuration to another, and a reason for each that a running UPF
/// cannot make whatever its sessions are. Without reasons all of them can be made.
#[must_use]
pub fn examine(before: &RunningConfig, after: &RunningConfig) -> (Vec<Change>, Vec<String>) {
    let changes = difference(&before.configuration, &after.configuration);
    let mut reasons = Vec::new();
    for change in changes.iter().filter(|change| !is_reloadable(change)) {
        let why = FIXED.iter().find(|(start, _)| is_below(&change.path, start));
        let why = why.map_or("it is read at the start", |(_, why)| why);
        let is_derived = DERIVED.iter().any(|pattern| is_below(&change.path, pattern));
        reasons.push((is_derived, format!("{}: {why}; restart the UPF", change.place())));
    }
    reasons.extend(too_many_sessions(before, after).map(|reason| (false, reason)));
    reasons.extend(moved_instances(before, after).into_iter().map(|reason| (false, reason)));
    reasons.extend(other_default(before, after).map(|reason| (false, reason)));
    reasons.extend(other_blocks(before, after).map(|reason| (false, reason)));
    let is_explained = reasons.iter().any(|(is_derived, _)| !is_derived);
    reasons.retain(|(is_derived, _)| !is_derived || !is_explained);
    (changes, reasons.into_iter().map(|(_, reason)| reason).collect())
}

/// Returns the reason if there are to be more sessions than the tables have room for.
fn too_many_sessions(before: &RunningConfig, after: &RunningConfig) -> Option<String> {
    let (room, sessions) = (before.settings.session_room(), after.settings.sessions);
    (sessions > room).then(|| {
        format!(
            "app.sessions: the tables have room for {room} sessions, {sessions} are configured; \
             write at most {room}, or raise app.reserved-sessions and restart the UPF"
        )
    })
}

/// Returns the network instances whose UE addresses would be looked up with those of others than
/// before. Lookup keys of their sessions would change.
fn moved_instances(before: &RunningConfig, after: &RunningConfig) -> Vec<String> {
    let networks = [before, after].map(|it| it.settings.network());
    let names = after.settings.instances();
    let moved = |name: &&str| {
        let (was, is) = (before.settings.instance(name)?, after.settings.instance(name)?);
        let of = |network: usize, id: InstanceId| networks[network].domain(id);
        let (was, is) = (of(0, was), of(1, is));
        // Without an N6 interface it has had no UE addresses.
        (was.is_some() && is.is_some() && was != is).then(|| {
            format!(
                "app.interfaces: the network instance `{name}` would share its UE addresses with \
                 others than before; leave it on its N6 interface, or restart the UPF"
            )
        })
    };
    names.iter().filter(|name| !name.is_empty()).filter_map(moved).collect()
}

/// Returns the reason if sessions that name no network instance would use another one than before.
fn other_default(before: &RunningConfig, after: &RunningConfig) -> Option<String> {
    let first = |it: &RunningConfig| {
        let n6 = it.settings.interfaces.iter().find(|(_, it)| it.role == Role::N6);
        n6.map(|(name, _)| name.clone())
    };
    let networks = [before, after].map(|it| it.settings.network().data_network());
    (networks[0] != networks[1]).then(|| {
        format!(
            "app.interfaces: `{}` would be the default data network instead of `{}`, because its \
             name is the first one of N6; give it a name behind that one, or restart the UPF",
            first(after).unwrap_or_default(),
            first(before).unwrap_or_default()
        )
    })
}

/// Returns the reason if blocks of external ports would belong to others than before.
fn other_blocks(before: &RunningConfig, after: &RunningConfig) -> Option<String> {
    let [was, is] = [before, after].map(|it| NatPlan::new(&it.settings));
    (was != is).then(|| {
        "app.interfaces: the blocks of external ports are numbered over the interfaces that have \
         `nat` at the start, and lanes know these; restart the UPF"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use fastlane::config::raw::Configuration;
    use serde_json::{Value, json};

    use super::*;

    fn configuration() -> Value {
        json!({
            "ports": {
                "n3": { "driver": { "memory": {} } },
                "n6": { "driver": { "memory": {} }, "steer": [{ "destination": "10.45.0.0/16" }] },
                "n6b": { "driver": { "memory": {} } },
            },
            "app": {
                "node-id": "192.0.2.1",
                "n4": { "addresses": ["192.0.2.1"] },
                "interfaces": {
                    "n3": { "port": "n3", "role": "n3", "addresses": ["10.3.0.1"] },
                    "n6": { "port": "n6", "role": "n6", "network-instances": ["b", "c"] },
                },
                "pools": [{ "network-instance": "b", "prefix": "10.45.0.0/16" }],
                "sessions": 100,
                "reserved-sessions": 200,
            },
        })
    }

    fn running(configuration: &Value) -> RunningConfig {
        let configuration: Configuration = serde_json::from_value(configuration.clone()).unwrap();
        let settings = serde_json::from_value(configuration.app.clone().unwrap()).unwrap();
        RunningConfig::new(&configuration, settings)
    }

    /// Returns the paths that change and the reasons against it.
    fn examined(change: impl Fn(&mut Value)) -> (Vec<String>, Vec<String>) {
        let before = running(&configuration());
        let mut after = configuration();
        change(&mut after);
        let after = running(&after).following(&before).unwrap();
        let (changes, reasons) = examine(&before, &after);
        (changes.iter().map(Change::place).collect(), reasons)
    }

    #[test]
    fn networks_pools_peers_rules_and_limits_can_change() {
        let (changes, reasons) = examined(|it| {
            it["ports"]["n6"]["steer"] = json!([{ "destination": "10.44.0.0/15" }]);
            it["app"]["interfaces"]["n6"]["network-instances"] = json!(["b", "c", "d"]);
            it["app"]["interfaces"]["x"] =
                json!({ "port": "n6b", "role": "n6", "network-instances": ["a"] });
            it["app"]["pools"] = json!([{ "network-instance": "a", "prefix": "10.44.0.0/16" }]);
            it["app"]["n4"]["allow"] = json!(["10.0.0.0/8"]);
            it["app"]["n4"]["peers"] = json!(["smf.example"]);
            it["app"]["predefined"] = json!({ "x": { "precedence": 1, "flows": [] } });
            it["app"]["sessions"] = json!(200);
            it["app"]["limits"] = json!({ "pdrs": 64 });
            it["app"]["slices"] = json!([{ "s-nssai": { "sst": 1 }, "sessions": 7 }]);
            it["app"]["n4"]["limits"] = json!([{ "smf": "10.4.0.0/16", "sessions": 7 }]);
        });
        assert_eq!(reasons, [""; 0]);
        assert_eq!(
            changes,
            [
                "app.interfaces.n6.network-instances",
                "app.interfaces.x",
                "app.limits.pdrs",
                "app.n4.allow",
                "app.n4.limits",
                "app.n4.peers",
                "app.pools",
                "app.predefined.x",
                "app.sessions",
                "app.slices",
                "ports.n6.steer",
            ]
        );
    }

    #[test]
    fn a_default_that_is_written_out_is_no_change() {
        let (changes, reasons) = examined(|it| {
            it["$schema"] = json!("upf.schema.json");
            it["app"]["n4"]["port"] = json!(8805);
            it["app"]["limits"] = json!({});
        });
        assert_eq!((changes.len(), reasons.len()), (0, 0), "{changes:?}");
    }

    #[test]
    fn everything_that_cannot_change_is_named_at_once() {
        let (_, reasons) = examined(|it| {
            it["ports"]["n3"]["driver"] = json!({ "ring": { "peer": "x" } });
            it["ports"]["n9"] = json!({ "driver": { "memory": {} } });
            it["lanes"] = json!({ "frames": 1024, "hold": { "packets": 7 } });
            it["app"]["sessions"] = json!(201);
            it["app"]["reserved-sessions"] = json!(300);
            it["app"]["limits"] = json!({ "held-packets-per-lane": 5000 });
            it["app"]["node-id"] = json!("192.0.2.2");
            it["app"]["interfaces"]["n3"]["addresses"] = json!(["10.3.0.2"]);
            it["app"]["api"] = json!(null);
        });
        let places: Vec<&str> =
            reasons.iter().filter_map(|reason| reason.split(": ").next()).collect();
        assert_eq!(
            places,
            [
                "app.api",
                "app.interfaces.n3.addresses",
                "app.limits.held-packets-per-lane",
                "app.node-id",
                "app.reserved-sessions",
                "lanes.frames",
                "ports.n3.driver.memory",
                "ports.n3.driver.ring",
                "ports.n9",
                "app.sessions",
            ]
        );
        assert!(reasons[9].contains("room for 200"), "{reasons:?}");
    }

    #[test]
    fn a_network_instance_stays_with_those_that_share_its_addresses() {
        let moved = |lists: [&[&str]; 2]| {
            let (_, reasons) = examined(|it| {
                it["app"]["interfaces"]["n6"]["network-instances"] = json!(lists[0]);
                it["app"]["interfaces"]["x"] =
                    json!({ "port": "n6b", "role": "n6", "network-instances": lists[1] });
            });
            reasons
        };
        assert_eq!(moved([&["b", "c"], &["a"]]), [""; 0]);
        assert_eq!(moved([&["b", "c", "a"], &["d"]]), [""; 0]);
        let (_, reasons) = examined(|it| {
            it["app"]["interfaces"]["a"] =
                json!({ "port": "n6b", "role": "n6", "network-instances": ["x"] });
        });
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("`a` would be the default"), "{reasons:?}");
        let reasons = moved([&["b"], &["c"]]);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("`c` would share"), "{reasons:?}");
    }

    #[test]
    fn an_interface_with_nat_neither_comes_nor_changes() {
        let nat = json!({ "addresses": ["192.0.2.64/30"] });
        let (_, reasons) = examined(|it| {
            it["app"]["interfaces"]["x"] = json!({
                "port": "n6b", "role": "n6", "network-instances": ["a"], "nat": nat,
            });
        });
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("interfaces that have `nat` at the start"), "{reasons:?}");
        let (_, reasons) = examined(|it| it["app"]["interfaces"]["n6"]["nat"] = nat.clone());
        assert!(reasons[0].starts_with("app.interfaces.n6.nat: "), "{reasons:?}");
    }
}
