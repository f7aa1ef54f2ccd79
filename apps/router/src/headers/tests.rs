use fastlane_wire::checksum;
use proptest::prelude::*;

use super::*;

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

type Change = fn(&mut [u8]);

/// Builds an Ethernet header to the router.
fn ethernet(ethertype: u16) -> Vec<u8> {
    let mut frame = STATION.to_vec();
    frame.extend([2, 0, 0, 0, 0, 2]);
    frame.extend(ethertype.to_be_bytes());
    frame
}

/// Builds UDP from 10.0.0.1:4000 to 192.0.2.1:53, 32 bytes; `change` runs before the checksum is
/// set.
fn four(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = ethernet(0x0800);
    let fixed = [0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1];
    frame.extend(fixed);
    frame.extend([0x0f, 0xa0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
    change(&mut frame[14..]);
    let length = usize::from(frame[14] & 15) * 4;
    frame[24..26].fill(0);
    let header = frame.get(14..14 + length).unwrap_or(&frame[14..]);
    let sum = checksum::checksum(header).to_be_bytes();
    frame[24..26].copy_from_slice(&sum);
    frame
}

/// Builds UDP from 2001:db8::1, port 4000, to 2001:db8::2, port 53.
fn six(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = ethernet(0x86dd);
    frame.extend([0x60, 0, 0, 0, 0, 12, 17, 64]);
    for last in [1, 2] {
        frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend([0x0f, 0xa0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
    change(&mut frame[14..]);
    frame
}

fn fallback(frame: &[u8]) -> Outcome {
    match read(frame, STATION) {
        Ok(Network::Four(headers)) => headers.fallback,
        Ok(Network::Six(headers)) => headers.fallback,
        Err(cause) => cause,
    }
}

#[test]
fn a_plain_packet_is_read() {
    let Ok(Network::Four(headers)) = read(&four(|_| {}), STATION) else { panic!("no IPv4") };
    assert_eq!(headers.source, Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(headers.destination, Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!((headers.length, headers.protocol, headers.ports), (32, 17, [4000, 53]));
    assert_eq!((headers.shows_ports, headers.fallback), (true, Outcome::Forwarded));
    let Ok(Network::Six(headers)) = read(&six(|_| {}), STATION) else { panic!("no IPv6") };
    assert_eq!(headers.destination, "2001:db8::2".parse::<Ipv6Addr>().unwrap());
    assert_eq!((headers.length, headers.protocol, headers.ports), (52, 17, [4000, 53]));
    assert_eq!((headers.shows_ports, headers.fallback), (true, Outcome::Forwarded));
}

#[test]
fn what_is_not_for_a_router_is_named() {
    let to = |mac: [u8; 6]| {
        let mut frame = four(|_| {});
        frame[..6].copy_from_slice(&mac);
        fallback(&frame)
    };
    assert_eq!(to([0xff; 6]), Outcome::Group);
    assert_eq!(to([1, 0, 0x5e, 0, 0, 1]), Outcome::Group);
    assert_eq!(to([2, 0, 0, 0, 0, 9]), Outcome::OtherStation);
    for ethertype in [0x0806, 0x8100, 0x88a8, 0x8847, 0x0600] {
        let mut frame = ethernet(ethertype);
        frame.extend([0; 46]);
        assert_eq!(fallback(&frame), Outcome::EtherType);
    }
    assert_eq!(fallback(&[0; 13]), Outcome::Malformed);
}

#[test]
fn ipv4_that_linux_must_see_is_named() {
    let cases: [(Change, Outcome); 14] = [
        (|ip| ip[0] = 0x55, Outcome::Malformed),
        (|ip| ip[0] = 0x44, Outcome::Malformed),
        (|ip| ip[3] = 33, Outcome::Malformed),
        (|ip| ip[3] = 19, Outcome::Malformed),
        (|ip| ip[0] = 0x46, Outcome::Options),
        (|ip| ip[8] = 1, Outcome::TimeToLive),
        (|ip| ip[8] = 0, Outcome::TimeToLive),
        (|ip| ip[8] = 2, Outcome::Forwarded),
        (|ip| ip[12] = 0, Outcome::Source),
        (|ip| ip[12] = 127, Outcome::Source),
        (|ip| ip[12] = 224, Outcome::Source),
        (|ip| ip[12..16].fill(255), Outcome::Source),
        (|ip| ip[12] = 223, Outcome::Forwarded),
        (|ip| ip[6] = 0x40, Outcome::Forwarded), // do not fragment
    ];
    for (index, (change, expected)) in cases.into_iter().enumerate() {
        assert_eq!(fallback(&four(change)), expected, "case {index}");
    }
    let mut frame = four(|_| {});
    frame[24] ^= 1;
    assert_eq!(fallback(&frame), Outcome::Checksum);
}

#[test]
fn ipv6_that_linux_must_see_is_named() {
    let cases: [(Change, Outcome); 14] = [
        (|ip| ip[0] = 0x50, Outcome::Malformed),
        (|ip| ip[5] = 13, Outcome::Malformed),
        (|ip| ip[5..7].fill(0), Outcome::Malformed), // a jumbogram
        (|ip| ip[5] = 0, Outcome::Forwarded),
        (|ip| ip[6] = 0, Outcome::HopByHop),
        (|ip| ip[7] = 1, Outcome::TimeToLive),
        (|ip| ip[7] = 2, Outcome::Forwarded),
        (|ip| ip[8..24].fill(0), Outcome::Source),
        (|ip| ip[8..10].copy_from_slice(&[0xfe, 0x80]), Outcome::Source),
        (|ip| ip[8..10].copy_from_slice(&[0xfe, 0xbf]), Outcome::Source),
        (|ip| ip[8..10].copy_from_slice(&[0xfe, 0xc0]), Outcome::Forwarded),
        (|ip| ip[8] = 0xff, Outcome::Source),
        (|ip| ip[8..16].fill(0), Outcome::Source), // ::1
        (|ip| ip[8] = 0, Outcome::Forwarded),
    ];
    for (index, (change, expected)) in cases.into_iter().enumerate() {
        assert_eq!(fallback(&six(change)), expected, "case {index}");
    }
    let mapped = six(|ip| {
        ip[8..24].fill(0);
        ip[18..20].fill(0xff);
    });
    assert_eq!(fallback(&mapped), Outcome::Source);
}

#[test]
fn the_protocol_behind_extension_headers_is_found() {
    // Extension headers, all of eight octets, before the UDP header.
    let behind = |first: u8, headers: &[[u8; 4]]| {
        let mut frame = six(|_| {});
        let udp = frame.split_off(54);
        frame[20] = first;
        frame[19] += 8 * headers.len() as u8;
        headers.iter().for_each(|it| frame.extend([it[0], it[1], it[2], it[3], 0, 0, 0, 0]));
        frame.extend(udp);
        let Ok(Network::Six(headers)) = read(&frame, STATION) else { panic!("no IPv6") };
        (!headers.hides_protocol).then_some(headers.protocol)
    };
    assert_eq!(behind(17, &[]), Some(17));
    assert_eq!(behind(60, &[[17, 0, 0, 0]]), Some(17));
    assert_eq!(behind(0, &[[60, 0, 0, 0], [43, 0, 0, 0], [17, 0, 0, 0]]), Some(17));
    assert_eq!(behind(44, &[[60, 0, 0, 1], [17, 0, 0, 0]]), Some(17), "a first fragment");
    assert_eq!(behind(44, &[[17, 0, 0, 8]]), Some(17), "a later one");
    assert_eq!(behind(44, &[[60, 0, 0, 8], [17, 0, 0, 0]]), None, "in an earlier fragment");
    assert_eq!(behind(60, &[[17, 9, 0, 0]]), None, "cut off");
    let options = [60, 0, 0, 0];
    let many = |count: usize| [vec![options; count - 1], vec![[17, 0, 0, 0]]].concat();
    assert_eq!(behind(60, &many(8)), Some(17));
    assert_eq!(behind(60, &many(9)), None, "one too many");
}

#[test]
fn fragments_and_extensions_show_no_ports() {
    let shows = |frame: &[u8]| match read(frame, STATION) {
        Ok(Network::Four(headers)) => (headers.shows_ports, headers.ports, headers.fallback),
        Ok(Network::Six(headers)) => (headers.shows_ports, headers.ports, headers.fallback),
        Err(cause) => panic!("{cause:?}"),
    };
    let hidden = (false, [0; 2], Outcome::Forwarded);
    assert_eq!(shows(&four(|ip| ip[6] = 0x20)), hidden, "the first fragment");
    assert_eq!(shows(&four(|ip| ip[7] = 1)), hidden, "a later one");
    for extension in [43, 44, 51, 60, 135] {
        assert_eq!(shows(&six(|ip| ip[6] = extension)), hidden, "{extension}");
    }
    let has_none = (true, [0; 2], Outcome::Forwarded);
    assert_eq!(shows(&four(|ip| ip[9] = 1)), has_none);
    assert_eq!(shows(&six(|ip| ip[6] = 58)), has_none);
    // Too short for ports.
    assert_eq!(shows(&four(|ip| ip[3] = 23)), hidden);
}

proptest! {
    #[test]
    fn no_frame_is_too_strange(
        frame in proptest::collection::vec(any::<u8>(), 0..120),
        six in any::<bool>(),
    ) {
        let _ = read(&frame, STATION);
        let mut to_us = ethernet(if six { 0x86dd } else { 0x0800 });
        to_us.extend(frame);
        if let Ok(Network::Four(headers)) = read(&to_us, STATION) {
            prop_assert!(14 + headers.length as usize <= to_us.len());
        }
    }
}
