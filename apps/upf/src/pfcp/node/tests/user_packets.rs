//! GTP-U on N4. The story of a user with an SMF on N4 is in `tests/interop`.

use serde_json::json;

use super::*;
use crate::pfcp::N4Protocol;

/// Port of a sender, which is not that of GTP-U.
const SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 50)), 40_000);

fn send_gtpu(world: &mut NodeTestbed, from: SocketAddr, datagram: &[u8]) -> Vec<Outgoing> {
    let mut out = Outbox::new();
    world.node.receive_gtpu(world.now, UPF, from, datagram, &mut out);
    assert!(out.lanes.is_empty(), "no session has a tunnel");
    out.datagrams
}

fn counted(world: &NodeTestbed, outcome: UserPlaneOutcome) -> u64 {
    world.node.statistics().user_plane.get(&outcome).copied().unwrap_or(0)
}

#[test]
fn an_echo_request_is_answered_where_it_came_from() {
    let mut world = NodeTestbed::new(json!({}));
    let answers = send_gtpu(&mut world, SENDER, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0xab, 0xcd, 0, 0]);
    let bytes = vec![0x32, 2, 0, 6, 0, 0, 0, 0, 0xab, 0xcd, 0, 0, 14, 0];
    let (protocol, local) = (N4Protocol::GtpU, Some(UPF));
    assert_eq!(answers, [Outgoing { protocol, local, to: SENDER, bytes }]);
    assert_eq!(counted(&world, UserPlaneOutcome::EchoAnswered), 1);
}

#[test]
fn a_packet_in_no_tunnel_gets_an_error_indication() {
    let mut world = NodeTestbed::new(json!({}));
    let answers = send_gtpu(&mut world, SENDER, &[0x30, 255, 0, 1, 0, 0, 0, 7, 0x60]);
    let [error] = &answers[..] else { panic!("{answers:?}") };
    // TS 29.281 clause 7.3.1: UDP port extension header, TEID Data I, GTP-U Peer Address.
    let bytes = [
        &[0x36, 26, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0x40][..],
        &[1, 0x9c, 0x40, 0],
        &[16, 0, 0, 0, 7],
        &[133, 0, 4, 192, 0, 2, 1],
    ];
    assert_eq!((error.to, &error.bytes), ((SENDER.ip(), 2152).into(), &bytes.concat()));
    assert_eq!(counted(&world, UserPlaneOutcome::UnknownTunnel), 1);
}

#[test]
fn what_no_upf_handles_is_counted_and_not_answered() {
    let mut world = NodeTestbed::new(json!({}));
    let end_marker = [0x30, 254, 0, 0, 0, 0, 0, 7];
    let too_long = [&[0x30, 255, 0x10, 0, 0, 0, 0, 7][..], &[0x60; 4096]].concat();
    for datagram in [&end_marker[..], &[], &[0x30, 255], &[0x50; 12], &too_long] {
        assert_eq!(send_gtpu(&mut world, SENDER, datagram), []);
    }
    assert_eq!(counted(&world, UserPlaneOutcome::MessageType), 1);
    assert_eq!(counted(&world, UserPlaneOutcome::Malformed), 4);
    let mut out = Outbox::new();
    world.node.lane_message(world.now, u32::MAX, b"no packet", &mut out);
    assert_eq!((out.datagrams.len(), counted(&world, UserPlaneOutcome::Malformed)), (0, 5));
}

#[test]
fn a_flood_of_others_does_not_silence_peers() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, b"smf.example", STARTED);
    let echo = [0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0];
    let answered = (0..1000).filter(|_| !send_gtpu(&mut world, SENDER, &echo).is_empty()).count();
    assert_eq!(answered, 100, "as many as in a second");
    assert_eq!(counted(&world, UserPlaneOutcome::RateExceeded), 900);
    assert_eq!(send_gtpu(&mut world, SMF, &echo).len(), 1);
}
