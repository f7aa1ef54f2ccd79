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
    assert_eq!(world.only(), before, "nothing has changed");
    assert_eq!(with(&mut world, &trace(&[])), (1, None, None), "it ends a trace");
}
