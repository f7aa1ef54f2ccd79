use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::wire::checksum::{verify_ipv4_header, verify_transport};
use crate::wire::{Layers, header};

fn settings(text: &str) -> Settings {
    serde_json::from_str(text).unwrap()
}

fn mark(sequence: u32) -> Mark {
    Mark { run: 1, flow: 2, sequence, sent: u64::from(sequence) * 77, measured: true }
}

fn frame(plan: &Plan, template: usize, mark: Mark) -> Vec<u8> {
    let mut frame = vec![0xee; plan.length(template)];
    plan.write(template, mark, &mut frame);
    frame
}

const V4: &str = r#"{"port": "p", "frame-bytes": [60, 61, 1514]}"#;
const V4_VLAN: &str = r#"{"port": "p", "frame-bytes": [64, 1518], "flows": {"vlan": 5}}"#;
const V6: &str = r#"{"port": "p", "frame-bytes": [80, 99, 9000], "flows":
    {"source-address": "2001:2::1", "destination-address": "2001:2:0:1::1"}}"#;
const V6_VLAN: &str = r#"{"port": "p", "frame-bytes": 84, "flows": {"vlan": 0,
    "source-address": "2001:2::1", "destination-address": "2001:2:0:1::1"}}"#;

proptest! {
    #[test]
    fn every_frame_has_right_checksums(sequence in any::<u32>()) {
        for text in [V4, V4_VLAN, V6, V6_VLAN] {
            let plan = Plan::new(&settings(text)).unwrap();
            for template in 0..plan.templates.len() {
                let frame = frame(&plan, template, mark(sequence));
                let layers = Layers::parse(&frame).unwrap();
                prop_assert_eq!(layers.protocol, IpProtocol::UDP);
                prop_assert!(!layers.truncated && layers.end as usize == frame.len());
                prop_assert_eq!(verify_transport(&frame, &layers), Ok(true));
                let udp: &Udp = header(&frame, layers.transport.into()).unwrap();
                prop_assert!(udp.checksum.get() != 0, "0 would say that there is none");
                if layers.is_ipv4() {
                    prop_assert_eq!(verify_ipv4_header(&frame, &layers), Ok(true));
                }
            }
        }
    }
}

#[test]
fn the_headers_say_what_the_settings_say() {
    let plan = Plan::new(&settings(
        r#"{"port": "p", "frame-bytes": 100, "flows": {"source-mac": "02:00:00:00:00:aa",
            "destination-mac": "02:00:00:00:00:bb", "vlan": 7, "source-port": 1000,
            "destination-port": 2000}}"#,
    ));
    let frame = frame(&plan.unwrap(), 0, mark(0));
    assert_eq!(frame[..14], [2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 0x81, 0x00]);
    assert_eq!(frame[14..18], [0, 7, 8, 0]);
    assert_eq!(frame[18..20], [0x45, 0]);
    assert_eq!(frame[20..22], 82u16.to_be_bytes());
    assert_eq!(frame[30..38], [198, 18, 0, 1, 198, 19, 0, 1]);
    assert_eq!(frame[38..44], [0x03, 0xe8, 0x07, 0xd0, 0, 62]);
    assert_eq!(frame[46..64], mark(0).bytes());
}

#[test]
fn all_flows_differ_and_cover_the_ranges() {
    let plan = Plan::new(&settings(
        r#"{"port": "p", "flows": {"count": 120, "source-addresses": 2, "source-address":
            "10.0.0.255", "destination-addresses": 3, "destination-ports": 4}}"#,
    ))
    .unwrap();
    let ends: HashSet<Vec<u8>> =
        plan.templates.iter().map(|template| template.headers[26..38].to_vec()).collect();
    assert_eq!(ends.len(), 120);
    let different = |range: std::ops::Range<usize>| {
        ends.iter().map(|end| end[range.clone()].to_vec()).collect::<HashSet<_>>()
    };
    let sources = different(0..4);
    assert_eq!(sources, HashSet::from([vec![10, 0, 0, 255], vec![10, 0, 1, 0]]));
    assert_eq!(different(4..8).len(), 3);
    assert_eq!(different(8..10).len(), 5, "as many source ports as the count needs");
    assert_eq!(different(10..12).len(), 4);
}

#[test]
fn imix_is_seven_to_four_to_one() {
    for (flows, short) in [("{}", 60), (r#"{"vlan": 1}"#, 64)] {
        let text = format!(r#"{{"port": "p", "frame-bytes": "imix", "flows": {flows}}}"#);
        let plan = Plan::new(&settings(&text)).unwrap();
        let mut shares = HashMap::new();
        for phase in 0..plan.period() {
            *shares.entry(plan.length(plan.template(0, phase))).or_insert(0) += 1;
        }
        assert_eq!(shares, HashMap::from([(short, 7), (590, 4), (1514, 1)]));
    }
}

#[test]
fn lengths_keep_their_order() {
    let plan = Plan::new(&settings(r#"{"port": "p", "frame-bytes": [512, 60, 512]}"#)).unwrap();
    let lengths: Vec<_> = (0..3).map(|phase| plan.length(plan.template(0, phase))).collect();
    assert_eq!(lengths, [512, 60, 512]);
}

#[test]
fn flows_that_cannot_be_are_refused_by_name() {
    for (flows, bytes, expected) in [
        ("{}", "59", "app.frame-bytes: has 59; the headers of these flows and the mark take 60"),
        (r#"{"vlan": 1}"#, "60", "allowed is 64 to 16000"),
        ("{}", "16001", "app.frame-bytes: has 16001"),
        ("{}", "[]", "app.frame-bytes: has 0 lengths"),
        (r#"{"count": 0}"#, "60", "app.flows.count: is 0; allowed is 1 to 65536"),
        (r#"{"count": 9, "source-ports": 4, "source-addresses": 2}"#, "60", "make only 8"),
        (r#"{"vlan": 4095}"#, "60", "app.flows.vlan: is 4095"),
        (r#"{"source-address": "::1"}"#, "80", "app.flows.destination-address: 198.19.0.1 is not"),
        (r#"{"destination-ports": 0}"#, "60", "app.flows.destination-ports: is 0"),
        (r#"{"source-port": 65535, "count": 2}"#, "60", "source-ports: is 2; allowed is 1 to 1"),
    ] {
        let text = format!(r#"{{"port": "p", "frame-bytes": {bytes}, "flows": {flows}}}"#);
        let error = Plan::new(&settings(&text)).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
