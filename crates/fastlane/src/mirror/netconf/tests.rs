use super::*;

fn message(kind: u16, family: u8, attributes: &[(u16, i32)]) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message.extend([family, 0, 0, 0]);
    for (kind, value) in attributes {
        message.extend(8_u16.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(value.to_ne_bytes());
    }
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message
}

#[test]
fn what_is_said_holds_until_something_else_is() {
    let mut conf = Conf::default();
    let both = [(NETCONFA_IFINDEX, 3), (NETCONFA_FORWARDING, 1), (NETCONFA_RP_FILTER, 2)];
    let all = [(NETCONFA_IFINDEX, ALL), (NETCONFA_RP_FILTER, 1)];
    let six = [(NETCONFA_IFINDEX, ALL), (NETCONFA_FORWARDING, 1)];
    let datagram = [
        message(RTM_NEWNETCONF, 2, &both),
        message(RTM_NEWNETCONF, 2, &all),
        message(RTM_NEWNETCONF, 10, &six),
    ];
    assert!(!conf.take(&datagram.concat()));
    assert!(conf.forwards4(3) && !conf.forwards4(4) && conf.forwards6());
    assert_eq!((conf.reverse_path(3), conf.reverse_path(4)), (2, 1));
    // One attribute alone changes nothing else.
    conf.take(&message(RTM_NEWNETCONF, 2, &[(NETCONFA_IFINDEX, 3), (NETCONFA_RP_FILTER, 0)]));
    assert!(conf.forwards4(3));
    assert_eq!(conf.reverse_path(3), 1);
    conf.take(&message(RTM_DELNETCONF, 2, &[(NETCONFA_IFINDEX, 3)]));
    assert!(!conf.forwards4(3));
    assert!(conf.take(&message(NLMSG_DONE, 0, &[])), "the end of a dump");
}

#[test]
fn nonsense_is_passed_over() {
    let whole = message(RTM_NEWNETCONF, 2, &[(NETCONFA_IFINDEX, 3), (NETCONFA_FORWARDING, 1)]);
    let mut conf = Conf::default();
    for length in 0..whole.len() {
        conf.take(&whole[..length]);
        for value in [0, 1, 7, 255] {
            let mut damaged = whole.clone();
            damaged[length] = value;
            conf.take(&damaged);
        }
    }
    conf.take(&[0; 64]);
}

#[test]
fn it_follows_linux() {
    if !fastlane_testing::namespace::private("netconf") {
        return;
    }
    let mut netconf = Netconf::open().unwrap();
    let write = |path: &str, value: &str| {
        std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
    };
    write("ipv4/ip_forward", "0");
    netconf.step().unwrap();
    assert!(!netconf.conf.forwards4(1));
    write("ipv4/ip_forward", "1");
    write("ipv4/conf/lo/rp_filter", "2");
    write("ipv6/conf/all/forwarding", "1");
    assert!(netconf.step().unwrap());
    assert!(netconf.conf.forwards4(1) && netconf.conf.forwards6());
    assert_eq!(netconf.conf.reverse_path(1), 2);
    assert_eq!(Netconf::open().unwrap().conf, netconf.conf);
    write("ipv4/conf/lo/forwarding", "0");
    netconf.step().unwrap();
    assert!(!netconf.conf.forwards4(1));
}
