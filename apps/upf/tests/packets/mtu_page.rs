//! The table of `docs/mtu.md` against the datapath.

use serde_json::json;
use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::session_rules::forwarding;

use crate::frames::{ethernet, fill, ue4};
use crate::test_lane::*;

const PAGE: &str = include_str!("../../docs/mtu.md");

/// Returns the MTU that a packet of 2000 octets with DF is told where N3 has this one.
fn told(outer: &str, container: &str, mtu: u32) -> u32 {
    let mut known = TestRoutes::new();
    known.set("10.3.0.9", out_of(N3, mtu));
    known.set("fd03::9", out_of(N3, mtu));
    let mut settings = settings();
    settings["gtp"]["icmp-per-s"] = json!(1000);
    let mut world = TestLane::new(known, settings);
    let mut rules = simple(1);
    let forwarding = &mut rules.downlink.common.forwarding;
    match container {
        "none" => forwarding.quality = 0,
        "QFI" => {}
        "QFI and paging policy" => {
            forwarding.quality |= forwarding::PAGING | 5 << forwarding::PAGING_SHIFT;
        }
        other => panic!("unknown container: {other}"),
    }
    if outer == "IPv6" {
        forwarding.what |= forwarding::V6;
        let peer: std::net::Ipv6Addr = "fd03::9".parse().expect("an address");
        rules.downlink.peer6 = peer.octets();
    }
    world.publish(&rules);
    let packet = |length: usize| {
        let mut packet = ue4(SERVER, USER, 64, length - 28);
        packet[6] = 0x40;
        fill(&mut packet);
        ethernet(N6, &packet)
    };
    world.show(N6, &[packet(2000)]);
    let [error] = &world.left(N6)[..] else { panic!("{:?}", world.drop_reasons()) };
    let most = u32::from(u16::from_be_bytes([error[40], error[41]]));
    // A packet of that length passes, one octet more does not.
    world.show(N6, &[packet(most as usize), packet(most as usize + 1)]);
    assert_eq!((world.left(N3).len(), world.count(DropReason::TooLong)), (1, 2));
    world.check();
    most
}

#[test]
fn the_page_has_the_numbers_of_the_datapath() {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match *cells.as_slice() {
            ["", outer @ ("IPv4" | "IPv6"), container, octets, less, more, ""] => {
                let [octets, less, more] =
                    [octets, less, more].map(|it| it.parse().expect("octets"));
                Some((outer, container, [octets, less, more]))
            }
            _ => None,
        }
    };
    let rows: Vec<(&str, &str, [u32; 3])> = PAGE.lines().filter_map(row).collect();
    assert_eq!(rows.len(), 6);
    for (outer, container, [octets, less, more]) in rows {
        let most = told(outer, container, 1500);
        assert_eq!(
            (octets, less, more),
            (1500 - most, most, 9000 - (1500 - most)),
            "{outer} {container}"
        );
    }
}
