use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::table::{ClassifierReader, ClassifierWriter, EntryId, Spec, State};
use fastlane_testing::{guard, sleeping_lane};
use proptest::prelude::*;

use super::compiled::{AccessList, entries, key};
use super::police::Arrival;
use super::text::{Line, read, read_line, write_rule};
use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn set(text: &str) -> RuleSet {
    super::text::rule_set(text).unwrap()
}

fn udp(source: &str, destination: &str, ports: Option<[u16; 2]>) -> Flow {
    Flow::new(address(source), address(destination), 17, ports)
}

const NO_PORTS: Action = Action::Drop(Outcome::AclNoPorts);
const DROP: Action = Action::Drop(Outcome::AclDrop);

#[test]
fn the_first_rule_that_fits_decides() {
    let set = set("10 permit udp from 10.0.0.0/8 to any port 53\n20 drop from 10.1.0.0/16");
    let decide = |flow| {
        let (action, rule) = set.decide(&flow);
        (action, rule.map(|rule| rule.priority))
    };
    let dns = Some([4000, 53]);
    assert_eq!(decide(udp("10.1.2.3", "192.0.2.1", dns)), (Action::Permit, Some(10)));
    assert_eq!(decide(udp("10.1.2.3", "192.0.2.1", Some([53, 54]))), (DROP, Some(20)));
    assert_eq!(decide(udp("10.2.2.3", "192.0.2.1", Some([53, 54]))), (Action::Permit, None));
    assert_eq!(decide(udp("11.1.2.3", "192.0.2.1", dns)), (Action::Permit, None));
    let tcp = Flow::new(address("10.1.2.3"), address("192.0.2.1"), 6, dns);
    assert_eq!(decide(tcp), (DROP, Some(20)));
    // 0a01::/16 begins with the same bits.
    assert_eq!(decide(udp("a01::1", "2001:db8::1", dns)), (Action::Permit, None));
}

#[test]
fn what_hides_its_ports_gets_past_no_rule() {
    let set1 = set("default drop\n10 permit udp to any port 53\n20 permit icmp");
    let hidden = udp("10.0.0.1", "10.0.0.2", None);
    assert_eq!(set1.decide(&hidden).0, NO_PORTS);
    // Whatever the ports are, it is dropped; or permitted.
    assert_eq!(set("default drop\n10 drop udp to any port 53").decide(&hidden).0, DROP);
    assert_eq!(set("10 permit udp to any port 53").decide(&hidden).0, Action::Permit);
    assert_eq!(set("10 drop udp to any port 53").decide(&hidden).0, NO_PORTS);
    let both = "10 drop udp to any port 53\n20 permit udp to any port 54\ndefault drop";
    assert_eq!(set(both).decide(&hidden).0, NO_PORTS);
    // Decided before ports are asked for.
    let before = "5 permit from 10.0.0.0/24\n10 drop udp to any port 53";
    assert_eq!(set(before).decide(&hidden).0, Action::Permit);
    // A rule of another protocol does not matter.
    assert_eq!(set("10 drop tcp to any port 53").decide(&hidden).0, Action::Permit);
}

#[test]
fn what_is_written_is_read_back() {
    let lines = [
        "10 permit udp from 10.0.0.0/8 to any port 53",
        "20 drop tcp from any port 0-1023 to 192.0.2.7/32 port 8000-8999",
        "30 drop ipv6",
        "40 permit icmpv6 from 2001:db8::/32",
        "50 permit 47",
        "60 drop",
        "70 drop ipv4 sctp to any port 5",
        "80 police 10mbit 32000 udp to any port 53",
        "81 police 500kbit 0 excess 64000 aware from 10.0.0.0/8",
        "82 police 8bit 1500 peak 1gbit 3000 aware",
    ];
    for line in lines {
        let Line::Rule(rule) = read_line(line).unwrap() else { panic!("{line}") };
        assert_eq!(write_rule(&rule), line);
    }
    let Line::Rule(rule) = read_line("10 drop to 192.0.2.7").unwrap() else { panic!() };
    assert_eq!(write_rule(&rule), "10 drop to 192.0.2.7/32");
}

#[test]
fn what_is_wrong_is_named_with_what_is_right() {
    let cases = [
        ("permit udp", "begins with its priority"),
        ("10 allow", "`permit`, `drop` or `police`"),
        ("10 police 10mbit", "a meter is a rate and a burst"),
        ("10 police 10m 32000", "`10m` is no rate"),
        ("10 police 10mbit 32k", "`32k` is no burst"),
        ("10 police 10mbit 0", "bursts are not 0"),
        ("10 police 10mbit 1 peak 9mbit 1", "the peak rate is not below"),
        ("default police 10mbit 1", "the default permits or drops"),
        ("default drop udp", "nothing follows, not `udp`"),
        ("10 drop frm 10.0.0.0/8", "`frm` means nothing"),
        ("10 drop from", "a prefix or `any` follows `from`"),
        ("10 drop from 10.0.0.1/8", "bits behind its length"),
        ("10 drop from 10.0.0.0/33", "is no prefix"),
        ("10 drop from 10.0.0.0/8 to 2001:db8::/32", "write two rules"),
        ("10 drop to any port 53", "ports belong to a protocol"),
        ("10 drop icmp to any port 53", "ports belong to a protocol"),
        ("10 drop udp port 53", "write `from` or `to` before `port`"),
        ("10 drop udp to any port 9-8", "no port and no range"),
        ("10 drop udp to any port 65536", "no port and no range"),
        ("10 drop tcp udp to any port 53", "it says the protocol twice; write two rules"),
        ("10 drop from 10.0.0.0/8 from 192.168.0.0/16", "it says `from` twice"),
        ("10 drop to any to 10.0.0.0/8", "it says `to` twice"),
        ("10 drop udp to any port 53 port 123", "it says the port of `to` twice"),
    ];
    for (line, expected) in cases {
        let error = read_line(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
    let error = read("# a list\n\n10 permit\n20 permt # here").unwrap_err();
    assert!(error.starts_with("line 4: `20 permt`: "), "{error}");
}

/// Generates lines of a list, without priorities, whose rules often overlap.
fn line() -> impl Strategy<Value = String> {
    let net = prop_oneof![
        Just("any"),
        Just("10.0.0.0/8"),
        Just("10.1.0.0/16"),
        Just("10.1.2.3"),
        Just("192.0.2.0/24"),
        Just("2001:db8::/32"),
        Just("2001:db8::1"),
        Just("0.0.0.0/0"),
        Just("::/0"),
    ];
    let ports = prop_oneof![Just(""), Just("port 53"), Just("port 50-60"), Just("port 0-65535")];
    let words = (any::<u8>(), any::<u8>(), net.clone(), net, ports.clone(), ports);
    words.prop_map(|(action, protocol, from, to, source, destination)| {
        let actions = ["drop", "permit", "drop", "permit", "police 1gbit 1000000"];
        let action = actions[usize::from(action % 5)];
        let protocol = ["udp", "tcp", "udp", "icmp", ""][usize::from(protocol % 5)];
        let has_ports = matches!(protocol, "udp" | "tcp");
        let [source, destination] =
            [source, destination].map(|ports| if has_ports { ports } else { "" });
        format!("{action} {protocol} from {from} {source} to {to} {destination}")
    })
}

proptest! {
    #[test]
    fn the_compiled_list_decides_as_the_rules_one_by_one(
        lines in proptest::collection::vec(line(), 0..60),
        default in any::<bool>(),
        flows in proptest::collection::vec(any::<[u8; 6]>(), 32),
    ) {
        let lines = lines.iter().zip(1..).map(|(line, priority)| format!("{priority} {line}"));
        // A line may speak of both families: that is refused, and not tested here.
        let mut lines: Vec<String> = lines.filter(|line| read_line(line).is_ok()).collect();
        lines.push(format!("default {}", if default { "drop" } else { "permit" }));
        let mut set = set(&lines.join("\n"));
        for (rule, number) in set.rules.iter_mut().zip(0..) {
            rule.counter = number;
            rule.meter = MeterId { index: number, reserved: 0, epoch: 7 };
        }
        prop_assert_eq!(&RuleSet::restore(&set.store()), &set);

        let memory = Spec::classifier::<compiled::Decision>("acl", entries(60)).create().unwrap();
        let mut writer = ClassifierWriter::attach(&memory, &sleeping_lane()).unwrap();
        set.compile(1, |list| writer.replace(list)).unwrap();
        let hits = Spec::state::<2>("acl", 64, 1).create().unwrap();
        let hits = State::<2>::attach(&hits).unwrap();
        let meters = Spec::state::<{ police::WORDS }>("police", 64, 1).create().unwrap();
        let meters = State::attach(&meters).unwrap().lane(0);
        let list = AccessList::new(ClassifierReader::attach(&memory).unwrap(), hits.lane(0));
        let list = list.with_meters(meters);

        let mut expected = vec![0; set.rules.len()];
        for [source, destination, protocol, from, to, kind] in flows {
            let protocol = [17, 6, 1, 58][usize::from(protocol % 4)];
            let ports = (kind % 4 > 0).then(|| [from, to].map(|port| 48 + u16::from(port % 16)));
            let four = |pick: u8| Ipv4Addr::from([[10, 1, 2, 3], [10, 1, 2, 4], [10, 2, 0, 0],
                [192, 0, 2, 1], [8, 8, 8, 8]][usize::from(pick % 5)]);
            let six = |pick: u8| Ipv6Addr::new([0x2001, 0x2002][usize::from(pick % 2)], 0xDB8, 0, 0,
                0, 0, 0, u16::from(pick % 3));
            let is_four = kind / 4 % 2 == 0;
            let flow = if is_four {
                Flow::new(four(source).into(), four(destination).into(), protocol, ports)
            } else {
                Flow::new(six(source).into(), six(destination).into(), protocol, ports)
            };
            let (action, rule) = set.decide(&flow);
            if let Some(rule) = rule {
                expected[rule.counter as usize] += 1;
            }
            let packet = Arrival { octets: 100, traffic_class: 0 };
            let guard = guard();
            let rules = list.current(&guard);
            let decided = if is_four {
                let key = key(four(source), four(destination), protocol, ports);
                list.decide(&rules, &key, rules.lookup(&key), packet, || 1)
            } else {
                let key = key(six(source), six(destination), protocol, ports);
                list.decide(&rules, &key, rules.lookup(&key), packet, || 1)
            };
            prop_assert_eq!(decided, action, "{:?}", flow);
        }
        for (counter, expected) in expected.into_iter().enumerate() {
            prop_assert_eq!(hits.read(EntryId(counter as u32)), [expected, 100 * expected]);
        }
    }
}
