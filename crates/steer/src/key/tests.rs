use proptest::prelude::*;

use super::*;

/// Flow, and the shape of one frame of it.
#[derive(Clone, Debug)]
struct Shape {
    tags: usize,
    source: [u8; 16],
    destination: [u8; 16],
    ports: [u16; 2],
    protocol: u8,
    v6: bool,
    options: usize,
    fragment: bool,
    payload: Vec<u8>,
}

impl Shape {
    fn reversed(&self) -> Self {
        let [source, destination] = self.ports;
        Self {
            source: self.destination,
            destination: self.source,
            ports: [destination, source],
            ..self.clone()
        }
    }

    fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0x02; 12];
        (0..self.tags).for_each(|tag| frame.extend([0x81, 0x00, 0, tag as u8]));
        frame.extend(if self.v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        if self.v6 {
            self.ipv6(&mut frame)
        } else {
            self.ipv4(&mut frame)
        }
        self.ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
        frame.extend([0; 4]);
        frame.extend(&self.payload);
        frame
    }

    fn ipv4(&self, frame: &mut Vec<u8>) {
        let mut header = vec![0x45 + self.options as u8, 0, 0, 0, 0, 0, 0x40, 0, 64, self.protocol];
        if self.fragment {
            header[6] = 0x20;
        }
        header.extend([0, 0]);
        header.extend(&self.source[..4]);
        header.extend(&self.destination[..4]);
        header.extend(vec![1; 4 * self.options]);
        frame.extend(header);
    }

    fn ipv6(&self, frame: &mut Vec<u8>) {
        let mut chain = vec![60; self.options];
        chain.extend(self.fragment.then_some(FRAGMENT));
        chain.push(self.protocol);
        frame.extend([0x60, 0, 0, 0, 0, 0, chain[0], 64]);
        frame.extend(self.source);
        frame.extend(self.destination);
        for next in &chain[1..] {
            frame.extend([*next, 0, 0, 1, 0, 0, 0, 9]);
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let ends = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<[u16; 2]>());
    let protocol = prop_oneof![Just(TCP), Just(UDP), Just(SCTP), Just(1), Just(58), Just(47)];
    let rest = (0..3_usize, any::<bool>(), 0..5_usize, prop::collection::vec(any::<u8>(), 0..40));
    (ends, protocol, rest).prop_map(|((source, destination, ports), protocol, rest)| {
        let (tags, v6, options, payload) = rest;
        Shape { tags, source, destination, ports, protocol, v6, options, fragment: false, payload }
    })
}

fn keys() -> Vec<LaneKey> {
    let fields = [
        KeyField::GtpTeid,
        KeyField::SourceAddress,
        KeyField::DestinationAddress,
        KeyField::Bytes { offset: 30, length: 16 },
        KeyField::Bytes { offset: u16::MAX, length: u8::MAX },
    ];
    let by = [None, Some(0), Some(5), Some(u32::MAX)];
    let all = fields
        .into_iter()
        .flat_map(|field| by.into_iter().map(move |shard_at| LaneKey::Field { field, shard_at }));
    all.chain([LaneKey::Flow]).collect()
}

proptest! {
    #[test]
    fn every_frame_has_an_answer(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        keys().iter().for_each(|key| { let _ = key.of(&frame); });
    }

    #[test]
    fn every_beginning_of_a_frame_has_an_answer(shape in shape()) {
        let frame = shape.frame();
        for length in 0..=frame.len() {
            keys().iter().for_each(|key| { let _ = key.of(&frame[..length]); });
        }
    }

    #[test]
    fn both_directions_of_a_flow_have_one_shard(shape in shape()) {
        let there = LaneKey::Flow.of(&shape.frame());
        prop_assert!(matches!(there, Keyed::Shard(_)));
        prop_assert_eq!(there, LaneKey::Flow.of(&shape.reversed().frame()));
    }

    /// Tags, options and payload are not part of a flow.
    #[test]
    fn what_is_no_key_does_not_matter(
        shape in shape(), tags in 0..3_usize, options in 0..5_usize, byte: u8,
    ) {
        let other = Shape { tags, options, payload: vec![byte; 9], ..shape.clone() };
        prop_assert_eq!(LaneKey::Flow.of(&shape.frame()), LaneKey::Flow.of(&other.frame()));
        let source = LaneKey::Field { field: KeyField::SourceAddress, shard_at: None };
        prop_assert_eq!(source.of(&shape.frame()), source.of(&other.frame()));
    }

    #[test]
    fn fragments_have_addresses_and_nothing_else(shape in shape()) {
        let fragment = Shape { fragment: true, ..shape.clone() }.frame();
        for key in keys() {
            let by_address = matches!(key, LaneKey::Field {
                field: KeyField::SourceAddress | KeyField::DestinationAddress, ..
            });
            match by_address {
                true => prop_assert_eq!(key.of(&fragment), key.of(&shape.frame())),
                false => prop_assert_eq!(key.of(&fragment), Keyed::Fragment),
            }
        }
    }

    #[test]
    fn a_shard_in_a_teid_is_found(shape in shape(), teid: u32, bit in 0..=24_u32) {
        let mut payload = vec![0x34, 255, 0, 0];
        payload.extend(teid.to_be_bytes());
        let shape = Shape { protocol: UDP, ports: [9, GTP_U_PORT], payload, ..shape };
        let key = |shard_at| LaneKey::Field { field: KeyField::GtpTeid, shard_at };
        prop_assert_eq!(key(Some(bit)).of(&shape.frame()), Keyed::Shard((teid >> bit) as u8));
        // Without a shard in the field, only its value counts.
        let other = Shape { source: [7; 16], v6: !shape.v6, tags: 1, ..shape.clone() };
        prop_assert_eq!(key(None).of(&shape.frame()), key(None).of(&other.frame()));
        let other = Shape { ports: [9, GTP_U_PORT + 1], ..shape };
        prop_assert_eq!(key(None).of(&other.frame()), Keyed::None);
    }

    #[test]
    fn bytes_are_a_number(frame in prop::collection::vec(any::<u8>(), 40..60), at in 16..24_u16) {
        let field = KeyField::Bytes { offset: at, length: 3 };
        let expected = match is_fragment(&frame) {
            true => Keyed::Fragment,
            false => Keyed::Shard(frame[usize::from(at) + 1]),
        };
        prop_assert_eq!(LaneKey::Field { field, shard_at: Some(8) }.of(&frame), expected);
    }
}

/// Checks that no shard has more than twice its share, however similar the flows are.
#[test]
fn shards_are_even() {
    let shape = |number: u32, v6| {
        let [a, b, c, d] = number.to_be_bytes();
        let mut source = [0; 16];
        source[..4].copy_from_slice(&[10, 0, c, d]);
        source[12..].copy_from_slice(&[0, 0, a, b]);
        let destination = [192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let (tags, options, fragment, payload) = (0, 0, false, Vec::new());
        let (ports, protocol) = ([(number >> 10) as u16, 53], UDP);
        Shape { tags, source, destination, ports, protocol, v6, options, fragment, payload }
    };
    let source = LaneKey::Field { field: KeyField::SourceAddress, shard_at: None };
    for (key, v6) in
        [(LaneKey::Flow, false), (LaneKey::Flow, true), (source, false), (source, true)]
    {
        let mut counts = [0_u32; 256];
        for number in 0..65_536 {
            let Keyed::Shard(shard) = key.of(&shape(number, v6).frame()) else {
                panic!("{number}")
            };
            counts[usize::from(shard)] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!((128..=256).contains(least) && (256..=512).contains(most), "{least} to {most}");
    }
}

#[test]
fn what_is_not_ip_has_no_flow() {
    let arp = [&[0xff; 12][..], &[0x08, 0x06], &[0; 46]].concat();
    assert_eq!(LaneKey::Flow.of(&arp), Keyed::None);
    let bytes =
        LaneKey::Field { field: KeyField::Bytes { offset: 12, length: 2 }, shard_at: Some(0) };
    assert_eq!(bytes.of(&arp), Keyed::Shard(6), "bytes are there in any frame");
}
