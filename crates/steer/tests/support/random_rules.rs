//! Random lists of rules, from the same pools of values as the frames.

use std::net::IpAddr;

use fastlane_steer::{MAX_RULES, PortRange, Prefix, Rule, Rules};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::frames::{ETHERTYPES, PORTS, PROTOCOLS, V4, V6, VLANS};

/// Generates lists that [`Rules::new`] accepts, including the empty and the longest one.
pub(crate) fn rules() -> impl Strategy<Value = Rules> {
    prop_oneof![
        1 => Just(Rules::default()),
        12 => vec(rule(), 1..4).prop_map(checked),
        6 => vec(rule(), 4..MAX_RULES + 1).prop_map(checked),
        1 => vec(rule(), MAX_RULES).prop_map(checked),
    ]
}

fn checked(rules: Vec<Rule>) -> Rules {
    Rules::new(rules).expect("each rule was checked")
}

fn rule() -> impl Strategy<Value = Rule> {
    let sometimes = |weight: f64| prop::bool::weighted(weight);
    (
        option::weighted(0.3, select(ETHERTYPES.to_vec())),
        option::weighted(0.2, select(PROTOCOLS.to_vec())),
        any::<bool>(),
        (option::weighted(0.3, any::<(usize, u8)>()), option::weighted(0.3, any::<(usize, u8)>())),
        (option::weighted(0.35, ports()), option::weighted(0.15, ports())),
        (sometimes(0.15), sometimes(0.5), option::weighted(0.25, select(VLANS.to_vec()))),
    )
        .prop_filter_map(
            "contradicts itself",
            |(ethertype, protocol, v4, prefixes, ports, (gtp_u, fragments, vlan))| {
                let rule = Rule {
                    vlan,
                    ethertype,
                    protocol,
                    source: prefixes.0.map(|(index, length)| prefix(v4, index, length)),
                    destination: prefixes.1.map(|(index, length)| prefix(v4, index, length)),
                    udp_port: ports.0,
                    tcp_port: ports.1,
                    gtp_u,
                    fragments,
                };
                Rules::new(vec![rule.clone()]).is_ok().then_some(rule)
            },
        )
}

fn ports() -> impl Strategy<Value = PortRange> {
    let port = || select(PORTS.to_vec());
    prop_oneof![
        port().prop_map(PortRange::from),
        (port(), port()).prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) }),
    ]
}

/// Returns a prefix of an address from the pool, with its host bits cleared.
fn prefix(v4: bool, index: usize, length: u8) -> Prefix {
    match v4 {
        true => {
            let length = length % 33;
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            let address = V4[index % V4.len()].to_bits() & mask;
            Prefix { address: IpAddr::V4(address.into()), length }
        }
        false => {
            let length = length % 129;
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            let address = V6[index % V6.len()].to_bits() & mask;
            Prefix { address: IpAddr::V6(address.into()), length }
        }
    }
}
