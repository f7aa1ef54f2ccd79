//! Rules of iptables-nft, whose matches and targets no nft writes, and arbitrary messages.

use fastlane_netlink::Request;
use fastlane_testing::corpus;
use proptest::prelude::*;

use super::*;
use crate::fuzz;

/// Builds the attributes of a rule with expressions of iptables-nft.
fn rule(expressions: &[(&str, &str, &[u8])], accepts: bool) -> Vec<u8> {
    let text = |text: &str| [text.as_bytes(), &[0]].concat();
    let request = Request::new(0, 0, &[]).attribute(TABLE, b"t").attribute(CHAIN, b"c");
    let request = request.nest(EXPRESSIONS, |list| {
        let all = expressions.iter().fold(list, |list, (kind, name, info)| {
            list.nest(1, |it| {
                it.attribute(NAME, &text(kind))
                    .nest(DATA, |it| it.attribute(1, &text(name)).attribute(3, info))
            })
        });
        if !accepts {
            return all;
        }
        all.nest(1, |it| {
            it.attribute(NAME, &text("immediate")).nest(DATA, |it| {
                it.nest(IMMEDIATE, |it| {
                    it.nest(VERDICT, |it| it.attribute(1, &ACCEPT.to_be_bytes()))
                })
            })
        })
    });
    request.finish().split_off(16)
}

/// `struct xt_conntrack_mtinfo3` of `--ctstate`.
fn states(states: u16, inverted: u16) -> Vec<u8> {
    let mut info = vec![0; 168];
    info[CONNTRACK_FLAGS..][..2].copy_from_slice(&1_u16.to_ne_bytes());
    info[CONNTRACK_INVERTED..][..2].copy_from_slice(&inverted.to_ne_bytes());
    info[CONNTRACK_STATES..][..2].copy_from_slice(&states.to_ne_bytes());
    info
}

#[test]
fn matches_and_targets_of_iptables_are_known() {
    let read = |expressions: &[(&str, &str, &[u8])], accepts| {
        NftRule::read(2, &rule(expressions, accepts)).unwrap()
    };
    let established = ("match", "conntrack", &states(2 | 4, 0)[..]);
    assert!(read(&[established], true).accepts_established);
    assert!(!read(&[established], false).accepts_established);
    assert!(!read(&[("match", "conntrack", &states(2, 1))], true).accepts_established);
    assert!(!read(&[established, ("match", "tcp", &[0; 16])], true).accepts_established);
    assert!(read(&[("target", "LOG", &[0; 32])], false).acts());
    assert!(read(&[established, ("match", "limit", &[0; 40])], true).acts());
    assert!(!read(&[("match", "conntrack", &states(8, 0)), ("target", "LOG", &[])], true).acts());
    assert!(!read(&[("target", "TCPMSS", &[0; 2])], false).acts());
    assert_eq!(NftRule::read(2, &[]), None);
}

/// Builds the message of a rule, or of a chain, from its attributes.
fn message(kind: u16, attributes: &[u8]) -> Vec<u8> {
    let header = Request::new(kind, 0, &[2, 0, 0, 0]).finish();
    let mut message = [&header[..], attributes].concat();
    let length = (message.len() as u32).to_ne_bytes();
    message[..4].copy_from_slice(&length);
    message
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    const CHAIN: u16 = 10 << 8 | 3;
    const RULE: u16 = 10 << 8 | 6;
    let established = ("match", "conntrack", &states(2 | 4, 0)[..]);
    let chain = Request::new(0, 0, &[]).attribute(1, b"t").attribute(3, b"c");
    let local = chain.nest(4, |hook| hook.attribute(1, &1_u32.to_be_bytes()));
    let local = message(CHAIN, &local.finish()[16..]);
    let log = message(RULE, &rule(&[("target", "LOG", &[0; 32])], false));
    vec![
        ("accepted", [message(RULE, &rule(&[established], true)), log.clone()].concat()),
        ("limited", message(RULE, &rule(&[established, ("match", "limit", &[0; 40])], true))),
        ("local", [local, log.clone()].concat()),
        ("log", log),
    ]
}

#[test]
fn the_seeds_are_committed_and_hold() {
    corpus::seeds("packet_rules", seeds());
    corpus::replay("packet_rules", 4, fuzz::packet_rules);
}

proptest! {
    #[test]
    fn any_octets_are_read_or_passed_over(octets in prop::collection::vec(any::<u8>(), 0..260)) {
        fuzz::packet_rules(&octets);
    }
}
