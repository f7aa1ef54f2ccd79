//! Rules of sessions: IEs of PDR, FAR, URR, QER and BAR in any combination.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::IeType as T;
use fastlane_pfcp::ie::{FTeid, OuterHeaderCreation, SdfFilter, UeIpAddress};

use crate::element::{Element, group, leaf, raw};
use crate::random::Random;

/// Number of rule IDs, small so that rules refer to each other.
const NUMBERS: usize = 4;

const FLOWS: [&[u8]; 6] = [
    b"permit out ip from any to assigned",
    b"permit out 17 from 10.60.0.0/24 1-1000,5000 to assigned 9",
    b"permit out 6 from any 80 to assigned 1000-2000",
    b"permit out ip from 10.60.0.2/32 to assigned",
    b"permit out 17 from fd60::/16 to assigned",
    b"permit out 58 from any to assigned",
];

fn number(random: &mut Random) -> u8 {
    random.below(NUMBERS) as u8 + 1
}

/// Returns an amount of octets or kbit/s, mostly small.
fn amount(random: &mut Random) -> u64 {
    match random.below(5) {
        0 => 0,
        1 => random.next() >> random.below(64),
        _ => random.below(5000) as u64,
    }
}

fn u8(ie_type: T, value: u8) -> Element {
    raw(ie_type, &[value])
}

fn u16(ie_type: T, value: u16) -> Element {
    raw(ie_type, &value.to_be_bytes())
}

pub(crate) fn u32(ie_type: T, value: u32) -> Element {
    raw(ie_type, &value.to_be_bytes())
}

/// Returns a volume: flags and up to three numbers of eight octets.
fn volume(random: &mut Random, ie_type: T) -> Element {
    let flags = *random.pick(&[1, 2, 4, 7]);
    let mut value = vec![flags];
    (0..u8::count_ones(flags)).for_each(|_| value.extend(amount(random).to_be_bytes()));
    raw(ie_type, &value)
}

/// Appends an IE with a probability of one in `one_in`.
fn sometimes(
    random: &mut Random,
    one_in: usize,
    to: &mut Vec<Element>,
    make: impl FnOnce(&mut Random) -> Element,
) {
    if random.is_one_in(one_in) {
        to.push(make(random));
    }
}

fn instance(random: &mut Random, name: &'static [u8]) -> Element {
    let others: [&[u8]; 4] = [b"access", b"internet", b"nowhere", b"\x06access"];
    let other = *random.pick(&others);
    raw(T::NETWORK_INSTANCE, if random.is_one_in(40) { other } else { name })
}

fn user(random: &mut Random, is_destination: bool) -> Element {
    let mut user = UeIpAddress { is_destination, choose_v4: true, ..UeIpAddress::default() };
    match random.below(8) {
        0 => {
            let low = random.octet();
            user = UeIpAddress { v4: Some([10, 47, 0, low].into()), choose_v4: false, ..user };
        }
        1 => user.choose_v6 = true,
        2 => {
            let prefix = Ipv6Addr::new(0xfd47, 0, 0, random.octet().into(), 0, 0, 0, 1);
            user = UeIpAddress { v6: Some(prefix), choose_v4: false, ..user };
        }
        _ => {}
    }
    leaf(&user)
}

fn filter(random: &mut Random) -> Element {
    let flow = random.pick(&FLOWS);
    leaf(&SdfFilter {
        flow_description: (!random.is_one_in(4)).then_some(flow),
        tos_traffic_class: random.is_one_in(8).then_some([0xb8, 0xfc]),
        security_parameter_index: random.is_one_in(16).then_some(7),
        flow_label: random.is_one_in(16).then_some(5),
        filter_id: random.is_one_in(4).then(|| number(random).into()),
    })
}

/// Returns a PDR of the uplink or the downlink.
pub(crate) fn pdr(random: &mut Random, ie_type: T, id: u16, is_uplink: bool) -> Element {
    let mut pdi = vec![u8(T::SOURCE_INTERFACE, if is_uplink { 0 } else { 1 })];
    if is_uplink {
        let choose_id = random.is_one_in(3).then(|| number(random));
        let choose_v6 = random.is_one_in(3);
        let tunnel = FTeid { choose_v4: true, choose_v6, choose_id, ..FTeid::default() };
        sometimes(random, 1, &mut pdi, |_| leaf(&tunnel));
        sometimes(random, 4, &mut pdi, |random| u8(T::QFI, number(random)));
    }
    pdi.push(instance(random, if is_uplink { b"access" } else { b"internet" }));
    pdi.push(user(random, !is_uplink));
    for _ in 0..random.below(5).saturating_sub(2) {
        pdi.push(filter(random));
    }
    sometimes(random, 20, &mut pdi, |_| raw(T::FRAMED_ROUTE, b"10.98.0.0/24 0.0.0.0 1"));
    sometimes(random, 20, &mut pdi, |_| raw(T::FRAMED_IPV6_ROUTE, b"fd98::/48 :: 1"));
    let mut all = vec![u16(T::PDR_ID, id), u32(T::PRECEDENCE, 1 + random.below(300) as u32)];
    all.push(group(T::PDI, pdi));
    if is_uplink {
        all.push(u8(T::OUTER_HEADER_REMOVAL, *random.pick(&[0, 6, 6, 1])));
    }
    let far = if random.is_one_in(6) { number(random) } else { 2 - u8::from(is_uplink) };
    all.push(u32(T::FAR_ID, far.into()));
    sometimes(random, 2, &mut all, |random| u32(T::URR_ID, number(random).into()));
    sometimes(random, 3, &mut all, |random| u32(T::URR_ID, number(random).into()));
    sometimes(random, 2, &mut all, |random| u32(T::QER_ID, number(random).into()));
    group(ie_type, all)
}

fn tunnel(random: &mut Random) -> Element {
    let teid = random.next() as u32;
    let low = 2 + random.below(4);
    leaf(&match random.below(8) {
        0 => {
            OuterHeaderCreation::gtp_u_v6(teid, Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, low as u16))
        }
        // The UPF's own address, and one without a direct route.
        1 => OuterHeaderCreation::gtp_u_v4(teid, Ipv4Addr::new(10, 30, 0, 1)),
        2 => OuterHeaderCreation::gtp_u_v4(teid, Ipv4Addr::new(10, 99, 0, 1)),
        _ => OuterHeaderCreation::gtp_u_v4(teid, Ipv4Addr::new(10, 30, 0, low as u8)),
    })
}

/// Returns a FAR to the core or to the access network.
pub(crate) fn far(random: &mut Random, ie_type: T, id: u8, is_uplink: bool) -> Element {
    // FORW mostly; DROP, BUFF, BUFF and NOCP, FORW and DUPL.
    let action = *random.pick(&[2, 2, 2, 2, 2, 2, 1, 4, 12, 18]);
    let mut all = vec![u32(T::FAR_ID, id.into()), raw(T::APPLY_ACTION, &[action, 0])];
    let is_update = ie_type == T::UPDATE_FAR;
    let mut inside = vec![u8(T::DESTINATION_INTERFACE, u8::from(is_uplink))];
    inside.push(instance(random, if is_uplink { b"internet" } else { b"access" }));
    if !is_uplink {
        inside.push(tunnel(random));
    }
    sometimes(random, 4, &mut inside, |random| {
        raw(T::TRANSPORT_LEVEL_MARKING, &[random.octet() & 0xfc, 0xfc])
    });
    sometimes(random, 4, &mut inside, |_| u8(T::PFCPSMREQ_FLAGS, 2));
    let parameters = [T::FORWARDING_PARAMETERS, T::UPDATE_FORWARDING_PARAMETERS];
    all.push(group(parameters[usize::from(is_update)], inside));
    if action & 16 != 0 {
        let inside = vec![u8(T::DESTINATION_INTERFACE, 0), tunnel(random)];
        let parameters = [T::DUPLICATING_PARAMETERS, T::UPDATE_DUPLICATING_PARAMETERS];
        all.push(group(parameters[usize::from(is_update)], inside));
    }
    sometimes(random, 4, &mut all, |_| u8(T::BAR_ID, 1));
    group(ie_type, all)
}

/// Reporting triggers (TS 29.244, 8.2.19) with the IE that each needs.
const TRIGGERS: [(u32, T); 8] = [
    (1 << 16, T::MEASUREMENT_PERIOD),
    (2 << 16, T::VOLUME_THRESHOLD),
    (4 << 16, T::TIME_THRESHOLD),
    (8 << 16, T::QUOTA_HOLDING_TIME),
    (0x40 << 16, T::DROPPED_DL_TRAFFIC_THRESHOLD),
    (1 << 8, T::VOLUME_QUOTA),
    (2 << 8, T::TIME_QUOTA),
    (1, T::QUOTA_VALIDITY_TIME),
];

pub(crate) fn urr(random: &mut Random, ie_type: T, id: u8) -> Element {
    let mut all = vec![u32(T::URR_ID, id.into())];
    all.push(u8(T::MEASUREMENT_METHOD, *random.pick(&[1, 2, 2, 3, 3, 7])));
    // START and STOPT need no IE.
    let mut triggers = u32::from(random.octet() & 0x30) << 16;
    for (bit, ie_type) in TRIGGERS {
        if !random.is_one_in(4) {
            continue;
        }
        triggers |= bit;
        all.push(match ie_type {
            T::VOLUME_THRESHOLD | T::VOLUME_QUOTA => volume(random, ie_type),
            T::DROPPED_DL_TRAFFIC_THRESHOLD => raw(ie_type, &[1, 0, 0, 0, 0, 0, 0, 0, 1]),
            _ => u32(ie_type, 1 + random.below(3) as u32),
        });
    }
    if random.is_one_in(6) {
        triggers |= 0x80 << 16;
        all.push(u32(T::LINKED_URR_ID, number(random).into()));
    }
    all.push(raw(T::REPORTING_TRIGGERS, &triggers.to_be_bytes()[1..]));
    for ie_type in [
        T::INACTIVITY_DETECTION_TIME,
        T::SUBSEQUENT_TIME_THRESHOLD,
        T::SUBSEQUENT_TIME_QUOTA,
        T::MONITORING_TIME,
    ] {
        sometimes(random, 6, &mut all, |random| u32(ie_type, 1 + random.below(3) as u32));
    }
    // The UPF refuses event quotas.
    sometimes(random, 100, &mut all, |random| u32(T::EVENT_QUOTA, 1 + random.below(3) as u32));
    sometimes(random, 8, &mut all, |random| volume(random, T::SUBSEQUENT_VOLUME_THRESHOLD));
    sometimes(random, 8, &mut all, |random| volume(random, T::SUBSEQUENT_VOLUME_QUOTA));
    sometimes(random, 8, &mut all, |random| u32(T::FAR_ID, number(random).into()));
    sometimes(random, 4, &mut all, |random| u8(T::MEASUREMENT_INFORMATION, random.octet() & 0x1f));
    sometimes(random, 8, &mut all, |random| u16(T::NUMBER_OF_REPORTS, random.below(4) as u16));
    group(ie_type, all)
}

pub(crate) fn qer(random: &mut Random, ie_type: T, id: u8) -> Element {
    let mut all = vec![u32(T::QER_ID, id.into())];
    all.push(u8(T::GATE_STATUS, *random.pick(&[0, 0, 0, 1, 4, 5])));
    for ie_type in [T::MBR, T::GBR] {
        sometimes(random, 2, &mut all, |random| {
            let rate = || bit_rate(random);
            let rates: Vec<u8> = std::iter::repeat_with(rate).take(2).flatten().collect();
            raw(ie_type, &rates)
        });
    }
    sometimes(random, 2, &mut all, |random| u8(T::QFI, random.octet() & 0x3f));
    sometimes(random, 4, &mut all, |_| u8(T::RQI, 1));
    sometimes(random, 4, &mut all, |random| u8(T::PAGING_POLICY_INDICATOR, random.octet() & 7));
    sometimes(random, 8, &mut all, |random| u32(T::AVERAGING_WINDOW, random.octet().into()));
    sometimes(random, 8, &mut all, |_| u32(T::QER_CORRELATION_ID, 7));
    group(ie_type, all)
}

/// Returns a bit rate in kbit/s, encoded in five octets.
fn bit_rate(random: &mut Random) -> [u8; 5] {
    let rate = amount(random).to_be_bytes();
    [rate[3], rate[4], rate[5], rate[6], rate[7]]
}

pub(crate) fn bar(random: &mut Random, ie_type: T) -> Element {
    let mut all = vec![u8(T::BAR_ID, 1)];
    sometimes(random, 2, &mut all, |random| {
        u8(T::SUGGESTED_BUFFERING_PACKETS_COUNT, random.octet() & 15)
    });
    sometimes(random, 2, &mut all, |random| {
        u8(T::DOWNLINK_DATA_NOTIFICATION_DELAY, random.octet() & 15)
    });
    group(ie_type, all)
}

pub(crate) fn remove(random: &mut Random) -> Element {
    let id = number(random).into();
    match random.below(5) {
        0 => group(T::REMOVE_PDR, vec![u16(T::PDR_ID, id as u16)]),
        1 => group(T::REMOVE_FAR, vec![u32(T::FAR_ID, id)]),
        2 => group(T::REMOVE_URR, vec![u32(T::URR_ID, id)]),
        3 => group(T::REMOVE_QER, vec![u32(T::QER_ID, id)]),
        _ => group(T::REMOVE_BAR, vec![u8(T::BAR_ID, 1)]),
    }
}
