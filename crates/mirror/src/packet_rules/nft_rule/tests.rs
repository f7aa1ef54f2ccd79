//! Rules of iptables-nft, whose matches and targets no nft writes, and arbitrary messages.

use fastlane_netlink::Request;
use fastlane_testing::corpus;
use proptest::prelude::*;

use super::*;
use crate::fuzz;

/// Policy by which connections are fast that the rule marks with 1.
const POLICY: FlowPolicy = FlowPolicy { mark: 1, mask: 1, one_way: false };

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

fn acts(rule: &NftRule) -> bool {
    rule.effect.is_some() && !rule.is_for_others
}

#[test]
fn matches_and_targets_of_iptables_are_known() {
    let read = |expressions: &[(&str, &str, &[u8])], accepts| {
        NftRule::read(2, &rule(expressions, accepts), &NftSets::default(), &POLICY).unwrap()
    };
    let established = ("match", "conntrack", &states(2 | 4, 0)[..]);
    assert!(read(&[established], true).accepts_all);
    assert!(!read(&[established], false).accepts_all);
    assert!(!read(&[("match", "conntrack", &states(2, 1))], true).accepts_all);
    assert!(!read(&[established, ("match", "tcp", &[0; 16])], true).accepts_all);
    assert!(acts(&read(&[("target", "LOG", &[0; 32])], false)));
    assert!(acts(&read(&[established, ("match", "limit", &[0; 40])], true)));
    assert!(!acts(&read(&[("match", "conntrack", &states(8, 0)), ("target", "LOG", &[])], true)));
    assert!(!acts(&read(&[("target", "TCPMSS", &[0; 2])], false)));
    for target in ["TEE", "ECN", "TCPOPTSTRIP"] {
        assert!(acts(&read(&[("target", target, &[0; 32])], false)), "{target}");
    }
    assert!(acts(&read(&[("match", "rateest", &[0; 160])], true)));
    assert!(!acts(&read(&[("match", "tcp", &[0; 16])], true)));
    assert_eq!(NftRule::read(2, &[], &NftSets::default(), &POLICY), None);
}

/// Builds the attributes of a rule with one expression.
fn single(name: &str, fill: impl FnOnce(Request) -> Request) -> Vec<u8> {
    let request = Request::new(0, 0, &[]).attribute(TABLE, b"t").attribute(CHAIN, b"c");
    let request = request.nest(EXPRESSIONS, |list| {
        list.nest(1, |it| it.attribute(NAME, name.as_bytes()).nest(DATA, fill))
    });
    request.finish().split_off(16)
}

/// Returns the effect of a rule of a table without known sets.
fn effect(rule: &[u8]) -> Option<String> {
    NftRule::read(2, rule, &NftSets::default(), &POLICY)?.effect
}

/// Builds an update of the set `flood` with these expressions, in a list or each alone.
fn update(expressions: &[&str], is_list: bool) -> Vec<u8> {
    let named = |it: Request, name: &str| it.attribute(NAME, name.as_bytes()).nest(DATA, |it| it);
    single("dynset", |update| {
        let update = update.attribute(SET, b"flood\0");
        if is_list {
            return update.nest(ELEMENTS, |list| {
                expressions.iter().fold(list, |list, name| list.nest(1, |it| named(it, name)))
            });
        }
        let nest = |it: Request, name: &&str| it.nest(ELEMENT, |it| named(it, name));
        expressions.iter().fold(update, nest)
    })
}

#[test]
fn expressions_of_elements_act_as_those_of_rules_do() {
    for is_list in [false, true] {
        let effect = |name| effect(&update(&[name], is_list));
        assert_eq!(effect("limit").as_deref(), Some("limit of set flood"));
        assert_eq!(effect("quota").as_deref(), Some("quota of set flood"));
        for name in ["counter", "last", "connlimit", "dynset", ""] {
            assert_eq!(effect(name), None, "{name}");
        }
    }
    let several = update(&["counter", "last", "limit"], true);
    assert_eq!(effect(&several).as_deref(), Some("limit of set flood"));
    assert_eq!(effect(&update(&[], true)), None);
    let rule =
        NftRule::read(2, &update(&["counter"], false), &NftSets::default(), &POLICY).unwrap();
    assert!(!rule.accepts_all, "it may match no more if the set is full");
}

#[test]
fn objects_of_unknown_maps_act_on_each_packet() {
    let map = single("objref", |it| it.attribute(3, &[0, 0, 0, 1]).attribute(OBJECTS, b"m\0"));
    assert_eq!(effect(&map).as_deref(), Some("object of map m"));
    let object = |kind: u32| {
        effect(&single("objref", |it| {
            it.attribute(OBJECT, &kind.to_be_bytes()).attribute(2, b"name\0")
        }))
    };
    let effects: Vec<_> = (0..=10).filter_map(|kind| Some((kind, object(kind)?))).collect();
    assert_eq!(effects, [(2, "quota name".to_owned()), (4, "limit name".to_owned())]);
    assert_eq!(effect(&single("objref", |it| it)), None);
}

#[test]
fn tcp_options_of_established_connections_are_changed() {
    /// `NFTA_EXTHDR_OP` of TCP and of IPv6.
    const TCP: u32 = 1;
    const IPV6: u32 = 0;
    let option = |of: u32, kind: u8, register: Option<u16>| {
        effect(&single("exthdr", |it| {
            let it = it.attribute(OPTION, &[kind]).attribute(OPTION_OF, &of.to_be_bytes());
            register.into_iter().fold(it, |it, attribute| it.attribute(attribute, &[0, 0, 0, 1]))
        }))
    };
    let timestamp = 8;
    assert_eq!(option(TCP, timestamp, None).as_deref(), Some("reset tcp option"));
    assert_eq!(option(TCP, timestamp, Some(OPTION_SOURCE)).as_deref(), Some("tcp option set"));
    assert_eq!(option(TCP, timestamp, Some(OPTION_LOADED)), None);
    assert_eq!(option(IPV6, 44, Some(OPTION_LOADED)), None);
    for of_syn in SYN_OPTIONS {
        assert_eq!(option(TCP, of_syn, None), None, "{of_syn}");
        assert_eq!(option(TCP, of_syn, Some(OPTION_SOURCE)), None, "{of_syn}");
    }
}

#[test]
fn broken_lengths_in_expressions_are_passed_over() {
    let update = update(&["counter", "limit"], true);
    for at in 0..update.len() {
        for octet in [0, 1, 3, 4, 5, 0x7f, 0xff] {
            let mut broken = update.clone();
            broken[at] = octet;
            let effect = effect(&broken);
            assert!(effect.is_none_or(|it| it.len() < broken.len() * 3), "{at} {octet}");
        }
        let _ = effect(&update[..at]);
    }
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
