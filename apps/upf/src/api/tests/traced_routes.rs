//! Route of a packet in `upf trace`.

use fastlane_testing::namespace::{ip, private};
use serde_json::json;

use super::super::query::{Query, Reply};
use super::super::view::WayView;
use super::{BackendView, answer, session};
use crate::config::Settings;
use crate::session::{Actions, Destination, Far, Forwarding, InstanceId, OuterHeader, Pdr, Source};

fn pdr(id: u16, source: Source, far: u32) -> Pdr {
    Pdr {
        id,
        precedence: id.into(),
        source,
        instance: None,
        tunnel: None,
        user: None,
        framed: vec![],
        filters: vec![],
        qfis: vec![],
        removal: None,
        far,
        qers: vec![],
        urrs: vec![],
        predefined: vec![],
    }
}

/// Returns a FAR to the core, or through a tunnel to the access network of an instance.
fn far(id: u32, tunnel: Option<Option<InstanceId>>) -> Far {
    let v4 = Some("192.0.2.1".parse().unwrap());
    let forwarding = Forwarding {
        destination: if tunnel.is_some() { Destination::Access } else { Destination::Core },
        instance: tunnel.flatten(),
        outer: tunnel.map(|_| OuterHeader { teid: Some(9), v4, v6: None, port: None }),
        marking: None,
        redirect: None,
    };
    let actions = Actions { forward: true, ..Actions::default() };
    Far { id, actions, forwarding: Some(forwarding), ..Far::default() }
}

fn ways() -> Vec<WayView> {
    let mut session = session(0);
    session.pdrs = vec![
        pdr(1, Source::Access, 1),
        pdr(2, Source::Core, 2),
        pdr(3, Source::Core, 3),
        pdr(4, Source::Core, 4),
    ];
    session.fars =
        vec![far(1, None), far(2, Some(Some(77))), far(3, Some(None)), far(4, Some(Some(78)))];
    let who = format!("imsi-{}", session.supi.as_deref().unwrap()).parse().unwrap();
    let answer = answer(&Query::Trace(who, None), &BackendView(vec![session]));
    let Reply::Trace(mut trace) = answer else { panic!("{answer:?}") };
    trace.add_routes();
    trace.sessions.remove(0).ways
}

#[test]
fn the_next_hop_is_that_of_the_network_instances_table() {
    if !private("api::tests::trace::the_next_hop_is_that_of_the_network_instances_table") {
        return;
    }
    for (name, address) in [("upf-a", "198.51.100.1/24"), ("upf-b", "203.0.113.1/24")] {
        ip(&format!("link add {name} type veth peer name {name}-peer"));
        ip(&format!("link set {name}-peer up"));
        ip(&format!("link set {name} up"));
        ip(&format!("address add {address} dev {name}"));
    }
    ip("route add 192.0.2.0/24 via 198.51.100.2");
    ip("route add 192.0.2.0/24 via 203.0.113.2 table 77");
    let ways = ways();
    let hops: Vec<&str> = ways.iter().map(|way| way.next_hop.as_deref().unwrap()).collect();
    assert_eq!(hops[0], "to 02:00:00:00:00:02 by port n6", "one for all");
    assert_eq!(hops[1], "via 203.0.113.2 on upf-b in table 77");
    assert_eq!(hops[2], "via 198.51.100.2 on upf-a", "main");
    assert!(hops[3].starts_with("no route in table 78 (Network is unreachable"), "{}", hops[3]);
    let tables: Vec<_> = ways.iter().map(|way| way.table).collect();
    assert_eq!(tables, [None, Some(77), None, Some(78)]);
}

#[test]
fn the_first_interface_of_an_instance_decides() {
    let settings: Settings = serde_json::from_value(json!({
        "node-id": "upf.example",
        "n4": { "addresses": ["192.0.2.1"] },
        "interfaces": {
            "a3": { "port": "a", "role": "n3", "network-instances": ["access"],
                    "addresses": ["10.3.0.1"], "route-table": 3 },
            "b6": { "port": "b", "role": "n6", "network-instances": ["internet"],
                    "route-table": 6 },
            "c6": { "port": "c", "role": "n6", "network-instances": ["voice"],
                    "route-table": 7 },
            "d9": { "port": "d", "role": "n9", "network-instances": ["voice"],
                    "addresses": ["10.9.0.1"], "route-table": 9 },
        },
    }))
    .unwrap();
    let of = |name: Option<&str>, is_n6| {
        let instance = name.map(|name| settings.instance(name).unwrap());
        settings.leading(instance, is_n6).and_then(|it| it.route_table)
    };
    assert_eq!([of(None, true), of(None, false)], [Some(6), Some(3)]);
    assert_eq!([of(Some("voice"), true), of(Some("voice"), false)], [Some(7), Some(9)]);
    assert_eq!(of(Some("internet"), false), Some(3), "data networks share the tunnels");
    assert_eq!(of(Some("access"), true), None, "it is no data network");
}
