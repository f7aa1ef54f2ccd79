//! Properties that hold for all octets.

use fastlane_pfcp::{Cause, Header, IeType, Message, MessageType, Writer, fuzz};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use crate::samples;

/// Elements that extend to their end, or whose additional octets have a meaning.
const OPEN_ENDED: [IeType; 15] = [
    IeType::NETWORK_INSTANCE,
    IeType::APPLICATION_ID,
    IeType::APPLICATION_INSTANCE_ID,
    IeType::ACTIVATE_PREDEFINED_RULES,
    IeType::DEACTIVATE_PREDEFINED_RULES,
    IeType::FRAMED_ROUTE,
    IeType::FRAMED_IPV6_ROUTE,
    IeType::APN_DNN,
    IeType::PREDEFINED_RULES_NAME,
    IeType::DATA_NETWORK_ACCESS_IDENTIFIER,
    IeType::NODE_ID,
    IeType::SMF_SET_ID,
    IeType::USER_PLANE_IP_RESOURCE_INFORMATION,
    IeType::FQ_CSID,
    IeType::DL_BUFFERING_SUGGESTED_PACKET_COUNT,
];

fn soak() -> bool {
    std::env::var_os("FASTLANE_SOAK").is_some()
}

fn cases(few: u32, many: u32) -> Config {
    Config { cases: if soak() { many } else { few }, ..Config::default() }
}

/// Creates a runner: soaks use new random values each time, short runs always the same ones.
fn runner() -> TestRunner {
    if soak() { TestRunner::default() } else { TestRunner::deterministic() }
}

/// Generates octets with many small numbers, so that flags and lengths often fit.
fn octets(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![4 => any::<u8>(), 3 => 0..4_u8, 1 => 4..32_u8], 0..most)
}

fn typed() -> impl Iterator<Item = IeType> {
    (0..1024).map(IeType).filter(|ie_type| fuzz::again(*ie_type, &[]).is_some())
}

#[test]
fn every_element_is_written_as_it_was_read() {
    let mut types = 0;
    for ie_type in typed() {
        let mut decoded = 0;
        let mut runner = runner();
        for _ in 0..cases(400, 100_000).cases {
            let value = octets(96).new_tree(&mut runner).unwrap().current();
            // The comparison is in there; what is written once does not change any more.
            match fuzz::again(ie_type, &value) {
                Some(Ok(copy)) => {
                    decoded += 1;
                    assert_eq!(fuzz::again(ie_type, &copy), Some(Ok(copy)), "{ie_type}");
                }
                Some(Err(cause)) => assert!(
                    [Cause::INVALID_LENGTH, Cause::MANDATORY_IE_INCORRECT].contains(&cause),
                    "{ie_type}: {cause}"
                ),
                None => unreachable!("{ie_type} has fields"),
            }
        }
        assert!(decoded >= 3, "of {ie_type} only {decoded} values meant anything");
        types += 1;
    }
    assert!(types >= 120, "only {types} types have fields");
}

#[test]
fn octets_that_releases_to_come_add_are_ignored() {
    let is_flags = |ie_type, value: &[u8]| {
        // Additional octets of bit flags are bit flags too.
        fuzz::again(ie_type, value).is_some_and(|copy| copy.is_ok_and(|c| c.len() > value.len()))
            || fuzz::again(ie_type, &[0, 0, 0, 0, 0, 0, 0, 0x80])
                .is_some_and(|copy| copy.is_ok_and(|copy| copy.last() == Some(&0x80)))
    };
    let mut compared = 0;
    for ie_type in typed().filter(|ie_type| !OPEN_ENDED.contains(ie_type)) {
        let mut runner = runner();
        for _ in 0..cases(200, 20_000).cases {
            let value = octets(64).new_tree(&mut runner).unwrap().current();
            let Some(Ok(mut canonical)) = fuzz::again(ie_type, &value) else { continue };
            if is_flags(ie_type, &canonical) || ie_type == IeType::OUTER_HEADER_REMOVAL {
                continue;
            }
            let before = fuzz::again(ie_type, &canonical);
            canonical.extend_from_slice(&[0xff, 0, 7]);
            assert_eq!(fuzz::again(ie_type, &canonical), before, "{ie_type}");
            compared += 1;
        }
    }
    assert!(compared > 5000, "{compared} values were compared");
}

#[test]
fn whatever_is_cut_short_is_an_error() {
    for (name, datagram) in samples::all() {
        for length in 0..datagram.len() {
            let cut = &datagram[..length];
            assert!(Message::parse(cut).is_err(), "{name} cut to {length}");
            fuzz::datagram(cut);
            // The header's length is that of the shortened datagram.
            if let Some(body) = u16::try_from(length).ok().and_then(|l| l.checked_sub(4)) {
                let mut cut = cut.to_vec();
                cut[2..4].copy_from_slice(&body.to_be_bytes());
                fuzz::datagram(&cut);
            }
        }
    }
}

#[test]
fn any_element_in_any_message_does_no_harm() {
    let mut runner = TestRunner::new(cases(500, 200_000));
    runner
        .run(&(0..330_u16, octets(64)), |(ie_type, value)| {
            fuzz::element(IeType(ie_type), &value);
            Ok(())
        })
        .unwrap();
}

proptest! {
    #![proptest_config(cases(1_500, 4_000_000))]

    #[test]
    fn any_octets_do_no_harm(datagram in octets(300)) {
        fuzz::datagram(&datagram);
    }

    #[test]
    fn octets_with_a_good_header_do_no_harm(
        kind in any::<Index>(), sequence in 0..1_u32 << 24, body in octets(300),
    ) {
        let known: Vec<_> = (0..=255).map(MessageType).filter(|t| t.name().is_some()).collect();
        let message_type = *kind.get(&known);
        let seid = message_type.is_session().then_some(u64::MAX);
        let header = Header { seid, ..Header::node(message_type, sequence) };
        let mut datagram = Vec::new();
        Writer::new(&mut datagram).message(header, |_| {});
        datagram.extend_from_slice(&body);
        let length = u16::try_from(datagram.len() - 4).unwrap();
        datagram[2..4].copy_from_slice(&length.to_be_bytes());
        let (message, rest) = Message::parse(&datagram).unwrap();
        prop_assert_eq!(message.header, header);
        prop_assert!(message.body == body && rest.is_empty());
        fuzz::datagram(&datagram);
    }

    #[test]
    fn changed_messages_do_no_harm(
        which in any::<Index>(),
        changes in vec((any::<Index>(), 0..5_u8, any::<u8>()), 1..8),
    ) {
        let (_, mut datagram) = which.get(&samples::all()).clone();
        for (offset, kind, octet) in changes {
            if datagram.is_empty() {
                break;
            }
            let at = offset.index(datagram.len());
            match kind {
                0 => datagram[at] = octet,
                1 => datagram[at] ^= 1 << (octet % 8),
                2 => { datagram.remove(at); }
                3 => datagram.insert(at, octet),
                _ => datagram.truncate(at),
            }
        }
        fuzz::datagram(&datagram);
    }
}

#[test]
fn headers_are_written_as_they_were_read() {
    let strategy = (any::<Index>(), any::<u64>(), 0..1_u32 << 24, any::<Option<u8>>());
    TestRunner::new(cases(500, 100_000))
        .run(&(strategy, any::<bool>()), |((kind, seid, sequence, priority), follow_on)| {
            let known: Vec<_> = (0..=255).map(MessageType).filter(|t| t.name().is_some()).collect();
            let message_type = *kind.get(&known);
            let seid = message_type.is_session().then_some(seid);
            let priority = priority.map(|priority| priority & 15);
            let header = Header { message_type, seid, sequence, priority, follow_on };
            let mut datagram = Vec::new();
            Writer::new(&mut datagram).message(header, |_| {});
            let end = datagram.len();
            datagram.extend_from_slice(&[1, 2, 3]);
            let (message, rest) = Message::parse(&datagram).unwrap();
            assert_eq!(message.header, header);
            assert_eq!(rest, if follow_on { &datagram[end..] } else { &[] });
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_does_not_fit_is_left_out_and_said() {
    let mut datagram = Vec::new();
    let mut writer = Writer::new(&mut datagram);
    let large = vec![7; 40_000];
    writer.message(Header::node(MessageType::HEARTBEAT_REQUEST, 1), |w| {
        w.raw(IeType(0x7000), &large);
        w.group(IeType::CREATE_PDR, |w| {
            w.raw(IeType(0x7001), &large);
            w.raw(IeType(0x7002), &large);
        });
        w.raw(IeType(0x7003), &[1]);
        assert_eq!(w.room(), 65_535 - 4 - 40_004 - 5);
    });
    assert!(writer.is_cut());
    let (message, _) = Message::parse(&datagram).unwrap();
    let types: Vec<_> = message.ies().map(|ie| ie.unwrap().ie_type.0).collect();
    assert_eq!(types, [0x7000, 0x7003]);
}
