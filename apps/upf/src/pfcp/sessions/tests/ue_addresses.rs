use std::net::Ipv6Addr;

use super::*;

const UE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 7);

fn ue(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 1, number)
}

fn own(teid: u32) -> FTeid {
    FTeid { teid, v4: Some(N3), ..FTeid::default() }
}

fn with_tunnels(sequence: u32, user: Ipv4Addr, tunnels: &[FTeid], restores: bool) -> Vec<u8> {
    establishment(sequence, 77, &|w| {
        for (number, tunnel) in tunnels.iter().enumerate() {
            pdr(w, 10 + number as u16, 1, &|w| access(w, tunnel), &|_| {});
        }
        pdr(w, 2, 2, &|w| core(w, b"internet", &address(user)), &|_| {});
        far_up(w, 1);
        far_down(w, 2, 0x100);
        if restores {
            w.put(&ie::PfcpsereqFlags::RESTI);
        }
    })
}

#[test]
fn case_40_tunnels_are_chosen() {
    let mut world = SessionTestbed::new();
    let wishes = [choose(Some(4)), choose(None), choose(Some(4)), choose(Some(5))];
    let answered = world.ask(&with_tunnels(1, UE, &wishes, false));
    assert_eq!(answered.cause, 1);
    let teids = [10, 11, 12, 13].map(|pdr| answered.tunnel(pdr).teid);
    assert_eq!(teids[0], teids[2]);
    let all: std::collections::BTreeSet<u32> = teids.into_iter().collect();
    assert_eq!(all.len(), 3);
    let session = world.only();
    for teid in all {
        assert_eq!(world.sessions.find_tunnel(teid), Some(session.id));
    }
    let both = FTeid { choose_v4: true, choose_v6: true, ..FTeid::default() };
    let answered = world.ask(&with_tunnels(2, ue(2), &[both], false));
    let tunnel = answered.tunnel(10);
    assert_eq!((tunnel.v4, tunnel.v6), (Some(N3), Some("2001:db8:3::10".parse().unwrap())));
}

#[test]
fn case_40_where_no_tunnel_can_end() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| {
        let pdi = |w: &mut Writer<'_>| {
            w.put(&ie::SourceInterface::CORE);
            w.put(&FTeid { choose_v6: true, ..FTeid::default() });
            w.put(&ie::NetworkInstance(b"\x07between"));
        };
        pdr(w, 1, 1, &pdi, &|_| {});
        far_up(w, 1);
    }));
    assert_eq!(answered.why(), (73, Some(21), Some(FailedRuleId::Pdr(1))), "N9 has no IPv6");
}

#[test]
fn case_41_tunnels_of_the_control_plane() {
    let mut world = SessionTestbed::new();
    // Whether the session is restored or new, its control plane may choose.
    let answered = world.ask(&with_tunnels(2, UE, &[own(0x5000_0005), own(9)], false));
    assert_eq!((answered.cause, answered.created.len()), (1, 0));
    let session = world.only();
    assert_eq!(world.sessions.find_tunnel(9), Some(session.id));
    let answered = world.ask(&with_tunnels(3, ue(1), &[own(9)], true));
    assert_eq!(answered.why(), (73, Some(21), Some(FailedRuleId::Pdr(10))));
    for wrong in [0, u32::MAX] {
        let answered = world.ask(&with_tunnels(4 + wrong % 7, ue(1), &[own(wrong)], true));
        assert_eq!(answered.why(), (69, Some(21), None));
    }
    // A later PDR may share an F-TEID of its session.
    let answered = world.ask(&modification(20, session.seid, &|w| {
        pdr(w, 30, 1, &|w| access(w, &own(9)), &|_| {});
    }));
    assert_eq!(answered.cause, 1);
}

#[test]
fn case_41_where_the_control_plane_chooses() {
    let mut world = SessionTestbed::with(serde_json::json!({ "teid": "smf" }));
    // Without FTUP some control planes have the UPF choose all the same.
    let chosen = world.ask(&with_tunnels(1, ue(200), &[choose(None)], false));
    assert!(chosen.tunnel(10).teid > u32::MAX / 2, "in a range of its own");
    for number in 1..=100_u32 {
        let user = Ipv4Addr::new(10, 98, 0, number as u8);
        let answered = world.ask(&with_tunnels(100 + number, user, &[own(number)], false));
        assert_eq!(answered.cause, 1);
    }
    world.restart();
    let answered = world.ask(&with_tunnels(1, UE, &[own(50)], false));
    assert_eq!(answered.why(), (73, Some(21), Some(FailedRuleId::Pdr(10))));
    let owner = world.sessions.find_tunnel(50).unwrap();
    assert_eq!(world.sessions.get(owner).unwrap().pdrs[0].tunnel.unwrap().teid, 50);
    // The F-TEID of a deleted session is free.
    let seid = world.sessions.get(owner).unwrap().seid;
    assert_eq!(world.ask(&deletion(2, seid)).cause, 1);
    assert_eq!(world.ask(&with_tunnels(3, UE, &[own(50)], false)).cause, 1);
}

#[test]
fn a_restored_tunnel_is_not_given_to_another() {
    let mut world = SessionTestbed::new();
    let first = world.ask(&with_tunnels(1, UE, &[choose(None)], false));
    let shape = TeidLayout::of(512);
    let teid = first.tunnel(10).teid;
    let next = teid.wrapping_add(1 << (32 - shape.generations().trailing_zeros()));
    assert_eq!(shape.session(next), shape.session(teid));
    // Another session takes the next TEID of this index.
    let taken = world.ask(&with_tunnels(2, ue(1), &[own(next)], true));
    assert_eq!(taken.cause, 1);
    let more = world.ask(&modification(3, first.up.unwrap().seid, &|w| {
        pdr(w, 20, 1, &|w| access(w, &choose(None)), &|_| {});
    }));
    assert_eq!(more.cause, 1);
    assert!(![teid, next].contains(&more.tunnel(20).teid));
}

fn dynamic(v4: bool, v6: bool) -> UeIpAddress {
    UeIpAddress { choose_v4: v4, choose_v6: v6, is_destination: true, ..UeIpAddress::default() }
}

fn with_user(sequence: u32, instance: &'static [u8], user: UeIpAddress) -> Vec<u8> {
    establishment(sequence, 77, &|w| {
        let up = |w: &mut Writer<'_>| {
            access(w, &choose(None));
            w.put(&user);
        };
        pdr(w, 1, 1, &up, &|_| {});
        pdr(w, 2, 2, &|w| core(w, instance, &user), &|_| {});
        far_up(w, 1);
        far_down(w, 2, 0x100);
    })
}

/// Addresses freed just before a restart are not the first allocated after it: packets to them may
/// be in flight.
#[test]
fn case_79_addresses_come_again_in_their_order_whoever_is_killed() {
    let mut world = SessionTestbed::with(serde_json::json!({
        "pools": [{"network-instance": "internet", "prefix": "10.45.0.0/27"}],
    }));
    let mut live = std::collections::VecDeque::new();
    for number in 1..=90 {
        let answered = world.ask(&with_user(2 * number, b"internet", dynamic(true, false)));
        let address = answered.user(2).v4.unwrap().octets()[3];
        assert_eq!(u32::from(address), (number - 1) % 30 + 1);
        live.push_back(answered.up.unwrap().seid);
        if live.len() > 3 || number % 7 == 0 {
            let seid = live.pop_front().unwrap();
            assert_eq!(world.ask(&deletion(2 * number + 1, seid)).cause, 1);
        }
        if number % 3 == 0 {
            world.restart();
        }
        world.now = world.now.after(SECOND);
    }
}

#[test]
fn case_42_addresses_are_chosen_until_there_is_none() {
    let mut world = SessionTestbed::new();
    let mut given = Vec::new();
    for number in 0..6 {
        let answered = world.ask(&with_user(number, b"internet", dynamic(true, false)));
        assert_eq!(answered.cause, 1);
        let (up, down) = (answered.user(1), answered.user(2));
        assert_eq!((up.v4, up.is_destination), (down.v4, true), "a session has one address");
        assert!(!given.contains(&up.v4.unwrap()));
        given.push(up.v4.unwrap());
    }
    let occupied = (79, Some(93), None);
    assert_eq!(world.ask(&with_user(7, b"internet", dynamic(true, false))).why(), occupied);
    world.restart();
    assert_eq!(world.ask(&with_user(8, b"internet", dynamic(true, false))).why(), occupied);
    // One address is returned.
    let instance = world.settings.instance("internet").unwrap();
    let id = world.sessions.find_user(instance, given[3].into()).unwrap();
    let seid = world.sessions.get(id).unwrap().seid;
    assert_eq!(world.ask(&deletion(9, seid)).cause, 1);
    // Packets to it may be in flight for N1 times T1 and 2 s, whether or not the process is killed.
    for sequence in 20..24 {
        let refused = world.ask(&with_user(sequence, b"internet", dynamic(true, false)));
        assert_eq!(refused.why(), occupied);
        world.now = world.now.after(11 * SECOND / 4);
        world.restart();
    }
    world.now = world.now.after(SECOND / 10);
    let answered = world.ask(&with_user(10, b"internet", dynamic(true, false)));
    assert_eq!(answered.user(2).v4, Some(given[3]));
    // Another network instance has its own pool with the same addresses.
    let answered = world.ask(&with_user(11, b"office", dynamic(true, false)));
    assert_eq!(answered.user(2).v4, Some(Ipv4Addr::new(10, 45, 0, 1)));
    assert_eq!(
        world.ask(&with_user(12, b"office", dynamic(false, true))).why(),
        (76, Some(93), None)
    );
}

#[test]
fn case_42_both_families() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&with_user(1, b"internet", dynamic(true, true)));
    let user = answered.user(2);
    assert_eq!(user.v4, Some(Ipv4Addr::new(10, 45, 0, 1)));
    assert_eq!(user.v6, Some("2001:db8:45::".parse::<Ipv6Addr>().unwrap()));
    let session = world.only();
    let instance = world.settings.instance("internet").unwrap();
    let inside: IpAddr = "2001:db8:45::77".parse().unwrap();
    assert_eq!(world.sessions.find_user(instance, inside), Some(session.id));
}

#[test]
fn an_address_that_was_given_out_for_nothing_comes_back() {
    let mut world = SessionTestbed::new();
    for number in 0..40 {
        let answered = world.ask(&establishment(number, 77, &|w| {
            pdr(w, 2, 99, &|w| core(w, b"internet", &dynamic(true, true)), &|_| {});
            far_up(w, 1);
        }));
        assert_eq!(answered.why(), (73, None, Some(FailedRuleId::Pdr(2))));
    }
    assert!(world.sessions.addresses().usage().all(|(.., used, _)| used == 0));
    assert_eq!(world.sessions.len(), 0);
}

#[test]
fn case_43_an_address_has_one_session_in_an_instance() {
    let mut world = SessionTestbed::new();
    assert_eq!(world.ask(&with_user(1, b"internet", address(UE))).cause, 1);
    let again = world.ask(&with_user(2, b"internet", address(UE)));
    assert_eq!(again.why(), (73, Some(93), Some(FailedRuleId::Pdr(1))));
    assert_eq!(world.ask(&with_user(3, b"office", address(UE))).cause, 1);
    assert_eq!(world.sessions.len(), 2);
}

#[test]
fn an_address_of_a_pool_that_the_control_plane_chose_is_not_given_out() {
    let mut world = SessionTestbed::new();
    let static_one = Ipv4Addr::new(10, 45, 0, 1);
    assert_eq!(world.ask(&with_user(1, b"internet", address(static_one))).cause, 1);
    let answered = world.ask(&with_user(2, b"internet", dynamic(true, false)));
    assert_eq!(answered.user(2).v4, Some(Ipv4Addr::new(10, 45, 0, 2)));
}

#[test]
fn case_68_networks_behind_a_user() {
    let mut world = SessionTestbed::new();
    let with = |sequence, user: Ipv4Addr, route: &'static [u8]| {
        establishment(sequence, 77, &|w| {
            let pdi = |w: &mut Writer<'_>| {
                core(w, b"internet", &address(user));
                w.put(&ie::FramedRoute(route));
            };
            pdr(w, 2, 2, &pdi, &|_| {});
            far_down(w, 2, 0x100);
        })
    };
    assert_eq!(world.ask(&with(1, UE, b"172.16.5.0/24 0.0.0.0 1")).cause, 1);
    let framed = &world.only().pdrs[0].framed;
    assert_eq!((framed[0].address, framed[0].length), ("172.16.5.0".parse().unwrap(), 24));
    let taken = world.ask(&with(2, ue(1), b"172.16.5.0/24"));
    assert_eq!(taken.cause, 73);
    for wrong in [&b"172.16.5.0/33"[..], b"", b"fe80::/10", b"all of it"] {
        let route: &'static [u8] = wrong.to_vec().leak();
        assert_eq!(world.ask(&with(3, ue(1), route)).why(), (69, Some(153), None));
    }
}
