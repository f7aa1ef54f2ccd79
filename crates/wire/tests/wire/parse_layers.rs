use fastlane_wire::{
    EtherType, Fragment, HeaderName, Icmp, IpProtocol, Layers, LinkLayerAddress, MacAddress,
    NeighborSolicitation, ParseError, header,
};

use crate::built::{Extension, Frame};
use crate::real;

#[test]
fn a_real_udp_packet_over_ipv4() {
    let frame = real::UDP4;
    let layers = Layers::parse(frame).unwrap();
    let expected = Layers {
        end: 51,
        network: 14,
        transport: 34,
        ethertype: EtherType::IPV4,
        protocol: IpProtocol::UDP,
        vlans: 0,
        fragment: Fragment::None,
        truncated: false,
        routed: false,
    };
    assert_eq!(layers, expected);
    assert_eq!(layers.ports(frame), Some((2152, 2152)));
    assert_eq!(layers.payload(frame), Some(b"fastlane!".as_slice()));
    assert_eq!(layers.ipv4(frame).unwrap().source, [10, 9, 0, 1]);
    assert!(layers.ipv4(frame).unwrap().dont_fragment());
    assert!(layers.ipv6(frame).is_none() && layers.tcp(frame).is_none());
}

#[test]
fn a_real_tcp_syn_over_ipv6() {
    let frame = real::TCP6;
    let layers = Layers::parse(frame).unwrap();
    assert_eq!((layers.network, layers.transport, layers.end), (14, 54, 94));
    assert_eq!(layers.ports(frame), Some((57158, 80)));
    assert_eq!(layers.tcp(frame).unwrap().header_length(), 40);
    assert_eq!(layers.payload(frame), Some([].as_slice()));
    assert_eq!(layers.ipv6(frame).unwrap().flow_label(), 0x2fe96);
}

#[test]
fn real_messages_of_icmp() {
    let layers = Layers::parse(real::PING4).unwrap();
    let icmp: &Icmp = header(real::PING4, layers.transport.into()).unwrap();
    assert_eq!((icmp.message_type, icmp.rest.get()), (Icmp::ECHO_REQUEST, 0x255f_0001));
    assert_eq!((layers.ports(real::PING4), layers.payload(real::PING4)), (None, None));

    let frame = real::NEIGHBOR_SOLICITATION;
    let layers = Layers::parse(frame).unwrap();
    let offset = usize::from(layers.transport);
    let solicitation: &NeighborSolicitation = header(frame, offset).unwrap();
    assert_eq!(solicitation.icmp.message_type, 135);
    assert_eq!(solicitation.target, *b"\xfd\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\x03");
    let option: &LinkLayerAddress = header(frame, offset + 24).unwrap();
    assert_eq!((option.option_type, option.length), (LinkLayerAddress::SOURCE, 1));
    assert_eq!(option.address, MacAddress([2, 0, 0, 0, 0, 10]));

    let layers = Layers::parse(real::MULTICAST_REPORT).unwrap();
    assert_eq!((layers.protocol, layers.transport), (IpProtocol::ICMPV6, 62));
}

#[test]
fn two_vlan_tags_are_passed_a_third_is_not() {
    for (tags, network, ethertype) in
        [(1, 18, EtherType::IPV4), (2, 22, EtherType::IPV4), (3, 22, EtherType::VLAN)]
    {
        let frame = Frame { vlans: vec![5; tags], ..Frame::default() }.build();
        let layers = Layers::parse(&frame).unwrap();
        assert_eq!((layers.network, layers.ethertype), (network, ethertype), "{tags} tags");
        assert_eq!(layers.vlans, tags.min(2) as u8);
        assert_eq!(layers.ports(&frame).is_some(), tags < 3);
    }
}

#[test]
fn what_is_not_ip_parses_as_itself() {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[0x00, 0x2e]);
    let layers = Layers::parse(&frame).unwrap();
    assert_eq!((layers.ethertype, layers.transport, layers.end), (46, 14, 60));
    assert!(!layers.is_ipv4() && !layers.is_ipv6());
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(Layers::parse(&frame).unwrap().ethertype, EtherType::ARP);
    assert_eq!(Layers::parse(&frame[..41]), Err(ParseError::Short(HeaderName::Arp)));
}

#[test]
fn every_cut_is_named() {
    let frame = Frame { vlans: vec![1, 2], ..Frame::default() }.build();
    for length in 0..frame.len() {
        let result = Layers::parse(&frame[..length]);
        match length {
            0..14 => assert_eq!(result, Err(ParseError::Short(HeaderName::Ethernet))),
            14..22 => assert_eq!(result, Err(ParseError::Short(HeaderName::Vlan))),
            22..42 => assert_eq!(result, Err(ParseError::Short(HeaderName::Ipv4))),
            42..50 => assert_eq!(result, Err(ParseError::Short(HeaderName::Udp))),
            _ => {
                let layers = result.unwrap();
                assert!(layers.truncated && layers.end as usize == length);
                assert_eq!(layers.payload(&frame[..length]), None);
            }
        }
    }
    assert_eq!(ParseError::Short(HeaderName::Udp).to_string(), "the UDP header is cut short");
}

#[test]
fn contradictions_in_ipv4_are_named() {
    let good = real::UDP4.to_vec();
    let with = |offset: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[offset..offset + bytes.len()].copy_from_slice(bytes);
        Layers::parse(&frame)
    };
    assert_eq!(with(14, &[0x65]), Err(ParseError::Version(HeaderName::Ipv4)));
    assert_eq!(with(14, &[0x44]), Err(ParseError::Length(HeaderName::Ipv4)));
    assert_eq!(with(14, &[0x4f]), Err(ParseError::Length(HeaderName::Ipv4)));
    assert_eq!(with(16, &[0, 19]), Err(ParseError::Length(HeaderName::Ipv4)));
    assert_eq!(with(16, &[0, 27]), Err(ParseError::Short(HeaderName::Udp)));
    assert_eq!(with(16, &[0, 28]).unwrap().end, 42);
    assert!(with(16, &[0xff, 0xff]).unwrap().truncated);
    // ESP is not parsed, so it may be empty.
    assert_eq!(with(23, &[IpProtocol::ESP]).unwrap().protocol, IpProtocol::ESP);
}

#[test]
fn fragments_are_told_apart() {
    for ipv6 in [false, true] {
        let parse = |fragment| {
            let frame = Frame { ipv6, fragment, ..Frame::default() }.build();
            let layers = Layers::parse(&frame).unwrap();
            (layers.fragment, layers.protocol, layers.ports(&frame).is_some())
        };
        assert_eq!(parse(None), (Fragment::None, IpProtocol::UDP, true));
        assert_eq!(parse(Some((0, false))), (Fragment::None, IpProtocol::UDP, true));
        assert_eq!(parse(Some((0, true))), (Fragment::First, IpProtocol::UDP, true));
        assert_eq!(parse(Some((1, true))), (Fragment::Later, IpProtocol::UDP, false));
        assert_eq!(parse(Some((185, false))), (Fragment::Later, IpProtocol::UDP, false));
    }
}

#[test]
fn a_later_fragment_needs_no_transport_header() {
    let frame = Frame { fragment: Some((2, false)), tcp: true, ..Frame::default() }.build();
    let mut frame = frame[..14 + 20 + 3].to_vec();
    frame[16..18].copy_from_slice(&[0, 23]);
    assert_eq!(Layers::parse(&frame).unwrap().fragment, Fragment::Later);
    frame[20] = 0x20;
    frame[21] = 0;
    assert_eq!(Layers::parse(&frame), Err(ParseError::Short(HeaderName::Tcp)));
}

#[test]
fn eight_extension_headers_are_walked_nine_are_not() {
    let options = Extension::Options { protocol: IpProtocol::DESTINATION_OPTIONS, units: 0 };
    let mut frame = Frame { ipv6: true, extensions: vec![options; 8], ..Frame::default() };
    let layers = Layers::parse(&frame.build()).unwrap();
    assert_eq!((layers.transport, layers.protocol), (14 + 40 + 64, IpProtocol::UDP));
    frame.extensions.push(options);
    let error = ParseError::TooMany(HeaderName::Ipv6Extension);
    assert_eq!(Layers::parse(&frame.build()), Err(error));
}

#[test]
fn behind_a_later_fragment_nothing_is_read() {
    let options = Extension::Options { protocol: IpProtocol::DESTINATION_OPTIONS, units: 0 };
    let mut frame = Frame { ipv6: true, fragment: Some((9, true)), ..Frame::default() }.build();
    frame[14 + 40] = IpProtocol::DESTINATION_OPTIONS;
    let layers = Layers::parse(&frame).unwrap();
    assert_eq!((layers.fragment, layers.transport), (Fragment::Later, 14 + 40 + 8));
    assert_eq!(layers.protocol, IpProtocol::DESTINATION_OPTIONS);

    // A first fragment stays one, whatever fragment headers follow.
    let extensions = vec![Extension::Atomic, options, Extension::Atomic];
    let mut frame = Frame { ipv6: true, extensions, ..Frame::default() }.build();
    assert_eq!(Layers::parse(&frame).unwrap().fragment, Fragment::None);
    frame[14 + 40 + 3] = 1;
    assert_eq!(Layers::parse(&frame).unwrap().fragment, Fragment::First);
}

#[test]
fn an_extension_header_must_lie_within_the_packet() {
    let options = Extension::Options { protocol: IpProtocol::DESTINATION_OPTIONS, units: 0 };
    let mut frame = Frame { ipv6: true, extensions: vec![options], ..Frame::default() }.build();
    frame[14 + 40] = IpProtocol::NO_NEXT_HEADER;
    let layers = Layers::parse(&frame).unwrap();
    assert_eq!((layers.protocol, layers.transport), (IpProtocol::NO_NEXT_HEADER, 14 + 40 + 8));
    frame[14 + 4..14 + 6].copy_from_slice(&[0, 7]);
    assert_eq!(Layers::parse(&frame), Err(ParseError::Short(HeaderName::Ipv6Extension)));
}

#[test]
fn a_udp_length_that_does_not_fit_leaves_no_payload() {
    let mut frame = Frame { padding: vec![0; 9], ..Frame::default() }.build();
    let layers = Layers::parse(&frame).unwrap();
    for (length, payload) in [(0, None), (7, None), (8, Some(0)), (16, Some(8)), (17, None)] {
        frame[14 + 20 + 5] = length;
        assert_eq!(layers.payload(&frame).map(<[u8]>::len), payload, "{length}");
        let expected = payload.map(|payload| payload + 8);
        assert_eq!(layers.transport_length(&frame), expected, "{length}");
    }
}

#[test]
fn a_segment_left_hides_the_destination() {
    let routing = Extension::Routing { units: 2 };
    let mut frame = Frame { ipv6: true, extensions: vec![routing], ..Frame::default() }.build();
    assert!(!Layers::parse(&frame).unwrap().routed);
    frame[14 + 40 + 3] = 1;
    assert!(Layers::parse(&frame).unwrap().routed);
}

#[test]
fn an_authentication_header_shorter_than_itself_is_refused() {
    let extensions = vec![Extension::Authentication { words: 3 }];
    let mut frame = Frame { ipv6: true, extensions, ..Frame::default() }.build();
    assert_eq!(Layers::parse(&frame).unwrap().transport, 14 + 40 + 24);
    frame[14 + 40 + 1] = 0;
    assert_eq!(Layers::parse(&frame), Err(ParseError::Length(HeaderName::Ipv6Extension)));
}

#[test]
fn an_inner_packet_says_which_ip_it_is() {
    assert!(Layers::parse_ip(&real::UDP4[14..], 0).unwrap().is_ipv4());
    assert!(Layers::parse_ip(&real::UDP6[14..], 0).unwrap().is_ipv6());
    let inner = [&[0; 36], &real::UDP6[14..]].concat();
    assert_eq!(Layers::parse_ip(&inner, 36).unwrap().transport, 76);
    assert_eq!(Layers::parse_ip(&inner, 0), Err(ParseError::Version(HeaderName::Ipv4)));
    assert_eq!(Layers::parse_ip(&[], 0), Err(ParseError::Short(HeaderName::Ipv4)));
    assert_eq!(Layers::parse_ip(&inner, 60000), Err(ParseError::Short(HeaderName::Ipv4)));
}

#[test]
fn a_tcp_header_that_ends_behind_the_packet_has_no_payload() {
    let mut frame = Frame { tcp: true, ..Frame::default() }.build();
    let layers = Layers::parse(&frame).unwrap();
    assert_eq!(layers.payload(&frame), Some(b"fastlane".as_slice()));
    for (data_offset, payload) in [(0x40, None), (0x70, Some(0)), (0x80, None), (0xf0, None)] {
        frame[14 + 20 + 12] = data_offset;
        assert_eq!(layers.payload(&frame).map(<[u8]>::len), payload);
    }
}

#[test]
fn offsets_beyond_16_bits_are_refused() {
    let frame = [vec![0; 65530], Frame::default().build()[14..].to_vec()].concat();
    let error = ParseError::TooFar(HeaderName::Ipv4);
    assert_eq!(Layers::parse_ip(&frame, 65530), Err(error));
    let ipv6 = Frame { ipv6: true, ..Frame::default() }.build();
    let frame = [vec![0; 65530], ipv6[14..].to_vec()].concat();
    assert_eq!(Layers::parse_ip(&frame, 65530), Err(ParseError::TooFar(HeaderName::Ipv6)));
}
