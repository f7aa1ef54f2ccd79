use fastlane_wire::checksum::{self, Sum, update, update_u16, update_u32};
use fastlane_wire::{Fragment, IpProtocol, Layers, fuzz};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::built::{Extension, Frame, reference_sum};

fn extension() -> impl Strategy<Value = Extension> {
    let options = prop_oneof![Just(IpProtocol::HOP_BY_HOP), Just(IpProtocol::DESTINATION_OPTIONS)];
    prop_oneof![
        (options, 0..4u8).prop_map(|(protocol, units)| Extension::Options { protocol, units }),
        (0..4u8).prop_map(|units| Extension::Routing { units }),
        Just(Extension::Atomic),
        (0..6u8).prop_map(|words| Extension::Authentication { words }),
    ]
}

prop_compose! {
    fn frame()(
        vlans in vec(any::<u16>(), 0..3),
        ipv6 in any::<bool>(),
        options in 0..11usize,
        extensions in vec(extension(), 0..8),
        fragment in prop::option::of((0..2000u16, any::<bool>())),
        tcp in any::<bool>(),
        ports in any::<(u16, u16)>(),
        payload in vec(any::<u8>(), 0..200),
        padding in vec(any::<u8>(), 0..20),
    ) -> Frame {
        let extensions = if ipv6 { extensions } else { Vec::new() };
        let options = if ipv6 { 0 } else { options * 4 };
        Frame { vlans, ipv6, options, extensions, fragment, tcp, ports, payload, padding }
    }
}

/// Generates frames with some bytes overwritten and the end cut off: almost valid, but wrong.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (frame(), damage, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(frame, damage, cut, whole)| {
            let mut bytes = frame.build();
            for (offset, value) in damage {
                let offset = offset.index(bytes.len());
                bytes[offset] = value;
            }
            if !whole {
                bytes.truncate(cut.index(bytes.len()));
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2000)
    })]

    #[test]
    fn what_was_built_is_found(frame in frame()) {
        let bytes = frame.build();
        let layers = Layers::parse(&bytes).unwrap();
        prop_assert_eq!(usize::from(layers.network), frame.network());
        prop_assert_eq!(usize::from(layers.vlans), frame.vlans.len());
        prop_assert_eq!((layers.is_ipv6(), layers.is_ipv4()), (frame.ipv6, !frame.ipv6));
        prop_assert_eq!(layers.end as usize, bytes.len() - frame.padding.len());
        prop_assert_eq!(layers.protocol, frame.protocol());
        prop_assert!(!layers.truncated && !layers.routed);
        let header = if frame.tcp { 20 } else { 8 };
        prop_assert_eq!(
            usize::from(layers.transport) + header + frame.payload.len(),
            layers.end as usize
        );
        let fragment = match frame.fragment {
            None | Some((0, false)) => Fragment::None,
            Some((0, true)) => Fragment::First,
            Some(_) => Fragment::Later,
        };
        prop_assert_eq!(layers.fragment, fragment);
        if fragment == Fragment::Later {
            prop_assert_eq!(layers.ports(&bytes), None);
            prop_assert_eq!(layers.payload(&bytes), None);
        } else {
            prop_assert_eq!(layers.ports(&bytes), Some(frame.ports));
            prop_assert_eq!(layers.payload(&bytes), Some(frame.payload.as_slice()));
        }
    }

    #[test]
    fn layers_hold_their_promises(bytes in damaged()) {
        fuzz::layers(&bytes);
    }

    #[test]
    fn layers_hold_their_promises_on_noise(bytes in vec(any::<u8>(), 0..200)) {
        fuzz::layers(&bytes);
    }

    #[test]
    fn checksums_agree(bytes in damaged(), start in 0..120u16, offset in 0..20u16) {
        let position = [start.to_be_bytes(), offset.to_be_bytes()].concat();
        fuzz::checksum(&[position, bytes].concat());
    }

    #[test]
    fn gtpu_holds_its_promises(
        flags in 0x30..0x38u8,
        optional in any::<[u8; 3]>(),
        extensions in vec((0..4u8, any::<u8>(), any::<[u8; 10]>()), 0..10),
        payload in vec(any::<u8>(), 0..100),
        cut in 0..4usize,
    ) {
        let mut rest = optional.to_vec();
        for (units, extension_type, content) in &extensions {
            rest.extend([*extension_type, *units]);
            rest.extend(&content[..(usize::from(*units) * 4).saturating_sub(2)]);
        }
        rest.push(0);
        rest.extend(payload);
        let length = ((rest.len() - cut) as u16).to_be_bytes();
        fuzz::gtpu(&[&[flags, 255, length[0], length[1], 0, 0, 0, 1], rest.as_slice()].concat());
    }

    #[test]
    fn the_sum_is_the_definition(
        data in vec(any::<u8>(), 0..2000),
        at in any::<prop::sample::Index>(),
    ) {
        prop_assert_eq!(Sum::new().add_bytes(&data).fold(), reference_sum(&data));
        let even = at.index(data.len() + 1) & !1;
        let (first, second) = data.split_at(even);
        let sum = Sum::new().add_bytes(first).add_bytes(second);
        prop_assert_eq!(sum.fold(), reference_sum(&data));
    }

    #[test]
    fn a_change_gives_what_a_full_sum_gives(
        mut data in vec(any::<u8>(), 8..100),
        offset in any::<prop::sample::Index>(),
        value in prop_oneof![
            any::<u32>(), Just(0), Just(u32::MAX), Just(0xffff), Just(0xffff_0000)
        ],
    ) {
        data[0] = 0x45; // no packet is all zero
        let offset = (4 + offset.index(data.len() - 7)) & !1;
        let before = checksum::checksum(&data);
        let mut old = [0; 4];
        old.copy_from_slice(&data[offset..offset + 4]);
        let new = value.to_be_bytes();
        data[offset..offset + 4].copy_from_slice(&new);
        let after = checksum::checksum(&data);
        prop_assert_eq!(update_u32(before, u32::from_be_bytes(old), value), after);
        prop_assert_eq!(update(before, &old, &new), after);
        let halves = update_u16(before, u16::from_be_bytes([old[0], old[1]]), (value >> 16) as u16);
        let halves = update_u16(halves, u16::from_be_bytes([old[2], old[3]]), value as u16);
        prop_assert_eq!(halves, after);
    }

    #[test]
    fn built_checksums_are_right_and_come_back_from_partial(mut frame in frame()) {
        frame.fragment = None;
        let bytes = frame.build();
        let layers = Layers::parse(&bytes).unwrap();
        prop_assert_eq!(checksum::verify_transport(&bytes, &layers), Ok(true));
        prop_assert_eq!(checksum::find_partial(&bytes), None);
        let mut partial_bytes = bytes.clone();
        let partial = checksum::make_partial(&mut partial_bytes, &layers).unwrap();
        let field = usize::from(partial.start + partial.offset);
        let length = layers.end as usize - usize::from(layers.transport);
        let pseudo = reference_sum(&frame.pseudo_header(length));
        prop_assert_eq!(&partial_bytes[field..field + 2], &pseudo.to_be_bytes());
        if partial_bytes != bytes {
            prop_assert_eq!(checksum::find_partial(&partial_bytes), Some(partial));
        }
        checksum::complete_partial(&mut partial_bytes, partial.start, partial.offset).unwrap();
        prop_assert_eq!(partial_bytes, bytes);
    }
}
