use fastlane_wire::checksum::{
    self, ChecksumError, Partial, Sum, complete_partial, fill_ipv4_header, fill_transport,
    find_partial, make_partial, update, update_u16, update_u32, verify_ipv4_header,
    verify_transport,
};
use fastlane_wire::{Layers, Udp, header};

use crate::built::{Extension, Frame};
use crate::real;

const COMPLETE: [&[u8]; 7] = [
    real::UDP4,
    real::UDP6,
    real::TCP4,
    real::TCP6,
    real::PING4,
    real::NEIGHBOR_SOLICITATION,
    real::MULTICAST_REPORT,
];
const PARTIAL: [(&[u8], Partial); 4] = [
    (real::UDP4_PARTIAL, Partial { start: 34, offset: 6 }),
    (real::UDP6_PARTIAL, Partial { start: 54, offset: 6 }),
    (real::TCP4_PARTIAL, Partial { start: 34, offset: 16 }),
    (real::TCP6_PARTIAL, Partial { start: 54, offset: 16 }),
];

#[test]
fn a_header_is_added_as_bytes_are() {
    let bytes: [u8; 22] = std::array::from_fn(|at| (at * 37 + 200) as u8);
    let start = Sum::new().add_u32(0xffff_fffe);
    assert_eq!(start.add_header(&bytes).fold(), start.add_bytes(&bytes).fold());
    assert_eq!(Sum::new().add_header(&[0xff; 20]).fold(), 0xffff);
}

#[test]
fn the_example_of_rfc_1071() {
    let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::new().add_bytes(&data).fold(), 0xddf2);
    assert_eq!(checksum::checksum(&data), 0x220d);
}

#[test]
fn the_example_of_rfc_1624() {
    assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn sums_of_nothing_and_of_one_byte() {
    assert_eq!(checksum::checksum(&[]), 0xffff);
    assert_eq!(checksum::checksum(&[0xab]), !0xab00);
    assert_eq!(Sum::new().add_bytes(&[0xff; 4096]).fold(), 0xffff);
}

#[test]
fn what_linux_computed_is_right_and_comes_out_again() {
    for frame in COMPLETE {
        let layers = Layers::parse(frame).unwrap();
        assert_eq!(verify_transport(frame, &layers), Ok(true));
        assert_eq!(find_partial(frame), None);
        let mut again = frame.to_vec();
        fill_transport(&mut again, &layers).unwrap();
        assert_eq!(again, frame);
        let field = usize::from(layers.transport) + 2;
        again[field] ^= 0x40;
        assert_eq!(verify_transport(&again, &layers), Ok(false));
        if layers.is_ipv4() {
            assert_eq!(verify_ipv4_header(frame, &layers), Ok(true));
            again[14 + 8] -= 1; // one hop
            assert_eq!(verify_ipv4_header(&again, &layers), Ok(false));
            fill_ipv4_header(&mut again, &layers).unwrap();
            assert_eq!(verify_ipv4_header(&again, &layers), Ok(true));
        }
    }
}

#[test]
fn what_linux_left_partial_is_found_and_completed() {
    for (frame, partial) in PARTIAL {
        assert_eq!(find_partial(frame), Some(partial));
        let layers = Layers::parse(frame).unwrap();
        assert_eq!(verify_transport(frame, &layers), Ok(false));
        let mut completed = frame.to_vec();
        complete_partial(&mut completed, partial.start, partial.offset).unwrap();
        assert_eq!(verify_transport(&completed, &layers), Ok(true));
        assert_eq!(find_partial(&completed), None);
        let mut uncompleted = completed.clone();
        assert_eq!(make_partial(&mut uncompleted, &layers), Ok(partial));
        assert_eq!(uncompleted, frame);
    }
    // The same datagram was sent both ways, but for its identification.
    let mut completed = real::UDP4_PARTIAL.to_vec();
    complete_partial(&mut completed, 34, 6).unwrap();
    assert_eq!(completed[34..], real::UDP4[34..]);
    let mut completed = real::UDP6_PARTIAL.to_vec();
    complete_partial(&mut completed, 54, 6).unwrap();
    assert_eq!(completed, real::UDP6);
}

#[test]
fn partial_ones_are_found_behind_vlan_tags_and_before_padding() {
    for (frame, partial) in PARTIAL {
        let tags = [0x88, 0xa8, 0, 5, 0x81, 0, 0, 7];
        let padding = [0xaa; 9];
        let tagged = [&frame[..12], &tags, &frame[12..], &padding].concat();
        let start = partial.start + 8;
        assert_eq!(find_partial(&tagged), Some(Partial { start, ..partial }));
        let mut completed = tagged.clone();
        complete_partial(&mut completed, start, partial.offset).unwrap();
        let mut plain = frame.to_vec();
        complete_partial(&mut plain, partial.start, partial.offset).unwrap();
        assert_eq!(completed[22..completed.len() - 9], plain[14..]);
        assert_eq!(completed[completed.len() - 9..], padding);
    }
}

#[test]
fn fragments_and_hidden_destinations_are_left_alone() {
    let fragment = Frame { fragment: Some((0, true)), ..Frame::default() }.build();
    let mut routed =
        Frame { ipv6: true, extensions: vec![Extension::Routing { units: 2 }], ..Frame::default() }
            .build();
    routed[14 + 40 + 3] = 1;
    let built = Frame::default().build();
    let cut = built[..built.len() - 1].to_vec();
    let mut length = built.clone();
    length[14 + 20 + 5] += 1;
    let mut other = built;
    other[23] = 47;
    for (mut frame, error) in [
        (fragment, ChecksumError::Fragment),
        (routed, ChecksumError::Routed),
        (cut, ChecksumError::Truncated),
        (length, ChecksumError::Length),
        (other, ChecksumError::NotCovered),
    ] {
        let before = frame.clone();
        let layers = Layers::parse(&frame).unwrap();
        assert_eq!(verify_transport(&frame, &layers), Err(error));
        assert_eq!(fill_transport(&mut frame, &layers), Err(error));
        assert_eq!(make_partial(&mut frame, &layers), Err(error));
        assert_eq!(find_partial(&frame), None);
        assert_eq!(frame, before);
    }
}

#[test]
fn a_place_outside_the_packet_is_refused() {
    let mut frame = real::UDP4_PARTIAL.to_vec();
    frame.extend([0; 9]); // padding is not the packet
    let before = frame.clone();
    let out_of_range = Err(ChecksumError::OutOfRange);
    for (start, offset) in
        [(34, 16), (34, u16::MAX), (u16::MAX, 0), (u16::MAX, u16::MAX), (51, 0), (52, 0), (50, 0)]
    {
        assert_eq!(complete_partial(&mut frame, start, offset), out_of_range, "{start}+{offset}");
    }
    assert_eq!(complete_partial(&mut frame[..50], 34, 6), Err(ChecksumError::Truncated));
    assert_eq!(complete_partial(&mut [], 0, 0), out_of_range);
    assert_eq!(frame, before);
}

#[test]
fn what_does_not_parse_is_summed_to_its_end() {
    let mut frame = real::UDP4_PARTIAL.to_vec();
    frame[14] = 0x55; // no such version
    assert!(Layers::parse(&frame).is_err());
    complete_partial(&mut frame, 34, 6).unwrap();
    assert_eq!(frame[34..], real::UDP4[34..]);
}

/// Returns the payload word that makes the sum of a frame's UDP packet equal 0xffff.
fn with_sum_of_all_ones() -> Vec<u8> {
    let mut frame = Frame { payload: vec![0; 8], ..Frame::default() }.build();
    let checksum = header::<Udp>(&frame, 34).unwrap().checksum.get();
    frame[42..44].copy_from_slice(&checksum.to_be_bytes());
    frame
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    let mut frame = with_sum_of_all_ones();
    let layers = Layers::parse(&frame).unwrap();
    fill_transport(&mut frame, &layers).unwrap();
    assert_eq!(header::<Udp>(&frame, 34).unwrap().checksum.get(), 0xffff);
    assert_eq!(verify_transport(&frame, &layers), Ok(true));
    let partial = make_partial(&mut frame, &layers).unwrap();
    complete_partial(&mut frame, partial.start, partial.offset).unwrap();
    assert_eq!(header::<Udp>(&frame, 34).unwrap().checksum.get(), 0xffff);
}

#[test]
fn udp_without_a_checksum_is_right_over_ipv4_only() {
    for ipv6 in [false, true] {
        let mut frame = Frame { ipv6, ..Frame::default() }.build();
        let layers = Layers::parse(&frame).unwrap();
        let field = usize::from(layers.transport) + 6;
        frame[field..field + 2].fill(0);
        assert_eq!(verify_transport(&frame, &layers), Ok(!ipv6));
        assert_eq!(find_partial(&frame), None);
    }
}

#[test]
fn a_right_checksum_that_looks_partial_is_left_alone() {
    // A payload word chosen so that the right checksum is the sum of the pseudo header itself.
    let mut frame = Frame { payload: vec![0; 8], ..Frame::default() }.build();
    let layers = Layers::parse(&frame).unwrap();
    make_partial(&mut frame, &layers).unwrap();
    let pseudo = header::<Udp>(&frame, 34).unwrap().checksum.get();
    fill_transport(&mut frame, &layers).unwrap();
    let right = header::<Udp>(&frame, 34).unwrap().checksum.get();
    // right - word = pseudo, in ones' complement.
    let word = Sum::new().add_u16(right).add_u16(!pseudo).fold();
    frame[42..44].copy_from_slice(&word.to_be_bytes());
    fill_transport(&mut frame, &layers).unwrap();
    assert_eq!(header::<Udp>(&frame, 34).unwrap().checksum.get(), pseudo);
    assert_eq!(find_partial(&frame), None);
}

#[test]
fn addresses_are_changed_without_a_full_sum() {
    let layers = Layers::parse(real::UDP4).unwrap();
    let mut frame = real::UDP4.to_vec();
    let (old, new) = ([10, 9, 0, 1], [203, 0, 113, 77]);
    frame[26..30].copy_from_slice(&new);
    let changed = update_u32(0xc16e, u32::from_be_bytes(old), u32::from_be_bytes(new));
    assert_eq!(update(0xc16e, &old, &new), changed);
    fill_ipv4_header(&mut frame, &layers).unwrap();
    assert_eq!(frame[24..26], changed.to_be_bytes());
    let changed = update(0x054b, &old, &new);
    fill_transport(&mut frame, &layers).unwrap();
    assert_eq!(frame[40..42], changed.to_be_bytes());
}
