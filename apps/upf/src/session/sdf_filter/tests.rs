use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> FlowDescription {
    FlowDescription::parse(text).unwrap_or_else(|error| panic!("`{text}`: {error}"))
}

fn prefix(text: &str, length: u8) -> Option<Prefix> {
    Prefix::new(text.parse().unwrap(), length)
}

#[test]
fn every_form_is_read_as_written() {
    assert_eq!(parsed("permit out ip from any to assigned"), FlowDescription::default());
    assert!(parsed("PERMIT Out IP from ANY to Any").is_any());
    let flow = parsed("permit out 17 from 192.0.2.77/24 80,443,8000-8080 to 10.45.0.1 5060");
    let expected = FlowDescription {
        protocol: Some(17),
        remote: prefix("192.0.2.0", 24),
        remote_ports: vec![(80, 80), (443, 443), (8000, 8080)],
        local: prefix("10.45.0.1", 32),
        local_ports: vec![(5060, 5060)],
    };
    assert_eq!(flow, expected);
    let flow = parsed("permit out 58 from 2001:db8::/32 to ff02::2/128");
    assert_eq!((flow.remote, flow.local), (prefix("2001:db8::", 32), prefix("ff02::2", 128)));
    assert_eq!(parsed("permit out ip from 0.0.0.0/0 to assigned").remote, prefix("0.0.0.0", 0));
    assert_eq!(parsed("permit out ip from any 0-65535 to any").remote_ports, [(0, 65_535)]);
}

/// pfcpsim writes names.
#[test]
fn protocols_have_names() {
    let names = [("icmp", 1), ("tcp", 6), ("UDP", 17), ("ipv6-icmp", 58), ("sctp", 132)];
    for (name, number) in names {
        let flow = FlowDescription::parse(&format!("permit out {name} from any to assigned"));
        assert_eq!(flow.unwrap().protocol, Some(number), "{name}");
    }
    let flow = FlowDescription::parse("permit out ip from any to assigned");
    assert_eq!(flow.unwrap().protocol, None);
    assert!(FlowDescription::parse("permit out udp from any 53 to assigned").is_ok());
}

#[test]
fn what_is_wrong_is_named_with_what_to_write() {
    let cases = [
        ("", "`the end` where permit"),
        ("permit", "`the end` where out"),
        ("deny out ip from any to any", "`deny` is not allowed"),
        ("permit in ip from any to any", "`in` is not allowed"),
        ("permit out ip from !10.0.0.1 to any", "`!10.0.0.1` is not allowed"),
        ("permit out !6 from any to any", "`!6` is not allowed"),
        ("permit out 256 from any to any", "`256` where a protocol"),
        ("permit out +6 from any to any", "`+6` where a protocol"),
        ("permit out tcpip from any to any", "`tcpip` where a protocol"),
        ("permit out ip from any to any frag", "`frag` is not allowed"),
        ("permit out ip from any to any established", "`established` is not allowed"),
        ("permit out ip from 10.0.0.0/33 to any", "`10.0.0.0/33` is no address"),
        ("permit out ip from 10.0.0.0/+8 to any", "`10.0.0.0/+8` is no address"),
        ("permit out ip from 10.0.0 to any", "`10.0.0` is no address"),
        ("permit out 6 from any 70000 to any", "`70000` are no ports"),
        ("permit out 6 from any 443-80 to any", "`443-80` are no ports"),
        ("permit out 6 from any 80,,443 to any", "`80,,443` are no ports"),
        ("permit out 1 from any 80 to any", "protocol 1 has no ports"),
        ("permit out ip from 10.0.0.1 to 2001:db8::1", "an IPv4 address and the other"),
        ("permit out ip to any from any", "`to` where from"),
    ];
    for (text, expected) in cases {
        let error = FlowDescription::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "`{text}`: {error}");
    }
    let many = format!("permit out 6 from any {} to any", vec!["1"; 33].join(","));
    assert_eq!(FlowDescription::parse(&many), Err(FlowError::TooManyPorts(33)));
    let long = " ".repeat(1025);
    assert_eq!(FlowDescription::parse(&long), Err(FlowError::TooLong(1025)));
}

fn any_prefix() -> impl Strategy<Value = Option<Prefix>> {
    let v4 = (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(it, length)| Prefix::new(it.into(), length));
    prop_oneof![Just(None), v4]
}

fn any_ports() -> impl Strategy<Value = Ports> {
    let range = any::<(u16, u16)>().prop_map(|(one, other)| (one.min(other), one.max(other)));
    prop::collection::vec(range, 0..5)
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        udp: bool, remote in any_prefix(), local in any_prefix(),
        remote_ports in any_ports(), local_ports in any_ports(),
    ) {
        let protocol = udp.then_some(17);
        let flow = FlowDescription { protocol, remote, remote_ports, local, local_ports };
        prop_assert_eq!(FlowDescription::parse(&flow.to_string()), Ok(flow));
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,80}", words in prop::collection::vec(
        prop::sample::select(vec!["permit", "out", "ip", "6", "from", "to", "any", "assigned", "!",
            "10.0.0.1/8", "::/0", "80-90", ",", "-", "/", "4294967296", "1,2"]), 0..12)) {
        let _ = FlowDescription::parse(&text);
        let _ = FlowDescription::parse(&words.join(" "));
    }
}
