//! Compiled sessions with filters, copies, end markers and TEIDs of the SMF.

use fastlane_wire::checksum::checksum;
use upf::rules::compile::{Context, compile};
use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::message::{SessionEvent, kind};
use upf::rules::layout::{SessionRef, TunnelKey};
use upf::session::*;

use crate::frames::{ethernet, fill, from_gnb, g_pdu, ipv4, ipv6, opened, udp, ue4};
use crate::test_lane::*;

/// TEID chosen by the SMF.
const CHOSEN: u32 = 0x5a00_0001;

fn forwarding(destination: Destination, instance: InstanceId) -> Forwarding {
    Forwarding { destination, instance: Some(instance), outer: None, marking: None, redirect: None }
}

fn to_gnb(teid: u32) -> Forwarding {
    let outer = OuterHeader { teid: Some(teid), v4: Some(GNB.into()), v6: None, port: None };
    Forwarding { outer: Some(outer), ..forwarding(Destination::Access, ACCESS) }
}

fn far(id: u32, to: Forwarding) -> Far {
    let actions = Actions { forward: true, ..Actions::default() };
    let (duplicating, bar, end_markers) = (vec![], None, vec![]);
    Far { id, actions, forwarding: Some(to), duplicating, bar, end_markers }
}

fn pdr(id: u16, precedence: u32, source: Source, far: u32) -> Pdr {
    let user = UserAddress { v4: Some(USER.into()), ..UserAddress::default() };
    let is_up = source == Source::Access;
    let tunnel = LocalTunnel {
        teid: CHOSEN,
        v4: Some(OUR.into()),
        v6: None,
        is_ours: false,
        choose_id: None,
    };
    Pdr {
        id,
        precedence,
        source,
        instance: Some(if is_up { ACCESS } else { INTERNET }),
        tunnel: is_up.then_some(tunnel),
        user: Some(user),
        framed: vec![],
        filters: vec![],
        qfis: vec![],
        removal: is_up.then_some(Removal { description: 0, extension: false }),
        far,
        qers: vec![],
        urrs: vec![],
        predefined: vec![],
    }
}

/// Forwards DNS and drops all other uplink packets.
fn session() -> Session {
    let dns = FlowDescription {
        protocol: Some(17),
        remote_ports: vec![(53, 53)],
        ..FlowDescription::default()
    };
    let filter = Filter { flow: Some(dns), ..Filter::default() };
    let drop = Far { actions: Actions { drop: true, ..Actions::default() }, ..far(3, to_gnb(1)) };
    Session {
        id: SESSION,
        seid: 1,
        cp_fseid: CpFSeid { seid: 1, address: [10, 4, 0, 2].into() },
        peer: 0,
        version: 7,
        generation: 0,
        discarded: 0,
        is_deleted: false,
        established: 0,
        pdn_type: 1,
        supi: None,
        network: None,
        s_nssai: None,
        inactivity_s: None,
        fq_csids: vec![],
        pdrs: vec![
            Pdr { filters: vec![filter], ..pdr(1, 10, Source::Access, 1) },
            pdr(2, 20, Source::Access, 3),
            pdr(3, 30, Source::Core, 2),
        ],
        fars: vec![far(1, forwarding(Destination::Core, INTERNET)), far(2, to_gnb(GNB_TEID)), drop],
        qers: vec![],
        urrs: vec![],
        bars: vec![],
        reporting: Reporting::default(),
    }
}

/// Creates a lane with a session as the control plane publishes it.
fn world(session: &Session) -> TestLane {
    let mut world = TestLane::new(TestRoutes::new(), settings());
    let settings = serde_json::from_value(settings()).expect("settings");
    let context = Context::new(&settings).expect("no predefined rules");
    let mut compiled = compile(session, &context).expect("it can be compiled");
    let indices: Vec<u32> = (0..compiled.blocks.len() as u32).collect();
    compiled.link(&indices);
    for (index, block) in compiled.blocks.iter().enumerate() {
        world.tables.blocks.set(index, block).expect("there is room");
    }
    world.publish(&compiled.rules);
    assert!(compiled.tunnels.contains(&TunnelKey { teid: CHOSEN }));
    for tunnel in &compiled.tunnels {
        world.tables.tunnels.insert(tunnel, &SessionRef::to(SESSION)).expect("there is room");
    }
    world
}

fn up(inner: &[u8]) -> Vec<u8> {
    from_gnb(&g_pdu(CHOSEN, 1, 1, inner))
}

/// Returns a fragment of a packet: 24 octets from `units` * 8 on.
fn fragment(whole: &[u8], units: u16, is_last: bool) -> Vec<u8> {
    let start = 20 + usize::from(units) * 8;
    let end = if is_last { whole.len() } else { start + 24 };
    let mut piece = [&whole[..20], &whole[start..end]].concat();
    let length = piece.len() as u16;
    piece[2..4].copy_from_slice(&length.to_be_bytes());
    piece[6..8].copy_from_slice(&(units | if is_last { 0 } else { 0x2000 }).to_be_bytes());
    fill(&mut piece);
    piece
}

#[test]
fn case_69_filters_decide_and_case_41_the_control_planes_tunnels_are_found() {
    let mut world = world(&session());
    let dns = ue4(USER, SERVER, 64, 9);
    let mut web = dns.clone();
    web[23] = 80;
    world.show(N3, &[up(&dns), up(&web)]);
    let left = world.left(N6);
    assert_eq!(
        (left.len(), world.count(DropReason::ActionDrop)),
        (1, 1),
        "{:?}",
        world.drop_reasons()
    );
    world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 64, 9))]);
    assert_eq!(opened(&world.left(N3)[0]).0, GNB_TEID);
    world.check();
}

/// Returns a TCP segment of the UE to port 80.
fn segment(is_v6: bool, numbers: [u32; 2], control: u8, data: &[u8]) -> Vec<u8> {
    let numbers = numbers.map(u32::to_be_bytes).concat();
    let rest = [0x50, control, 0x40, 0, 0, 0, 0, 0];
    let tcp = [&[0x9c, 0x40, 0, 80][..], &numbers, &rest, data].concat();
    match is_v6 {
        true => ipv6(&ue6().to_string(), "2001:db8:7::7", 6, 64, &tcp),
        false => ipv4(USER, SERVER, 6, 64, &tcp),
    }
}

fn syn() -> Vec<u8> {
    segment(false, [9, 0], 2, b"")
}

#[test]
fn clients_of_the_web_are_told_where_to_go_and_may_go_there() {
    let mut session = session();
    let there = [203, 0, 113, 7];
    let redirect =
        |to| Forwarding { redirect: Some(to), ..forwarding(Destination::Core, INTERNET) };
    session.fars[2] = far(3, redirect(Redirect::Address(there.into())));
    let mut world = world(&session);
    let mut other = syn();
    other[23] = 81;
    let mut known = ue4(USER, there, 64, 9);
    known[23] = 80;
    world.show(N3, &[up(&syn()), up(&other), up(&known), up(&ue4(USER, SERVER, 64, 9))]);
    let answers = world.left(N3);
    let (teid, _, inner) = opened(&answers[0]);
    assert_eq!((answers.len(), teid), (1, GNB_TEID), "{:?}", world.drop_reasons());
    assert_eq!((&inner[12..16], &inner[16..20]), (&SERVER[..], &USER[..]));
    assert_eq!((&inner[20..24], inner[33]), (&[0, 80, 0x9c, 0x40][..], 0x12));
    assert_eq!(inner[28..32], [0, 0, 0, 10]);
    // DNS, and packets to the redirect server.
    assert_eq!(world.left(N6).len(), 2, "{:?}", world.drop_reasons());
    assert_eq!(
        (world.count(DropReason::Redirected), world.count(DropReason::RedirectSent)),
        (2, 1)
    );
    world.check();
}

/// Returns a URR whose quota is used up, with a FAR for packets beyond it.
fn exhausted(far: u32) -> Urr {
    let none = Volume { total: Some(0), ..Volume::default() };
    Urr {
        id: 1,
        measure: Measure { volume: true, ..Measure::default() },
        triggers: ReportingTriggers::VOLQU,
        quota: Quota { volume: Some(none), ..Quota::default() },
        exhausted_far: Some(far),
        progress: Progress { line: 7, ..Progress::default() },
        ..Urr::default()
    }
}

/// Returns the common case: the FAR of an exhausted quota redirects, and the URR counts both
/// directions.
#[test]
fn who_has_used_a_quota_up_is_told_where_to_go_and_may_go_there() {
    let mut session = session();
    let there = [203, 0, 113, 7];
    let to = Forwarding {
        redirect: Some(Redirect::Address(there.into())),
        ..forwarding(Destination::Core, INTERNET)
    };
    session.fars[2] = far(3, to);
    session.urrs = vec![exhausted(3)];
    session.pdrs.truncate(3);
    session.pdrs.remove(0);
    for (pdr, far) in session.pdrs.iter_mut().zip([1, 2]) {
        (pdr.far, pdr.urrs) = (far, vec![1]);
    }
    let mut world = world(&session);
    world.show(N3, &[up(&syn()), up(&ue4(USER, there, 64, 9))]);
    world.show(N6, &[ethernet(N6, &ue4(there, USER, 64, 9))]);
    world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 64, 9))]);
    let left = world.left(N3);
    assert_eq!(left.len(), 2, "{:?}", world.drop_reasons());
    let inner = |at: usize| {
        let (teid, _, inner) = opened(&left[at]);
        assert_eq!(teid, GNB_TEID);
        inner.to_vec()
    };
    assert_eq!((inner(0)[33], &inner(0)[12..16]), (0x12, &SERVER[..]));
    assert_eq!(inner(1)[12..16], there);
    assert_eq!(world.left(N6).len(), 1, "{:?}", world.drop_reasons());
    assert_eq!(
        (world.count(DropReason::Redirected), world.count(DropReason::RedirectSent)),
        (2, 1)
    );
    world.check();
}

/// Returns the address in a redirect response.
fn location(world: &mut TestLane, is_v6: bool) -> String {
    let mut ask = |numbers, control, data: &[u8]| {
        world.show(N3, &[up(&segment(is_v6, numbers, control, data))]);
        let left = world.left(N3);
        assert_eq!(left.len(), 1, "{:?}", world.drop_reasons());
        opened(&left[0]).2.split_off(if is_v6 { 40 } else { 20 })
    };
    let answer = ask([9, 0], 2, b"");
    let sequence = u32::from_be_bytes(answer[4..8].try_into().expect("four octets"));
    let page = ask([10, sequence + 1], 0x10, b"GET / HTTP/1.1\r\n\r\n").split_off(20);
    let page = String::from_utf8(page).expect("text");
    page.lines().nth(1).expect("a header").to_owned()
}

#[test]
fn of_an_ipv4_and_an_ipv6_address_the_packets_family_chooses() {
    let (four, six) = ([203, 0, 113, 7], "2001:db8:113::7");
    let to = Forwarding {
        redirect: Some(Redirect::Both(four.into(), six.parse().expect("an address"))),
        ..forwarding(Destination::Core, INTERNET)
    };
    let mut session = session();
    session.urrs = vec![exhausted(3)];
    session.pdrs.remove(0);
    for (pdr, far) in session.pdrs.iter_mut().zip([1, 2]) {
        let v6 = Some(("2001:db8:45:5::".parse().expect("a prefix"), 64));
        pdr.user = Some(UserAddress { v4: Some(USER.into()), v6, ..UserAddress::default() });
        (pdr.far, pdr.urrs) = (far, vec![1]);
    }
    session.fars[2] = far(3, to.clone());
    let mut world = world(&session);
    assert_eq!(location(&mut world, false), "Location: http://203.0.113.7/");
    assert_eq!(location(&mut world, true), "Location: http://[2001:db8:113::7]/");
    // Packets to and from the redirect server pass.
    let user = ue6().to_string();
    let six_of = |from: &str, to: &str| ipv6(from, to, 17, 64, &udp(1, 2, b"six"));
    let there = [ue4(USER, four, 64, 9), six_of(&user, six)];
    world.show(N3, &there.map(|packet| up(&packet)));
    assert_eq!(world.left(N6).len(), 2, "{:?}", world.drop_reasons());
    let back = [ue4(four, USER, 64, 9), six_of(six, &user)];
    world.show(N6, &back.map(|packet| ethernet(N6, &packet)));
    assert_eq!(world.left(N3).len(), 2, "{:?}", world.drop_reasons());
    assert_eq!(world.count(DropReason::Redirected), 4, "the segments");
    world.show(N6, &[ethernet(N6, &six_of("2001:db8:7::7", &user))]);
    assert_eq!((world.left(N3).len(), world.count(DropReason::Redirected)), (0, 5));
    world.check();
    // Packets through a tunnel do not.
    session.fars[2] = far(3, Forwarding { outer: to_gnb(1).outer, ..to });
    let mut world = self::world(&session);
    assert_eq!(location(&mut world, false), "Location: http://203.0.113.7:80/");
    assert_eq!(location(&mut world, true), "Location: http://[2001:db8:113::7]:80/");
    world.show(N3, &[up(&six_of(&user, six))]);
    assert_eq!(world.count(DropReason::Redirected), 5);
    world.check();
}

#[test]
fn case_72_an_intermediate_upf_with_filters_tells_the_user_what_is_too_long() {
    let mut session = session();
    // To the next UPF and back through tunnels; DNS alone.
    session.fars[0] = far(1, Forwarding { destination: Destination::Core, ..to_gnb(0x300) });
    let from_anchor = pdr(3, 30, Source::Core, 2);
    let (tunnel, removal) = (session.pdrs[0].tunnel, session.pdrs[0].removal);
    let tunnel = tunnel.map(|tunnel| LocalTunnel { teid: CHOSEN + 1, ..tunnel });
    session.pdrs[2] = Pdr { tunnel, removal, instance: Some(ACCESS), ..from_anchor };
    let mut world = world(&session);
    let mut long = ue4(USER, SERVER, 64, 1450);
    long[6] = 0x40;
    fill(&mut long);
    world.show(N3, &[up(&long)]);
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    let (teid, _, error) = opened(frame);
    assert_eq!((teid, &error[16..20], error[20], error[21]), (GNB_TEID, &USER[..], 3, 4));
    assert_eq!((world.count(DropReason::TooLong), world.count(DropReason::IcmpSent)), (1, 1));
    world.check();
}

#[test]
fn case_76_later_fragments_go_the_way_of_the_first() {
    let mut world = world(&session());
    let mut dns = ue4(USER, SERVER, 64, 60);
    let mut web = dns.clone();
    (web[23], web[5], dns[5]) = (80, 1, 2);
    let pieces = |whole: &[u8]| {
        [(0, false), (3, false), (6, true)].map(|(at, last)| up(&fragment(whole, at, last)))
    };
    // The last fragment of a third packet arrives before its first one: undecidable.
    let mut early = dns.clone();
    early[5] = 3;
    let early = up(&fragment(&early, 6, true));
    world.show(N3, &[pieces(&dns).to_vec(), pieces(&web).to_vec(), vec![early]].concat());
    let left = world.left(N6);
    assert_eq!(
        (left.len(), world.count(DropReason::ActionDrop)),
        (3, 3),
        "{:?}",
        world.drop_reasons()
    );
    assert_eq!(world.count(DropReason::FragmentUnknown), 1);
    let data: Vec<u8> = left.iter().flat_map(|frame| frame[34..].to_vec()).collect();
    assert_eq!(data, dns[20..]);
    assert!(left.iter().all(|frame| checksum(&frame[14..34]) == 0));
    world.check();
}

#[test]
fn copies_go_elsewhere_too() {
    let mut session = session();
    session.fars[1].actions.duplicate = true;
    session.fars[1].duplicating = vec![to_gnb(0xd0d0)];
    let mut world = world(&session);
    let packet = ue4(SERVER, USER, 64, 9);
    world.show(N6, &[ethernet(N6, &packet)]);
    let mut teids: Vec<_> = world
        .left(N3)
        .iter()
        .map(|frame| {
            let (teid, _, inner) = opened(frame);
            assert_eq!(inner[20..], packet[20..]);
            teid
        })
        .collect();
    teids.sort_unstable();
    assert_eq!(teids, [GNB_TEID, 0xd0d0]);
    assert_eq!(world.count(DropReason::Duplicated), 1);
    world.check();
}

#[test]
fn a_copy_that_does_not_fit_its_way_is_counted_and_the_packet_goes_on() {
    let mut session = session();
    session.fars[0].actions.duplicate = true;
    session.fars[0].duplicating = vec![to_gnb(0xd0d0)];
    let mut world = world(&session);
    // It fits the MTU without an outer header, but not with one.
    let dns = ue4(USER, SERVER, 64, 1470);
    assert!(dns.len() > 1500 - 36 && dns.len() <= 1500, "{}", dns.len());
    world.show(N3, &[up(&dns)]);
    assert_eq!((world.left(N3).len(), world.left(N6).len()), (0, 1), "{:?}", world.drop_reasons());
    assert_eq!(
        [DropReason::Duplicated, DropReason::NotDuplicated].map(|it| world.count(it)),
        [0, 1]
    );
    world.check();
}

/// Returns the end markers that left: TEID and destination.
fn end_markers(world: &mut TestLane) -> Vec<(u32, String)> {
    let left = world.left(N3);
    let read = |frame: &Vec<u8>| {
        let (to, message) = match frame[12] {
            8 => (std::net::Ipv4Addr::from(*frame[30..].first_chunk::<4>()?).to_string(), 42),
            _ => (std::net::Ipv6Addr::from(*frame[38..].first_chunk::<16>()?).to_string(), 62),
        };
        let message = &frame[message..];
        assert_eq!(message[..4], [0x30, 254, 0, 0]);
        Some((u32::from_be_bytes(*message[4..].first_chunk()?), to))
    };
    left.iter().filter_map(read).collect()
}

fn moved(far: &mut Far, teid: u32, to: &str, version: u64) {
    let (v4, v6) = (to.parse().ok(), to.parse().ok());
    let to = OuterHeader { teid: Some(teid), v4, v6, port: None };
    far.end_markers.push(EndMarker { to, instance: Some(ACCESS), version, at: 0 });
}

fn rules_changed(world: &mut TestLane) {
    let message = SessionEvent::about(SESSION, 0);
    world.send_message(kind::RULES, zerocopy::IntoBytes::as_bytes(&message));
}

/// TS 23.501 clause 5.8.2.9: each tunnel that packets leave has its end, also between UPFs, and
/// tunnels that several FARs share have one.
#[test]
fn case_67_each_tunnel_that_moved_gets_its_end_marker() {
    let mut session = session();
    // Several flows, one of them to another UPF over IPv6.
    session.fars.extend([far(4, to_gnb(4)), far(5, to_gnb(5))]);
    moved(&mut session.fars[1], 0x101, "10.3.0.9", 7);
    moved(&mut session.fars[2], 0x102, "fd03::9", 7);
    moved(&mut session.fars[3], 0x101, "10.3.0.9", 7);
    moved(&mut session.fars[4], 0x103, "10.3.0.9", 7);
    let mut world = world(&session);
    rules_changed(&mut world);
    let mut sent = end_markers(&mut world);
    sent.sort_unstable();
    let to = |teid, to: &str| (teid, to.to_owned());
    assert_eq!(sent, [to(0x101, "10.3.0.9"), to(0x102, "fd03::9"), to(0x103, "10.3.0.9")]);
    assert_eq!(world.count(DropReason::EndMarkerSent), 3);
    rules_changed(&mut world);
    assert!(end_markers(&mut world).is_empty());
    world.check();

    // An intermediate UPF: both directions of a session of the simple form.
    session.pdrs = vec![pdr(1, 10, Source::Access, 1), pdr(3, 30, Source::Core, 2)];
    session.fars = vec![far(1, to_gnb(0x300)), far(2, to_gnb(GNB_TEID))];
    moved(&mut session.fars[0], 0x201, "fd03::9", 7);
    moved(&mut session.fars[1], 0x202, "10.3.0.9", 7);
    let mut world = self::world(&session);
    world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 64, 9))]);
    assert_eq!(world.left(N3).len(), 1, "{:?}", world.drop_reasons());
    rules_changed(&mut world);
    assert_eq!(end_markers(&mut world), [to(0x201, "fd03::9"), to(0x202, "10.3.0.9")]);
    world.show(N3, &[up(&ue4(USER, SERVER, 64, 9))]);
    assert_eq!(world.left(N3).len(), 1, "{:?}", world.drop_reasons());
    world.check();
}

/// More end markers than a turn makes packets: reminders complete them.
#[test]
fn case_67_reminders_go_on_where_the_last_one_ended() {
    let mut session = session();
    for number in 0..60 {
        let mut far = far(10 + number, to_gnb(10));
        moved(&mut far, 0x1000 + number, "10.3.0.9", 7);
        session.fars.push(far);
    }
    let mut world = world(&session);
    let mut sent = vec![];
    for _ in 0..4 {
        rules_changed(&mut world);
        sent.extend(end_markers(&mut world).into_iter().map(|(teid, _)| teid));
    }
    sent.sort_unstable();
    assert_eq!(sent, (0x1000..0x1000 + 60).collect::<Vec<_>>());
    world.check();
}

/// A tunnel whose gNB is unreachable delays the end of no other, and stays due itself.
#[test]
fn case_67_an_unreachable_tunnel_delays_no_other() {
    let mut session = session();
    moved(&mut session.fars[1], 0x101, "10.3.0.77", 7);
    moved(&mut session.fars[1], 0x102, "10.3.0.9", 7);
    moved(&mut session.fars[1], 0x103, "10.3.0.9", 7);
    let mut world = world(&session);
    rules_changed(&mut world);
    let to = |teid| (teid, "10.3.0.9".to_owned());
    assert_eq!(end_markers(&mut world), [to(0x102), to(0x103)]);
    // Reminders repeat only that one.
    rules_changed(&mut world);
    assert!(end_markers(&mut world).is_empty());
    assert_eq!(world.count(DropReason::EndMarkerSent), 2);
    world.check();
}
