use fastlane::Error;
use fastlane::config::raw::Configuration;
use serde_json::{Value, json};

use crate::config::{Settings, defaults};
use crate::rules::Capacities;

fn whole() -> Value {
    json!({
        "ports": {
            "access": { "driver": { "tap": {} } },
            "core": { "driver": { "tap": {} } },
        },
        "app": {
            "node-id": "upf.example.org",
            "n4": { "addresses": ["192.0.2.1"] },
            "interfaces": {
                "n3": { "port": "access", "role": "n3", "network-instances": ["access"],
                        "addresses": ["192.0.2.2", "2001:db8::2"] },
                "n6": { "port": "core", "role": "n6", "network-instances": ["internet"] },
            },
            "pools": [
                { "network-instance": "internet", "prefix": "10.45.0.0/16" },
                { "network-instance": "internet", "prefix": "2001:db8:100::/40" },
            ],
        },
    })
}

fn follows(configuration: Value) -> Result<Value, Error> {
    let settings: Settings = serde_json::from_value(configuration["app"].clone()).unwrap();
    let written: Configuration = serde_json::from_value(configuration).unwrap();
    defaults(&settings, &written, &Capacities::of(&settings).by_table())
}

/// Returns the error when the value at `pointer` is another one.
fn said(pointer: &str, value: Value) -> (String, String, Option<String>) {
    let mut configuration = whole();
    match configuration.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            configuration.pointer_mut(parent).unwrap()[key] = value;
        }
    }
    match follows(configuration) {
        Err(Error::Value { path, what, meant }) => (path, what, meant),
        other => panic!("{pointer}: {other:?}"),
    }
}

#[test]
fn a_good_configuration_gets_what_follows() {
    let defaults = follows(whole()).unwrap();
    assert_eq!(defaults["tables"]["rules"]["capacity"], 16_384);
    assert_eq!(defaults["tables"]["state"]["capacity"], 4 * 16_384);
    assert_eq!(defaults["mirror"]["tables"], json!([254]));
    assert_eq!(defaults["lanes"]["hold"]["per-key"], 64);
    let between = json!({ "user-to-user": { "driver": { "memory": {} } } });
    assert_eq!(defaults["ports"], between, "one lane: packets need not ask for theirs");
    let mut many = whole();
    many["lanes"] = json!({ "cpus": [0, 1] });
    many["app"]["interfaces"]["n6"]["route-table"] = json!(7);
    let defaults = follows(many).unwrap();
    assert_eq!(defaults["ports"]["core"]["lane-by"], "application");
    assert_eq!(defaults["ports"]["user-to-user"]["lane-by"], "application");
    assert_eq!(defaults["app"]["hairpin"], "user-to-user");
    assert_eq!(defaults["mirror"]["tables"], json!([254, 7]));
}

#[test]
fn each_mistake_names_its_place_the_reason_and_the_remedy() {
    let cases = [
        ("/app/node-id", json!("10.0.0.256"), "app.node-id", "neither an IP address nor"),
        ("/app/node-id", json!("a..b"), "app.node-id", "neither an IP address nor"),
        ("/app/n4/addresses", json!([]), "app.n4.addresses", "need an address"),
        ("/app/n4/addresses", json!(["0.0.0.0"]), "app.n4.addresses", "means any address"),
        ("/app/n4/addresses", json!(["fe80::1"]), "app.n4.addresses", "one link only"),
        ("/app/n4/peers", json!(["fe80::2"]), "app.n4.peers.0", "one link only"),
        ("/app/n4/n1", json!(0), "app.n4.n1", "write 1 to 10"),
        ("/app/n4/release-s", json!(86_401), "app.n4.release-s", "write 0 to 86400"),
        ("/app/interfaces", json!({}), "app.interfaces", "write 1 to 64"),
        ("/app/interfaces/n3/addresses", json!([]), "app.interfaces.n3.addresses", "write 1 to 16"),
        (
            "/app/interfaces/n3/addresses",
            json!(["192.0.2.2", "192.0.2.2"]),
            "app.interfaces.n3.addresses",
            "named twice",
        ),
        (
            "/app/interfaces/n6/addresses",
            json!(["192.0.2.9"]),
            "app.interfaces.n6.addresses",
            "no tunnels",
        ),
        (
            "/app/interfaces/n9",
            json!({ "port": "core", "role": "n9", "network-instances": ["internet"],
                    "addresses": ["192.0.2.2"] }),
            "app.interfaces.n9.addresses",
            "192.0.2.2 belongs to `n3`, too",
        ),
        (
            "/app/interfaces/other",
            json!({ "port": "core", "role": "n6", "network-instances": ["other"] }),
            "app.interfaces.other.port",
            "`n6` is N6 on port `core`, too",
        ),
        ("/app/interfaces/n6/next-hop", json!("x"), "app.interfaces.n6.next-hop", "02:00:00"),
        (
            "/app/interfaces/n6",
            json!({ "port": "core", "role": "n6", "network-instances": ["internet"],
                    "route-table": 7, "next-hop": "02:00:00:00:00:02" }),
            "app.interfaces.n6.next-hop",
            "leave out one",
        ),
        ("/app/pools/1/prefix", json!("10.45.3.0/24"), "app.pools.1.prefix", "overlaps"),
        ("/app/pools/1/prefix", json!("2001:db8::/65"), "app.pools.1.prefix", "no room"),
        ("/app/pools/0/prefix", json!("10.45.0.1/16"), "app.pools.0.prefix", "10.45.0.0/16"),
        ("/app/sessions", json!(0), "app.sessions", "write 1 to 4194304"),
        ("/app/limits", json!({ "pdrs": 1 }), "app.limits.pdrs", "write 2 to 256"),
        ("/app/limits", json!({ "held-packets": 5000 }), "app.limits.held-packets", "at most that"),
        (
            "/app/predefined",
            json!({ "web": { "precedence": 1,
                             "flows": ["permit out 6 from any 80 to assigned", "permit in ip"] } }),
            "app.predefined.web.flows.1",
            "`permit in ip`: ",
        ),
        ("/tables", json!({ "rules": { "capacity": 1 } }), "tables.rules", "remove it"),
    ];
    for (pointer, value, at, part) in cases {
        let (path, what, _) = said(pointer, value);
        assert_eq!(path, at, "{what}");
        assert!(what.contains(part), "{pointer}: {what}");
    }
}

#[test]
fn a_name_that_is_not_there_is_shown_with_the_nearest() {
    let (path, what, meant) = said("/app/interfaces/n3/port", json!("acess"));
    assert_eq!(path, "app.interfaces.n3.port");
    assert!(what.contains("there are access, core"), "{what}");
    assert_eq!(meant.as_deref(), Some("access"));
    let (_, _, meant) = said("/app/pools/0/network-instance", json!("intrenet"));
    assert_eq!(meant.as_deref(), Some("internet"));
}

#[test]
fn a_pool_does_not_hold_our_own_addresses_of_its_instance() {
    let mut configuration = whole();
    configuration["app"]["interfaces"]["n3"]["network-instances"] = json!(["internet"]);
    configuration["app"]["pools"][0]["prefix"] = json!("192.0.0.0/16");
    let error = follows(configuration).unwrap_err().to_string();
    assert!(error.contains("it contains 192.0.2.2, a GTP-U address of this UPF"), "{error}");
}

#[test]
fn usage_is_exported_to_an_absolute_path_in_intervals_of_a_second_or_more() {
    for (export, place, remedy) in [
        (json!({ "socket": "usage.sock" }), "app.usage-export.socket", "write an absolute one"),
        (
            json!({ "socket": "/run/usage.sock", "interval-s": 0 }),
            "app.usage-export.interval-s",
            "write 1 to 86400",
        ),
    ] {
        let (path, what, _) = said("/app/usage-export", export);
        assert!(path == place && what.contains(remedy), "{path}: {what}");
    }
}
