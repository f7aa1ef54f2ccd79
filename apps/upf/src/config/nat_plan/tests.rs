use serde_json::{Value, json};

use super::*;

fn settings(nat: Value) -> Settings {
    serde_json::from_value(json!({
        "node-id": "upf.example.org",
        "n4": { "addresses": ["192.0.2.1"] },
        "interfaces": {
            "n3": { "port": "a", "role": "n3", "addresses": ["192.0.2.2"] },
            "n6": { "port": "c", "role": "n6", "network-instances": ["internet"], "nat": nat },
        },
        "pools": [{ "network-instance": "internet", "prefix": "10.45.0.0/16" }],
    }))
    .unwrap()
}

#[test]
fn blocks_and_ports_are_found_from_each_other() {
    let nat = json!({ "addresses": ["198.51.100.7", "203.0.113.16/29"], "ports-per-user": 1024 });
    let plan = NatPlan::new(&settings(nat));
    let pool = &plan.pools[0];
    assert_eq!((pool.per_address, plan.blocks(), plan.buckets()), (63, 9 * 63, 9 * 63 * 128));
    let mut buckets = std::collections::BTreeSet::new();
    for number in 0..plan.blocks() {
        let block = pool.block(number).unwrap();
        let last = block.first_port + 1023;
        for port in [block.first_port, block.first_port + 77, last] {
            assert_eq!(pool.block_of(block.address.to_bits(), port), Some(number));
        }
        assert!(buckets.insert(block.bucket) && block.bucket.is_multiple_of(128));
    }
    assert_eq!(pool.block(plan.blocks()), None);
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
    assert_eq!(pool.block_of(address("198.51.100.7"), 1023), None);
    assert_eq!(pool.block_of(address("198.51.100.8"), 1024), None);
    assert_eq!(pool.block_of(address("203.0.113.23"), 65_535), Some(9 * 63 - 1));
    assert_eq!(pool.block_of(address("203.0.113.24"), 65_535), None);
}

#[test]
fn ports_that_fill_no_block_are_not_used() {
    let nat = json!({ "addresses": ["198.51.100.7"], "first-port": 2048, "last-port": 2500 });
    let plan = NatPlan::new(&settings(nat));
    assert_eq!(plan.blocks(), 1);
    let address = u32::from_be_bytes([198, 51, 100, 7]);
    let in_block = |port| plan.pools[0].block_of(address, port);
    assert_eq!([2047, 2048, 2303, 2304, 2500].map(in_block), [None, Some(0), Some(0), None, None]);
}

#[test]
fn each_mistake_names_its_place_the_reason_and_the_remedy() {
    for (key, value, path, part) in [
        ("addresses", json!([]), ".addresses", "write at least one"),
        ("addresses", json!(["2001:db8::/64"]), ".addresses.0", "IPv4 only"),
        ("addresses", json!(["198.51.100.1/24"]), ".addresses.0", "write 198.51.100.0/24"),
        ("addresses", json!(["198.51.100.1", "198.51.100.0/24"]), ".addresses.1", "each once"),
        ("addresses", json!(["10.45.7.1"]), ".addresses", "use other addresses"),
        ("addresses", json!(["192.0.2.0/24"]), ".addresses", "a GTP-U address"),
        ("addresses", json!(["20.0.0.0/8"]), ".addresses", "too many"),
        ("first-port", json!(1025), ".first-port", "even number"),
        ("first-port", json!(0), ".first-port", "even number"),
        ("last-port", json!(1100), ".last-port", "fewer than those of a user"),
        ("ports-per-user", json!(100), ".ports-per-user", "a power of two"),
        ("ports-per-user", json!(32), ".ports-per-user", "from 64"),
        ("udp-s", json!(0), ".udp-s", "write 1 to"),
        ("inside", json!(["10.0.0.0/33"]), ".inside.0", "is no prefix"),
        ("untranslated", json!(["x"]), ".untranslated.0", "is no prefix"),
    ] {
        let mut nat = json!({ "addresses": ["198.51.100.7"] });
        nat[key] = value;
        match check_nat(&settings(nat)) {
            Err(Error::Value { path: at, what, .. }) => {
                assert_eq!(at, format!("app.interfaces.n6.nat{path}"), "{what}");
                assert!(what.contains(part), "{what}");
            }
            other => panic!("{key}: {other:?}"),
        }
    }
    assert!(check_nat(&settings(json!({ "addresses": ["198.51.100.7"] }))).is_ok());
}

#[test]
fn it_belongs_to_one_n6_interface() {
    let nat = json!({ "addresses": ["198.51.100.7"] });
    let mut on_n3 = settings(nat.clone());
    let interface = on_n3.interfaces.get_mut("n6").unwrap();
    let nat_of_n6 = interface.nat.take();
    on_n3.interfaces.get_mut("n3").unwrap().nat = nat_of_n6;
    assert!(check_nat(&on_n3).unwrap_err().to_string().contains("only N6"));
    let mut two = settings(nat);
    let mut other = two.interfaces["n6"].clone();
    other.nat = None;
    two.interfaces.insert("n6b".to_owned(), other);
    assert!(check_nat(&two).unwrap_err().to_string().contains("use one interface"));
}
