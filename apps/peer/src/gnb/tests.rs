use super::*;

/// Returns an IPv4 packet of 20 octets from this address.
fn packet(from: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend_from_slice(&from);
    packet.extend_from_slice(&[192, 0, 2, 1]);
    packet
}

fn tunnels() -> Tunnels {
    let mut tunnels = Tunnels::default();
    tunnels.change("tunnel 10.45.0.2 10.3.0.1 0x1000007 9 5".parse().unwrap());
    tunnels.change("tunnel 2001:db8::2 10.3.0.1 0x1000008 10 5".parse().unwrap());
    tunnels
}

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 3, 0, 2));

#[test]
fn a_packet_of_a_user_is_marked_and_sent_by_its_tunnel() {
    let (mut tunnels, mut message) = (tunnels(), Vec::new());
    let packet = packet([10, 45, 0, 2]);
    let to = tunnels.uplink(&packet, &mut message);
    assert_eq!(to, Some("10.3.0.1:2152".parse().unwrap()));
    let gtp = GtpMessage::parse(&message).unwrap();
    assert_eq!((gtp.teid, gtp.message_type), (0x0100_0007, GtpMessageType::G_PDU));
    let container = gtp.pdu_session.unwrap();
    assert_eq!((container.pdu_type, container.qfi), (fastlane_wire::PduSession::UPLINK, 5));
    assert_eq!(gtp.payload(&message), Some(&packet[..]));
    let mut six = vec![0; 40];
    six[0] = 0x60;
    six[8..24].copy_from_slice(&"2001:db8::77".parse::<std::net::Ipv6Addr>().unwrap().octets());
    assert!(tunnels.uplink(&six, &mut message).is_some(), "it is in the user's prefix");
    assert_eq!(tunnels.counts.uplink, 2);
}

#[test]
fn strangers_and_released_users_send_nothing() {
    let (mut tunnels, mut message) = (tunnels(), Vec::new());
    assert_eq!(tunnels.uplink(&packet([10, 45, 0, 3]), &mut message), None);
    assert_eq!(tunnels.uplink(&[], &mut message), None);
    tunnels.change("release 10.45.0.2".parse().unwrap());
    assert_eq!(tunnels.uplink(&packet([10, 45, 0, 2]), &mut message), None);
    assert_eq!(tunnels.counts.strangers, 3);
    let mut data = Vec::new();
    message::data(9, 1, &packet([192, 0, 2, 1]), &mut data);
    assert!(matches!(tunnels.downlink(&data, LOCAL), DownlinkAction::Answer(_)));
}

#[test]
fn what_a_upf_sends_is_taken_or_answered() {
    let mut tunnels = tunnels();
    let (inner, mut data) = (packet([192, 0, 2, 1]), Vec::new());
    message::data(9, 1, &inner, &mut data);
    assert_eq!(tunnels.downlink(&data, LOCAL), DownlinkAction::Packet(&inner));
    message::data(77, 1, &inner, &mut data);
    let DownlinkAction::Answer(error) = tunnels.downlink(&data, LOCAL) else { panic!("tunnel 77") };
    let gtp = GtpMessage::parse(&error).unwrap();
    assert_eq!((gtp.message_type, gtp.teid), (GtpMessageType::ERROR_INDICATION, 0));
    let elements = gtp.payload(&error).unwrap();
    assert_eq!(elements, [16, 0, 0, 0, 77, 133, 0, 4, 10, 3, 0, 2]);
    let mut echo = message::echo_response(513);
    echo[1] = GtpMessageType::ECHO_REQUEST;
    let DownlinkAction::Answer(answer) = tunnels.downlink(&echo, LOCAL) else { panic!("an echo") };
    let gtp = GtpMessage::parse(&answer).unwrap();
    assert_eq!((gtp.message_type, gtp.sequence_number), (GtpMessageType::ECHO_RESPONSE, Some(513)));
    assert_eq!(gtp.payload(&answer), Some(&[14, 0][..]));
    for junk in [&[][..], &[0x30; 7], &[0x50; 40]] {
        assert_eq!(tunnels.downlink(junk, LOCAL), DownlinkAction::Nothing);
    }
    let counts = Counts { downlink: 1, unknown: 1, echoes: 1, other: 3, ..Counts::default() };
    assert_eq!(tunnels.counts, counts);
}
