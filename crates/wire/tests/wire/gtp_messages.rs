use fastlane_wire::{
    GtpMessage, GtpMessageType, GtpU, GtpUOptional, HeaderName, ParseError, PduSession,
    PduSessionContainer, U16, U32,
};
use zerocopy::IntoBytes;

/// Builds a G-PDU from `flags` and `rest` (optional part, extension headers, payload).
fn message(flags: u8, rest: &[u8]) -> Vec<u8> {
    let length = U16::new(rest.len() as u16);
    let teid = U32::new(0x1234_5678);
    let message_type = GtpMessageType::G_PDU;
    let gtpu = GtpU { flags: GtpU::VERSION_1 | flags, message_type, length, teid };
    [gtpu.as_bytes(), rest].concat()
}

#[test]
fn the_shortest_message() {
    let bytes = message(0, b"inner");
    let parsed = GtpMessage::parse(&bytes).unwrap();
    assert_eq!((parsed.teid, parsed.message_type), (0x1234_5678, 255));
    assert_eq!((parsed.header_length, parsed.end, parsed.extensions), (8, 13, 0));
    assert_eq!(
        (parsed.sequence_number, parsed.n_pdu_number, parsed.pdu_session),
        Default::default()
    );
    assert_eq!(parsed.payload(&bytes), Some(b"inner".as_slice()));
    let trailed = [bytes.as_slice(), b"trailer"].concat();
    assert_eq!(GtpMessage::parse(&trailed), Ok(parsed));
}

#[test]
fn the_optional_part_is_there_for_any_flag_and_means_what_its_flags_say() {
    let rest = [0xbe, 0xef, 0x07, 0x00];
    for flags in 1..8 {
        let parsed = GtpMessage::parse(&message(flags, &rest)).unwrap();
        assert_eq!(parsed.header_length, 12);
        assert_eq!(parsed.sequence_number, (flags & 2 != 0).then_some(0xbeef));
        assert_eq!(parsed.n_pdu_number, (flags & 1 != 0).then_some(7));
    }
    // Without E the next extension header type is not valid.
    let parsed = GtpMessage::parse(&message(GtpU::SEQUENCE, &[0, 1, 0, 0x85])).unwrap();
    assert_eq!((parsed.header_length, parsed.extensions), (12, 0));
}

#[test]
fn a_pdu_session_container_gives_the_qfi() {
    let optional = GtpUOptional { next_extension: 0x85, ..GtpUOptional::default() };
    let container = PduSessionContainer::new(PduSession::UPLINK, 9);
    let rest = [optional.as_bytes(), container.as_bytes(), b"inner"].concat();
    let bytes = message(GtpU::EXTENSION, &rest);
    assert_eq!(bytes[8..16], [0, 0, 0, 0x85, 1, 0x10, 9, 0]);
    let parsed = GtpMessage::parse(&bytes).unwrap();
    let session = PduSession { pdu_type: PduSession::UPLINK, qfi: 9, reflective: false };
    assert_eq!(parsed.pdu_session, Some(session));
    assert_eq!((parsed.header_length, parsed.not_understood), (16, None));
    assert_eq!(parsed.payload(&bytes), Some(b"inner".as_slice()));

    // Downlink with PPP, RQI and paging policy: two units of four bytes.
    let rest = [0, 0, 0, 0x85, 2, 0x00, 0xc5, 0x20, 0, 0, 0, 0];
    let parsed = GtpMessage::parse(&message(GtpU::EXTENSION, &rest)).unwrap();
    let session = PduSession { pdu_type: PduSession::DOWNLINK, qfi: 5, reflective: true };
    assert_eq!((parsed.pdu_session, parsed.header_length), (Some(session), 20));
}

#[test]
fn what_must_be_understood_and_is_not_is_named() {
    let rest = [0, 0, 0, 0x40, 1, 8, 0x68, 0x20, 1, 0, 0, 0xc0, 1, 0, 0, 0x81, 1, 0, 0, 0];
    let parsed = GtpMessage::parse(&message(GtpU::EXTENSION, &rest)).unwrap();
    assert_eq!((parsed.extensions, parsed.not_understood), (4, Some(0x81)));
}

#[test]
fn contradictions_are_named() {
    let short = Err(ParseError::Short(HeaderName::GtpU));
    let version = Err(ParseError::Version(HeaderName::GtpU));
    let bytes = message(0, b"inner");
    for length in 0..bytes.len() {
        assert_eq!(GtpMessage::parse(&bytes[..length]), short);
    }
    for flags in [0x20, 0x50, 0x10, 0xf0] {
        assert_eq!(GtpMessage::parse(&[flags, 255, 0, 0, 0, 0, 0, 0]), version, "{flags:02x}");
    }
    let length = Err(ParseError::Length(HeaderName::GtpU));
    assert_eq!(GtpMessage::parse(&message(1, &[0, 0, 0])), length);

    let parse = |rest: &[u8]| GtpMessage::parse(&message(GtpU::EXTENSION, rest));
    let short = Err(ParseError::Short(HeaderName::GtpUExtension));
    assert_eq!(parse(&[0, 0, 0, 0x85]), short);
    assert_eq!(parse(&[0, 0, 0, 0x85, 1, 0, 0]), short);
    assert_eq!(parse(&[0, 0, 0, 0x85, 255, 0, 0, 0]), short);
    let length = Err(ParseError::Length(HeaderName::GtpUExtension));
    assert_eq!(parse(&[0, 0, 0, 0x85, 0, 0, 0, 0]), length);
}

#[test]
fn eight_extension_headers_are_read_nine_are_not() {
    let chain = |count: usize| {
        let mut rest = vec![0, 0, 0, 0x20];
        for left in (0..count).rev() {
            rest.extend([1, 0, 0, if left > 0 { 0x20 } else { 0 }]);
        }
        GtpMessage::parse(&message(GtpU::EXTENSION, &rest))
    };
    assert_eq!(chain(8).unwrap().header_length, 44);
    assert_eq!(chain(9), Err(ParseError::TooMany(HeaderName::GtpUExtension)));
}
