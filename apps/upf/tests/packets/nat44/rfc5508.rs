//! ICMP (RFC 5508): queries by their identifiers, and errors about packets that were translated, in
//! both directions.

use upf::rules::layout::drop_reason::DropReason;

use super::*;

/// Returns the packet that an error quotes.
fn quoted(error: &[u8]) -> &[u8] {
    assert_eq!(checksum::checksum(&error[..20]), 0);
    assert_eq!(checksum::checksum(&error[20..]), 0, "the checksum of the message");
    &error[28..]
}

#[test]
fn req_1_and_2_queries_are_translated_by_their_identifier() {
    let mut world = NatLane::new();
    let left = world.up(&echo(8, USER, SERVER, 77)).expect("a packet");
    let flow = flow_of(&left);
    assert!(world.is_in_block(BLOCK, flow.from.1));
    assert_eq!(left[26..28], [0, 7], "the sequence number stays");
    assert_eq!(world.reaches(ICMP, (SERVER, 0), flow.from.1), Some(77));
    // A request to the external address itself is Linux's, and no mapping for it is made.
    world.lane.show(N6, &[ethernet(N6, &echo(8, SERVER, EXTERNAL, flow.from.1))]);
    assert_eq!((world.lane.linux().len(), world.received()), (1, None));
    world.lane.check();
}

#[test]
fn req_3_errors_about_packets_of_the_user_reach_it() {
    let mut world = NatLane::new();
    let router = [192, 0, 2, 99];
    let udp = transport(Flow::of_user(UDP, 4000, SERVER), 0, b"data");
    let without = {
        let mut packet = udp.clone();
        packet[26..28].fill(0);
        packet
    };
    let tcp = transport(Flow::of_user(TCP, 4000, SERVER), 2, b"");
    for sent in [udp, without, tcp, echo(8, USER, SERVER, 4000)] {
        let left = world.up(&sent).expect("a packet");
        let error = icmp_error(11, 0, router, EXTERNAL, &left);
        let (tunnel, inner) = world.down(&error).expect("the error");
        assert_eq!((tunnel, &inner[12..16], &inner[16..20]), (GNB_TEID, &router[..], &USER[..]));
        // But for the time to live it is what the user sent, checksums included.
        let mut expected = sent.clone();
        expected[8] -= 1;
        crate::frames::fill(&mut expected);
        assert_eq!(quoted(&inner), expected);
        // Routers may quote eight octets only.
        let error = icmp_error(3, 1, router, EXTERNAL, &left[..28]);
        let (_, inner) = world.down(&error).expect("the error");
        assert_eq!(quoted(&inner), &expected[..28]);
    }
    world.lane.check();
}

#[test]
fn req_4_errors_of_the_user_leave_with_the_external_form() {
    let mut world = NatLane::new();
    for protocol in [UDP, TCP, ICMP] {
        let port = world.map(protocol, 4000, SERVER);
        let flow = Flow { protocol, from: (SERVER, 53), to: (EXTERNAL, port) };
        let sent = match protocol {
            ICMP => echo(0, SERVER, EXTERNAL, port),
            _ => transport(flow, 0x10, b"answer"),
        };
        let (_, inner) = world.down(&sent).expect("a packet");
        let error = icmp_error(3, 3, USER, SERVER, &inner);
        let left = world.up(&error).expect("the error");
        assert_eq!((&left[12..16], &left[16..20]), (&EXTERNAL[..], &SERVER[..]));
        assert_eq!(quoted(&left)[12..], sent[12..], "what the server sent");
        assert_eq!(checksum::checksum(&quoted(&left)[..20]), 0);
    }
    // An error about a packet that no mapping has translated tells nobody anything.
    let flow = Flow { protocol: UDP, from: (SERVER, 53), to: (USER, 4999) };
    let error = icmp_error(3, 3, USER, SERVER, &transport(flow, 0, b""));
    assert_eq!((world.up(&error), world.lane.count(DropReason::NatNoMapping)), (None, 1));
    world.lane.check();
}

#[test]
fn req_7_errors_between_users_are_translated_twice() {
    let mut world = NatLane::new();
    let flow = Flow { from: (OTHER, 7000), ..Flow::of_user(UDP, 0, SERVER) };
    let left = world.up_of(OTHER_SESSION, &transport(flow, 0, b"")).pop().expect("a packet");
    let other = flow_of(&left).from;
    let sent = transport(Flow { protocol: UDP, from: (USER, 4000), to: other }, 0, b"hello");
    world.up(&sent);
    world.lane.pass();
    let (_, inner) = world.received().expect("a packet");
    let error = icmp_error(3, 3, OTHER, [198, 51, 100, 0], &inner);
    world.up_of(OTHER_SESSION, &error);
    assert_eq!(world.lane.pass(), 1, "{:?}", world.lane.drop_reasons());
    let (tunnel, inner) = world.received().expect("the error");
    assert_eq!((tunnel, &inner[12..16], &inner[16..20]), (GNB_TEID, &EXTERNAL[..], &USER[..]));
    assert_eq!(quoted(&inner)[12..], sent[12..]);
    world.lane.check();
}

#[test]
fn errors_that_make_no_sense_are_dropped() {
    let mut world = NatLane::new();
    let left = world.up(&transport(Flow::of_user(UDP, 4000, SERVER), 0, b"")).expect("a packet");
    // About a packet of somebody else, about a later fragment, cut off, of another protocol.
    let mut foreign = left.clone();
    foreign[15] = 77;
    let mut later = left.clone();
    later[7] = 9;
    let mut other = left.clone();
    other[9] = 50;
    for about in [&foreign[..], &later, &left[..19], &left[..21], &other] {
        let error = icmp_error(3, 1, SERVER, EXTERNAL, about);
        assert_eq!(world.down(&error), None, "{about:02x?}");
    }
    world.lane.linux();
    assert_eq!(world.lane.count(DropReason::Malformed), 4, "{:?}", world.lane.drop_reasons());
    world.lane.check();
}
