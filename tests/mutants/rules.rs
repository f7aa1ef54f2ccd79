//! Rules of sessions as control plane functions send them, of all kinds and in any combination.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::IeType as T;
use fastlane_pfcp::ie::{FTeid, OuterHeaderCreation, SdfFilter, UeIpAddress};

use crate::chance::Chance;
use crate::element::{Element, group, leaf, raw};

/// Rule numbers, small so that rules refer to each other.
const NUMBERS: usize = 4;

const FLOWS: [&[u8]; 6] = [
    b"permit out ip from any to assigned",
    b"permit out 17 from 10.60.0.0/24 1-1000,5000 to assigned 9",
    b"permit out 6 from any 80 to assigned 1000-2000",
    b"permit out ip from 10.60.0.2/32 to assigned",
    b"permit out 17 from fd60::/16 to assigned",
    b"permit out 58 from any to assigned",
];

fn number(chance: &mut Chance) -> u8 {
    chance.below(NUMBERS) as u8 + 1
}

/// A value of which the interesting ones are near, in so many octets.
fn amount(chance: &mut Chance) -> u64 {
    match chance.below(5) {
        0 => 0,
        1 => chance.next() >> chance.below(64),
        _ => chance.below(5000) as u64,
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

/// Flags and up to six numbers of eight octets: a volume.
fn volume(chance: &mut Chance, ie_type: T) -> Element {
    let flags = *chance.pick(&[1, 2, 4, 7]);
    let mut value = vec![flags];
    (0..u8::count_ones(flags)).for_each(|_| value.extend(amount(chance).to_be_bytes()));
    raw(ie_type, &value)
}

/// Adds what is made, one time in so many.
fn sometimes(
    chance: &mut Chance,
    one_in: usize,
    to: &mut Vec<Element>,
    make: impl FnOnce(&mut Chance) -> Element,
) {
    if chance.is_one_in(one_in) {
        to.push(make(chance));
    }
}

fn instance(chance: &mut Chance, name: &'static [u8]) -> Element {
    let others: [&[u8]; 4] = [b"access", b"internet", b"nowhere", b"\x06access"];
    let other = *chance.pick(&others);
    raw(T::NETWORK_INSTANCE, if chance.is_one_in(40) { other } else { name })
}

fn user(chance: &mut Chance, is_destination: bool) -> Element {
    let mut user = UeIpAddress { is_destination, choose_v4: true, ..UeIpAddress::default() };
    match chance.below(8) {
        0 => {
            let low = chance.octet();
            user = UeIpAddress { v4: Some([10, 47, 0, low].into()), choose_v4: false, ..user };
        }
        1 => user.choose_v6 = true,
        2 => {
            let prefix = Ipv6Addr::new(0xfd47, 0, 0, chance.octet().into(), 0, 0, 0, 1);
            user = UeIpAddress { v6: Some(prefix), choose_v4: false, ..user };
        }
        _ => {}
    }
    leaf(&user)
}

fn filter(chance: &mut Chance) -> Element {
    let flow = chance.pick(&FLOWS);
    leaf(&SdfFilter {
        flow_description: (!chance.is_one_in(4)).then_some(flow),
        tos_traffic_class: chance.is_one_in(8).then_some([0xb8, 0xfc]),
        security_parameter_index: chance.is_one_in(16).then_some(7),
        flow_label: chance.is_one_in(16).then_some(5),
        filter_id: chance.is_one_in(4).then(|| number(chance).into()),
    })
}

/// From the user, or to the user.
pub(crate) fn pdr(chance: &mut Chance, ie_type: T, id: u16, is_up: bool) -> Element {
    let mut pdi = vec![u8(T::SOURCE_INTERFACE, if is_up { 0 } else { 1 })];
    if is_up {
        let choose_id = chance.is_one_in(3).then(|| number(chance));
        let choose_v6 = chance.is_one_in(3);
        let tunnel = FTeid { choose_v4: true, choose_v6, choose_id, ..FTeid::default() };
        sometimes(chance, 1, &mut pdi, |_| leaf(&tunnel));
        sometimes(chance, 4, &mut pdi, |chance| u8(T::QFI, number(chance)));
    }
    pdi.push(instance(chance, if is_up { b"access" } else { b"internet" }));
    pdi.push(user(chance, !is_up));
    for _ in 0..chance.below(5).saturating_sub(2) {
        pdi.push(filter(chance));
    }
    sometimes(chance, 20, &mut pdi, |_| raw(T::FRAMED_ROUTE, b"10.98.0.0/24 0.0.0.0 1"));
    sometimes(chance, 20, &mut pdi, |_| raw(T::FRAMED_IPV6_ROUTE, b"fd98::/48 :: 1"));
    let mut all = vec![u16(T::PDR_ID, id), u32(T::PRECEDENCE, 1 + chance.below(300) as u32)];
    all.push(group(T::PDI, pdi));
    if is_up {
        all.push(u8(T::OUTER_HEADER_REMOVAL, *chance.pick(&[0, 6, 6, 1])));
    }
    let far = if chance.is_one_in(6) { number(chance) } else { 2 - u8::from(is_up) };
    all.push(u32(T::FAR_ID, far.into()));
    sometimes(chance, 2, &mut all, |chance| u32(T::URR_ID, number(chance).into()));
    sometimes(chance, 3, &mut all, |chance| u32(T::URR_ID, number(chance).into()));
    sometimes(chance, 2, &mut all, |chance| u32(T::QER_ID, number(chance).into()));
    group(ie_type, all)
}

fn tunnel(chance: &mut Chance) -> Element {
    let teid = chance.next() as u32;
    let low = 2 + chance.below(4);
    leaf(&match chance.below(8) {
        0 => {
            OuterHeaderCreation::gtp_u_v6(teid, Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, low as u16))
        }
        // Our own address, and one that is not near.
        1 => OuterHeaderCreation::gtp_u_v4(teid, Ipv4Addr::new(10, 30, 0, 1)),
        2 => OuterHeaderCreation::gtp_u_v4(teid, Ipv4Addr::new(10, 99, 0, 1)),
        _ => OuterHeaderCreation::gtp_u_v4(teid, Ipv4Addr::new(10, 30, 0, low as u8)),
    })
}

/// To the core, or to the access network.
pub(crate) fn far(chance: &mut Chance, ie_type: T, id: u8, is_up: bool) -> Element {
    // FORW mostly; DROP, BUFF, BUFF and NOCP, FORW and DUPL.
    let action = *chance.pick(&[2, 2, 2, 2, 2, 2, 1, 4, 12, 18]);
    let mut all = vec![u32(T::FAR_ID, id.into()), raw(T::APPLY_ACTION, &[action, 0])];
    let is_update = ie_type == T::UPDATE_FAR;
    let mut inside = vec![u8(T::DESTINATION_INTERFACE, u8::from(is_up))];
    inside.push(instance(chance, if is_up { b"internet" } else { b"access" }));
    if !is_up {
        inside.push(tunnel(chance));
    }
    sometimes(chance, 4, &mut inside, |chance| {
        raw(T::TRANSPORT_LEVEL_MARKING, &[chance.octet() & 0xfc, 0xfc])
    });
    sometimes(chance, 4, &mut inside, |_| u8(T::PFCPSMREQ_FLAGS, 2));
    let parameters = [T::FORWARDING_PARAMETERS, T::UPDATE_FORWARDING_PARAMETERS];
    all.push(group(parameters[usize::from(is_update)], inside));
    if action & 16 != 0 {
        let inside = vec![u8(T::DESTINATION_INTERFACE, 0), tunnel(chance)];
        let parameters = [T::DUPLICATING_PARAMETERS, T::UPDATE_DUPLICATING_PARAMETERS];
        all.push(group(parameters[usize::from(is_update)], inside));
    }
    sometimes(chance, 4, &mut all, |_| u8(T::BAR_ID, 1));
    group(ie_type, all)
}

/// What makes a report, with the bit of it (clause 8.2.19) and the element that it needs.
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

pub(crate) fn urr(chance: &mut Chance, ie_type: T, id: u8) -> Element {
    let mut all = vec![u32(T::URR_ID, id.into())];
    all.push(u8(T::MEASUREMENT_METHOD, *chance.pick(&[1, 2, 2, 3, 3, 7])));
    // START and STOPT need nothing.
    let mut triggers = u32::from(chance.octet() & 0x30) << 16;
    for (bit, ie_type) in TRIGGERS {
        if !chance.is_one_in(4) {
            continue;
        }
        triggers |= bit;
        all.push(match ie_type {
            T::VOLUME_THRESHOLD | T::VOLUME_QUOTA => volume(chance, ie_type),
            T::DROPPED_DL_TRAFFIC_THRESHOLD => raw(ie_type, &[1, 0, 0, 0, 0, 0, 0, 0, 1]),
            _ => u32(ie_type, 1 + chance.below(3) as u32),
        });
    }
    if chance.is_one_in(6) {
        triggers |= 0x80 << 16;
        all.push(u32(T::LINKED_URR_ID, number(chance).into()));
    }
    all.push(raw(T::REPORTING_TRIGGERS, &triggers.to_be_bytes()[1..]));
    for ie_type in [
        T::INACTIVITY_DETECTION_TIME,
        T::SUBSEQUENT_TIME_THRESHOLD,
        T::SUBSEQUENT_TIME_QUOTA,
        T::MONITORING_TIME,
    ] {
        sometimes(chance, 6, &mut all, |chance| u32(ie_type, 1 + chance.below(3) as u32));
    }
    // What the UPF refuses.
    sometimes(chance, 100, &mut all, |chance| u32(T::EVENT_QUOTA, 1 + chance.below(3) as u32));
    sometimes(chance, 8, &mut all, |chance| volume(chance, T::SUBSEQUENT_VOLUME_THRESHOLD));
    sometimes(chance, 8, &mut all, |chance| volume(chance, T::SUBSEQUENT_VOLUME_QUOTA));
    sometimes(chance, 8, &mut all, |chance| u32(T::FAR_ID, number(chance).into()));
    sometimes(chance, 4, &mut all, |chance| u8(T::MEASUREMENT_INFORMATION, chance.octet() & 0x1f));
    sometimes(chance, 8, &mut all, |chance| u16(T::NUMBER_OF_REPORTS, chance.below(4) as u16));
    group(ie_type, all)
}

pub(crate) fn qer(chance: &mut Chance, ie_type: T, id: u8) -> Element {
    let mut all = vec![u32(T::QER_ID, id.into())];
    all.push(u8(T::GATE_STATUS, *chance.pick(&[0, 0, 0, 1, 4, 5])));
    for ie_type in [T::MBR, T::GBR] {
        sometimes(chance, 2, &mut all, |chance| {
            let rate = || chance_rate(chance);
            let rates: Vec<u8> = std::iter::repeat_with(rate).take(2).flatten().collect();
            raw(ie_type, &rates)
        });
    }
    sometimes(chance, 2, &mut all, |chance| u8(T::QFI, chance.octet() & 0x3f));
    sometimes(chance, 4, &mut all, |_| u8(T::RQI, 1));
    sometimes(chance, 4, &mut all, |chance| u8(T::PAGING_POLICY_INDICATOR, chance.octet() & 7));
    sometimes(chance, 8, &mut all, |chance| u32(T::AVERAGING_WINDOW, chance.octet().into()));
    sometimes(chance, 8, &mut all, |_| u32(T::QER_CORRELATION_ID, 7));
    group(ie_type, all)
}

/// A bit rate in kbit/s, five octets.
fn chance_rate(chance: &mut Chance) -> [u8; 5] {
    let rate = amount(chance).to_be_bytes();
    [rate[3], rate[4], rate[5], rate[6], rate[7]]
}

pub(crate) fn bar(chance: &mut Chance, ie_type: T) -> Element {
    let mut all = vec![u8(T::BAR_ID, 1)];
    sometimes(chance, 2, &mut all, |chance| {
        u8(T::SUGGESTED_BUFFERING_PACKETS_COUNT, chance.octet() & 15)
    });
    sometimes(chance, 2, &mut all, |chance| {
        u8(T::DOWNLINK_DATA_NOTIFICATION_DELAY, chance.octet() & 15)
    });
    group(ie_type, all)
}

pub(crate) fn remove(chance: &mut Chance) -> Element {
    let id = number(chance).into();
    match chance.below(5) {
        0 => group(T::REMOVE_PDR, vec![u16(T::PDR_ID, id as u16)]),
        1 => group(T::REMOVE_FAR, vec![u32(T::FAR_ID, id)]),
        2 => group(T::REMOVE_URR, vec![u32(T::URR_ID, id)]),
        3 => group(T::REMOVE_QER, vec![u32(T::QER_ID, id)]),
        _ => group(T::REMOVE_BAR, vec![u8(T::BAR_ID, 1)]),
    }
}
