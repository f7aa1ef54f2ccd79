//! Bodies of the fuzz targets. They are here so that the tests can replay the corpus through them.
//! Not for applications: these functions panic when an invariant is violated.

use crate::checksum::{self, Difference, Sum};
use crate::{Fragment, GtpMessage, IpProtocol, Layers};

/// Parses `frame` and checks the invariants of [`Layers`].
pub fn layers(frame: &[u8]) {
    check_layers(frame, Layers::parse(frame).ok());
    for network in [0, 1, 14, 18, u16::MAX] {
        check_layers(frame, Layers::parse_ip(frame, network).ok());
        check_layers(frame, Layers::parse_network(frame, network, 0x0806).ok());
    }
}

fn check_layers(frame: &[u8], layers: Option<Layers>) {
    let Some(layers) = layers else { return };
    let (network, transport) = (usize::from(layers.network), usize::from(layers.transport));
    let end = layers.end as usize;
    assert!(network <= transport && transport <= end && end <= frame.len(), "{layers:?}");
    assert_eq!(layers.ipv4(frame).is_some(), layers.is_ipv4());
    assert_eq!(layers.ipv6(frame).is_some(), layers.is_ipv6());
    assert_eq!(layers.udp(frame).is_some(), layers.carries(IpProtocol::UDP));
    assert_eq!(layers.tcp(frame).is_some(), layers.carries(IpProtocol::TCP));
    let ported = layers.udp(frame).is_some() || layers.tcp(frame).is_some();
    assert_eq!(layers.ports(frame).is_some(), ported);
    if let Some(payload) = layers.payload(frame) {
        assert!(ported && payload.len() <= end - transport);
    }
    assert!(layers.transport_length(frame).is_none_or(|length| length <= end - transport));
    // Bytes after the packet must not matter.
    if !layers.truncated {
        let mut again = Layers::parse_network(&frame[..end], layers.network, layers.ethertype);
        if let Ok(again) = &mut again {
            again.vlans = layers.vlans;
        }
        assert_eq!(again, Ok(layers));
    }
    // For another, shorter frame the layers return `None` instead of panicking.
    let _ = (layers.payload(&[]), layers.ports(&[]), layers.transport_length(&[]));
    assert!(checksum::verify_transport(&frame[..transport], &layers) != Ok(true) || !ported);
}

/// Takes an offset (two big-endian `u16`: start and offset) and a frame from `data`. Checks sums,
/// updates and completion against each other and against the definition.
pub fn checksum(data: &[u8]) {
    let Some((position, frame)) = data.split_first_chunk::<4>() else { return };
    let [a, b, c, d] = *position;
    let (start, offset) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    assert_eq!(Sum::new().add_bytes(frame).fold(), reference_sum(frame));

    check_update(frame, start, offset);
    check_only_field_changes(frame, start, offset);
    let Ok(layers) = Layers::parse(frame) else { return };
    check_fill(frame, &layers);
    if let Some(partial) = checksum::find_partial(frame) {
        check_completed(frame, partial);
    }
    let mut uncompleted = frame.to_vec();
    if let Ok(partial) = checksum::make_partial(&mut uncompleted, &layers) {
        assert_eq!(layers.fragment, Fragment::None);
        if checksum::verify_transport(&uncompleted, &layers) == Ok(false) {
            assert_eq!(checksum::find_partial(&uncompleted), Some(partial));
            check_completed(&uncompleted, partial);
        }
    }
}

/// Returns the sum as RFC 1071 clause 1 defines it, one 16-bit word at a time.
fn reference_sum(data: &[u8]) -> u16 {
    data.chunks(2).fold(0, |sum: u16, pair| {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

fn check_update(frame: &[u8], position: u16, value: u16) {
    let position = usize::from(position) & !1;
    let mut changed = frame.to_vec();
    let Some(field) = changed.get_mut(position..).and_then(|rest| rest.first_chunk_mut::<2>())
    else {
        return;
    };
    let old = u16::from_be_bytes(*field);
    *field = value.to_be_bytes();
    if changed.iter().all(|&byte| byte == 0) {
        return; // the one case that RFC 1624 leaves open
    }
    let before = checksum::checksum(frame);
    let after = checksum::checksum(&changed);
    assert_eq!(checksum::update_u16(before, old, value), after);
    assert_eq!(checksum::update(before, &frame[position..], &changed[position..]), after);
    assert_eq!(Difference::of_u16(old, value).update(before), after);
    if let (Some(old), Some(new)) =
        (frame[position..].first_chunk(), changed[position..].first_chunk())
    {
        let [old, new] = [*old, *new].map(u32::from_be_bytes);
        assert_eq!(Difference::of_u32(old, new).update(before), after);
    }
}

fn check_only_field_changes(frame: &[u8], start: u16, offset: u16) {
    let mut completed = frame.to_vec();
    let done = checksum::complete_partial(&mut completed, start, offset);
    let field = usize::from(start) + usize::from(offset);
    for (index, (before, after)) in frame.iter().zip(&completed).enumerate() {
        let may_change = done.is_ok() && (index == field || index == field + 1);
        assert!(before == after || may_change, "byte {index} changed");
    }
}

fn check_fill(frame: &[u8], layers: &Layers) {
    let mut filled = frame.to_vec();
    if checksum::fill_transport(&mut filled, layers).is_ok() {
        assert_eq!(checksum::verify_transport(&filled, layers), Ok(true));
        assert_eq!(checksum::find_partial(&filled), None);
    } else {
        assert_eq!(filled, frame);
    }
    let filled_header = checksum::fill_ipv4_header(&mut filled, layers);
    assert_eq!(filled_header.is_ok(), layers.is_ipv4());
    if filled_header.is_ok() {
        assert_eq!(checksum::verify_ipv4_header(&filled, layers), Ok(true));
    }
}

fn check_completed(frame: &[u8], partial: checksum::Partial) {
    let mut completed = frame.to_vec();
    let done = checksum::complete_partial(&mut completed, partial.start, partial.offset);
    assert_eq!(done, Ok(()));
    let layers = Layers::parse(&completed).expect("it parsed before");
    assert_eq!(checksum::verify_transport(&completed, &layers), Ok(true));
    let mut filled = frame.to_vec();
    assert_eq!(checksum::fill_transport(&mut filled, &layers), Ok(()));
    assert_eq!(filled, completed);
    assert_eq!(checksum::find_partial(&completed), None);
}

/// Parses `bytes` as a GTP-U message and its payload as IP.
pub fn gtpu(bytes: &[u8]) {
    let Ok(message) = GtpMessage::parse(bytes) else { return };
    let (header_length, end) = (usize::from(message.header_length), message.end as usize);
    assert!(8 <= header_length && header_length <= end && end <= bytes.len(), "{message:?}");
    assert_eq!(GtpMessage::parse(&bytes[..end]), Ok(message));
    assert!(GtpMessage::parse(&bytes[..end - 1]).is_err());
    assert!(message.pdu_session.is_none_or(|session| session.qfi < 64 && session.pdu_type < 16));
    assert!(message.extensions > 0 || message.pdu_session.is_none());
    let payload = message.payload(bytes).expect("within the bytes");
    assert_eq!(header_length + payload.len(), end);
    check_layers(payload, Layers::parse_ip(payload, 0).ok());
    check_layers(bytes, Layers::parse_ip(bytes, message.header_length).ok());
}
