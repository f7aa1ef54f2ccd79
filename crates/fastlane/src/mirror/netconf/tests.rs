use super::*;

fn said(link: i32, forwards: Option<bool>, reverse_path: Option<u8>) -> Settings {
    Settings { link, ipv6: false, forwards, reverse_path }
}

#[test]
fn what_is_said_holds_until_something_else_is() {
    let mut conf = Conf::default();
    let six = Settings { ipv6: true, ..said(Settings::ALL, Some(true), None) };
    for said in [said(3, Some(true), Some(2)), said(Settings::ALL, None, Some(1)), six] {
        conf.take(&Message::Netconf(said));
    }
    assert!(conf.forwards4(3) && !conf.forwards4(4) && conf.forwards6());
    assert_eq!((conf.reverse_path(3), conf.reverse_path(4)), (2, 1));
    // One attribute alone changes nothing else.
    conf.take(&Message::Netconf(said(3, None, Some(0))));
    conf.take(&Message::Netconf(Settings { forwards: None, ..six }));
    assert!(conf.forwards4(3) && conf.forwards6());
    assert_eq!(conf.reverse_path(3), 1);
    conf.take(&Message::NetconfRemoved(said(3, None, None)));
    assert!(!conf.forwards4(3) && conf.forwards6());
    conf.take(&Message::NetconfRemoved(six));
    assert!(!conf.forwards6());
}

#[test]
fn what_is_lost_is_read_anew() {
    if !fastlane_testing::namespace::private("netconf-lost") {
        return;
    }
    let mut netconf = Netconf::open().unwrap();
    for time in 0..6000 {
        let value = if time % 2 == 0 { "1" } else { "0" };
        std::fs::write("/proc/sys/net/ipv4/conf/lo/rp_filter", value).unwrap();
    }
    // No event arrives for this write: the receive buffer is full.
    std::fs::write("/proc/sys/net/ipv4/conf/lo/forwarding", "1").unwrap();
    assert!(netconf.step().unwrap());
    assert!(netconf.conf.forwards4(1));
    assert_eq!((netconf.conf.reverse_path(1), netconf.timeout()), (0, None));
    assert!(!netconf.step().unwrap());
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
