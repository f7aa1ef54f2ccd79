//! IEs that would change what the UPF does, and are refused by name because it does not.

use super::establish::{down, refused};
use super::*;

const UE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 7);

/// IEs of a Create or Update PDR, with their types.
const OF_PDR: [(u16, Body<'static>); 2] = [
    (163, &|w| w.put(&ie::ActivationTime(4_000_000_000))),
    (164, &|w| w.put(&ie::DeactivationTime(4_000_000_000))),
];

/// IEs of a Create or Update URR, with their types.
const OF_URR: [(u16, Body<'static>); 7] = [
    (147, &|w| {
        w.group(IeType::ADDITIONAL_MONITORING_TIME, |w| w.put(&ie::MonitoringTime(4_000_000_000)));
    }),
    (182, &|w| w.put(&ie::NumberOfReports(3))),
    (115, &|w| {
        w.put(&ie::TimeQuotaMechanism { base_time_interval_type: 0, base_time_interval: 60 });
    }),
    (118, &|w| {
        w.group(IeType::AGGREGATED_URRS, |w| {
            w.put(&ie::AggregatedUrrId(9));
            w.put(&ie::Multiplier { digits: 1, exponent: 0 });
        });
    }),
    (37, &|w| w.put(&(ie::ReportingTriggers::VOLTH | ie::ReportingTriggers::ENVCL))),
    (37, &|w| w.put(&(ie::ReportingTriggers::VOLTH | ie::ReportingTriggers::REEMR))),
    (37, &|w| w.put(&(ie::ReportingTriggers::VOLTH | ie::ReportingTriggers::UPINT))),
];

/// Appends the PDI of a UE with two addresses.
fn two_addresses(w: &mut Writer<'_>) {
    core(w, b"internet", &address(UE));
    w.put(&address(Ipv4Addr::new(10, 99, 0, 8)));
}

const TRACE: [u8; 10] = [0x00, 0xF1, 0x10, 1, 2, 3, 0, 1, 0, 0];

#[test]
fn ies_that_would_change_behaviour_are_refused_in_an_establishment() {
    let mut world = SessionTestbed::new();
    for (number, more) in OF_PDR {
        let why = refused(&mut world, &|w| {
            pdr(w, 1, 1, &|w| core(w, b"internet", &address(UE)), more);
            far_up(w, 1);
        });
        assert_eq!(why, (76, Some(number), None));
    }
    for (number, more) in OF_URR {
        let why = refused(&mut world, &|w| {
            down(w);
            far_up(w, 2);
            w.group(IeType::CREATE_URR, |w| {
                w.put(&ie::UrrId(1));
                w.put(&ie::MeasurementMethod::VOLUM);
                // The first one of repeated Reporting Triggers counts.
                more(w);
                w.put(&ie::ReportingTriggers::VOLTH);
                let octets = ie::Volumes { total: Some(1 << 30), ..ie::Volumes::default() };
                w.put(&ie::VolumeThreshold(octets));
            });
        });
        assert_eq!(why, (76, Some(number), None));
    }
    let why = refused(&mut world, &|w| {
        pdr(w, 1, 1, &two_addresses, &|_| {});
        far_up(w, 1);
    });
    assert_eq!(why, (76, Some(93), None));
    let why = refused(&mut world, &|w| {
        down(w);
        far_up(w, 2);
        w.raw(IeType::TRACE_INFORMATION, &TRACE);
    });
    assert_eq!(why, (76, Some(152), None));
    for flag in [ie::PfcpsereqFlags::SUMPC, ie::PfcpsereqFlags::HRSBOM] {
        let why = refused(&mut world, &|w| {
            down(w);
            far_up(w, 2);
            w.put(&flag);
        });
        assert_eq!(why, (76, Some(186), None));
    }
}

#[test]
fn ies_that_would_change_behaviour_are_refused_in_a_modification() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| usual(w, &address(UE))));
    let (before, seid) = (world.only(), answered.up.unwrap().seid);
    let mut sequence = 1;
    let mut with = |world: &mut SessionTestbed, body: Body<'_>| {
        sequence += 1;
        world.ask(&modification(sequence, seid, body)).why()
    };
    let update_pdr = |w: &mut Writer<'_>, more: Body<'_>| {
        w.group(IeType::UPDATE_PDR, |w| {
            w.put(&ie::PdrId(2));
            more(w);
        });
    };
    for (number, more) in OF_PDR {
        let why = with(&mut world, &|w| update_pdr(w, more));
        assert_eq!(why, (76, Some(number), None));
    }
    for (number, more) in OF_URR {
        let why = with(&mut world, &|w| {
            w.group(IeType::UPDATE_URR, |w| {
                w.put(&ie::UrrId(1));
                more(w);
            });
        });
        assert_eq!(why, (76, Some(number), None));
    }
    let pdi: Body<'_> = &|w| w.group(IeType::PDI, two_addresses);
    assert_eq!(with(&mut world, &|w| update_pdr(w, pdi)), (76, Some(93), None));
    let trace =
        |value: &'static [u8]| move |w: &mut Writer<'_>| w.raw(IeType::TRACE_INFORMATION, value);
    assert_eq!(with(&mut world, &trace(&TRACE)), (76, Some(152), None));
    use ie::PfcpsmreqFlags as Flags;
    for flag in [Flags::SUMPC, Flags::DETEID, Flags::HRSBOM] {
        let why = with(&mut world, &|w| w.put(&(flag | Flags::QAURR)));
        assert_eq!(why, (76, Some(49), None));
    }
    assert_eq!(world.only(), before, "nothing has changed");
    assert_eq!(with(&mut world, &|w| w.put(&Flags::RUMUC)), (1, None, None), "nothing is stopped");
    assert_eq!(with(&mut world, &trace(&[])), (1, None, None), "it ends a trace");
}

/// IEs with values, and the group that has them.
type GroupIes = (&'static str, &'static [(IeType, &'static [u8])]);

/// IEs of features that are not announced, by the group that has them: PDR, PDI, FAR, forwarding
/// parameters, QER, or the request itself.
const OF_FEATURES: [GroupIes; 6] = [
    (
        "pdr",
        &[
            (IeType::PACKET_REPLICATION_AND_DETECTION, &[1]),
            (IeType::IP_MULTICAST_ADDRESSING_INFO, &[]),
            (IeType::MAR_ID, &[0, 1]),
            (IeType::MPTCP_APPLICABLE_INDICATION, &[1]),
            (IeType::TRANSPORT_DELAY_REPORTING, &[]),
        ],
    ),
    (
        "pdi",
        &[
            (IeType::REDUNDANT_TRANSMISSION_DETECTION, &[]),
            (IeType::IP_MULTICAST_ADDRESSING_INFO, &[]),
            (IeType::DNS_QUERY_FILTER, &[1]),
            (IeType::MBS_SESSION_IDENTIFIER, &[1]),
            (IeType::AREA_SESSION_ID, &[0, 1]),
        ],
    ),
    (
        "far",
        &[
            (IeType::REDUNDANT_TRANSMISSION_FORWARDING, &[]),
            (IeType::MBS_MULTICAST_PARAMETERS, &[]),
            (IeType::ADD_MBS_UNICAST_PARAMETERS, &[]),
        ],
    ),
    (
        "parameters",
        &[
            (IeType::REDUNDANT_TRANSMISSION_FORWARDING, &[]),
            (IeType::IP_ADDRESS_AND_PORT_NUMBER_REPLACEMENT, &[1]),
            (IeType::PROXYING, &[1]),
            (IeType::TRAFFIC_ENDPOINT_ID, &[1]),
        ],
    ),
    ("qer", &[(IeType::QER_CONTROL_INDICATIONS, &[1]), (IeType::PACKET_RATE_STATUS, &[1])]),
    (
        "request",
        &[
            (IeType::MBS_SESSION_N4_CONTROL_INFORMATION, &[]),
            (IeType::L2TP_SESSION_INFORMATION, &[]),
            (IeType::PROVIDE_ATSSS_CONTROL_INFORMATION, &[]),
            (IeType::PROVIDE_RDS_CONFIGURATION_INFORMATION, &[]),
            (IeType::DSCP_TO_PPI_CONTROL_INFORMATION, &[]),
        ],
    ),
];

/// An additional IE, and the group that has it.
#[derive(Clone, Copy)]
struct AdditionalIe {
    place: &'static str,
    ie_type: IeType,
    value: &'static [u8],
}

/// Appends a PDR, FAR and QER, one of which has an additional IE.
fn with_ie(w: &mut Writer<'_>, groups: [IeType; 4], ie: AdditionalIe) {
    let AdditionalIe { place, ie_type, value } = ie;
    let [of_pdr, of_far, parameters, of_qer] = groups;
    let more = |w: &mut Writer<'_>, here: &str| {
        if place == here {
            w.raw(ie_type, value);
        }
    };
    w.group(of_pdr, |w| {
        w.put(&ie::PdrId(2));
        w.put(&ie::Precedence(100));
        w.group(IeType::PDI, |w| {
            core(w, b"internet", &address(UE));
            more(w, "pdi");
        });
        w.put(&ie::FarId(2));
        more(w, "pdr");
    });
    w.group(of_far, |w| {
        w.put(&ie::FarId(2));
        w.put(&ie::ApplyAction::FORW);
        w.group(parameters, |w| {
            w.put(&ie::DestinationInterface::ACCESS);
            w.put(&ie::OuterHeaderCreation::gtp_u_v4(0x100, GNB));
            more(w, "parameters");
        });
        more(w, "far");
    });
    w.group(of_qer, |w| {
        w.put(&ie::QerId(1));
        w.put(&ie::GateStatus { uplink: ie::Gate::Open, downlink: ie::Gate::Open });
        more(w, "qer");
    });
    more(w, "request");
}

#[test]
fn ies_of_features_that_are_not_announced_are_refused_where_they_may_be() {
    let created =
        [IeType::CREATE_PDR, IeType::CREATE_FAR, IeType::FORWARDING_PARAMETERS, IeType::CREATE_QER];
    let updated = [
        IeType::UPDATE_PDR,
        IeType::UPDATE_FAR,
        IeType::UPDATE_FORWARDING_PARAMETERS,
        IeType::UPDATE_QER,
    ];
    let mut world = SessionTestbed::new();
    let mut sequence = 0;
    let all = OF_FEATURES.iter().flat_map(|(place, ies)| {
        let of_type = |(ie_type, value)| AdditionalIe { place, ie_type, value };
        ies.iter().copied().map(of_type)
    });
    for ie in all.clone() {
        sequence += 1;
        let body: Body<'_> = &|w| with_ie(w, created, ie);
        let why = world.ask(&establishment(sequence, 77, body)).why();
        assert_eq!(why, (76, Some(ie.ie_type.0), None), "{}: {}", ie.place, ie.ie_type);
    }
    assert_eq!(world.sessions.len(), 0);
    let none = AdditionalIe { place: "none", ie_type: IeType::PDI, value: &[] };
    let answered = world.ask(&establishment(1000, 77, &|w| with_ie(w, created, none)));
    assert_eq!(answered.why(), (1, None, None));
    let (seid, before) = (answered.up.unwrap().seid, world.only());
    for ie in all {
        sequence += 1;
        let body: Body<'_> = &|w| with_ie(w, updated, ie);
        let why = world.ask(&modification(sequence, seid, body)).why();
        assert_eq!(why, (76, Some(ie.ie_type.0), None), "{}: {}", ie.place, ie.ie_type);
    }
    assert_eq!(world.only(), before);
    // Control indications without a flag ask for nothing.
    let ie_type = IeType::QER_CONTROL_INDICATIONS;
    let zero = AdditionalIe { place: "qer", ie_type, value: &[0] };
    let body: Body<'_> = &|w| with_ie(w, updated, zero);
    assert_eq!(world.ask(&modification(2000, seid, body)).why(), (1, None, None));
}
