use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use zerocopy::FromZeros;

use super::*;

/// Returns a typical session: one tunnel, one address, a QER and a URR, two PDRs and FARs.
pub(crate) fn typical(place: u32) -> Session {
    Session {
        id: SessionIndex(place),
        seid: 77 << 32 | u64::from(place),
        cp_fseid: CpFSeid { seid: u64::from(place) + 1, address: IpAddr::from([10, 0, 0, 1]) },
        peer: 3,
        version: 900_000,
        generation: 78,
        discarded: 0,
        is_deleted: false,
        established: 1_790_000_000_123_456_789,
        pdn_type: 1,
        supi: Some("001010000000001".to_owned()),
        network: Some("internet".to_owned()),
        s_nssai: Some(SNssai { sst: 1, sd: 0x01_0203 }),
        inactivity_s: None,
        fq_csids: Vec::new(),
        pdrs: typical_pdrs(place),
        fars: typical_fars(place),
        qers: vec![typical_qer()],
        urrs: vec![typical_urr(place)],
        bars: Vec::new(),
        reporting: Reporting::default(),
    }
}

fn typical_pdrs(place: u32) -> Vec<Pdr> {
    let user = UserAddress { v4: Some(Ipv4Addr::from_bits(0x0A2D_0000 + place)), ..<_>::default() };
    let v4 = Some(Ipv4Addr::new(192, 168, 100, 10));
    let tunnel =
        LocalTunnel { teid: 0xABC0_0000 | place, v4, v6: None, is_ours: true, choose_id: None };
    let uplink = Pdr {
        id: 1,
        precedence: 255,
        source: Source::Access,
        instance: Some(0),
        tunnel: Some(tunnel),
        user: Some(user),
        framed: Vec::new(),
        filters: Vec::new(),
        qfis: Vec::new(),
        removal: Some(Removal { description: 0, extension: true }),
        far: 1,
        qers: vec![1],
        urrs: vec![1],
        predefined: Vec::new(),
    };
    let downlink = Pdr {
        id: 2,
        source: Source::Core,
        instance: Some(2),
        tunnel: None,
        removal: None,
        far: 2,
        ..uplink.clone()
    };
    vec![uplink, downlink]
}

fn typical_fars(place: u32) -> Vec<Far> {
    let forwarding = |destination, outer| Forwarding {
        destination,
        instance: Some(1),
        outer,
        marking: None,
        redirect: None,
    };
    let gnb = OuterHeader {
        teid: Some(0x1234_5678 ^ place),
        v4: Some(Ipv4Addr::new(192, 168, 100, 1)),
        v6: None,
        port: None,
    };
    let far = |id, forwarding| Far {
        id,
        actions: Actions { forward: true, ..Actions::default() },
        forwarding: Some(forwarding),
        duplicating: Vec::new(),
        bar: None,
        end_markers: Vec::new(),
    };
    vec![
        far(1, forwarding(Destination::Core, None)),
        far(2, forwarding(Destination::Access, Some(gnb))),
    ]
}

fn typical_qer() -> Qer {
    Qer {
        id: 1,
        correlation: None,
        uplink: Gate::Open,
        downlink: Gate::Open,
        maximum: Some(Rate { uplink: 100_000, downlink: 500_000 }),
        guaranteed: None,
        qfi: Some(9),
        reflective: false,
        paging_policy: None,
        window_ms: None,
        line: 0,
    }
}

fn typical_urr(place: u32) -> Urr {
    Urr {
        id: 1,
        measure: Measure { volume: true, ..Measure::default() },
        triggers: ReportingTriggers(2),
        volume_threshold: Some(Volume { total: Some(1 << 30), ..Volume::default() }),
        progress: Progress {
            line: place,
            sequence: 17,
            since: 1_790_000_000_123_456_789,
            reported: [18_253_611_008, 14_000_000, 180_000_000_000, 150_000_000],
            ..Progress::default()
        },
        ..Urr::default()
    }
}

fn record_of(session: &Session) -> SessionRecord {
    let mut record = SessionRecord::new_zeroed();
    record.format = FORMAT;
    record.seid = session.seid;
    record.version = session.version;
    record.generation = session.generation;
    record.peer = session.peer;
    record.flags = if session.is_deleted { DELETED } else { 0 };
    record
}

/// A successor of another release reads what its predecessor has stored.
#[test]
fn a_record_in_a_former_format_is_read() {
    let mut session = Session { s_nssai: None, ..typical(7) };
    let to = session.fars[1].forwarding.as_ref().unwrap().outer.unwrap();
    session.fars[1].end_markers = vec![EndMarker { to, instance: Some(1), version: 7, at: 0 }];
    let mut encodings = vec![encode(&session, Vec::new())];
    for format in 1..FORMAT {
        let bytes = encode_as(format, &session, Vec::new());
        assert!(!encodings.contains(&bytes), "format {format}");
        let record = SessionRecord { format, ..record_of(&session) };
        assert_eq!(decode(session.id, &record, &bytes), Some(session.clone()), "format {format}");
        let sliced = Session { s_nssai: typical(7).s_nssai, ..session.clone() };
        let is_kept = encode_as(format, &sliced, Vec::new()) != bytes;
        assert_eq!(is_kept, format >= WITH_S_NSSAI, "S-NSSAI in format {format}");
        encodings.push(bytes);
    }
    let unknown = SessionRecord { format: FORMAT + 1, ..record_of(&session) };
    assert_eq!(decode(session.id, &unknown, &encodings[0]), None);
}

#[test]
fn a_typical_session_fits_its_record() {
    let length = encode(&typical(999_999), Vec::new()).len();
    assert!(length <= super::super::record::BODY, "{length} bytes");
}

fn any_volume() -> impl Strategy<Value = Volume> {
    (any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>())
        .prop_map(|(total, uplink, downlink)| Volume { total, uplink, downlink })
}

fn any_flow() -> impl Strategy<Value = FlowDescription> {
    let prefix = || {
        prop::option::of((any::<IpAddr>(), 0_u8..=128))
            .prop_map(|it| it.map(|(address, length)| Prefix { address, length }))
    };
    let ports = || prop::collection::vec(any::<(u16, u16)>(), 0..3);
    (any::<Option<u8>>(), prefix(), ports(), prefix(), ports()).prop_map(
        |(protocol, remote, remote_ports, local, local_ports)| FlowDescription {
            protocol,
            remote,
            remote_ports,
            local,
            local_ports,
        },
    )
}

fn any_pdr() -> impl Strategy<Value = Pdr> {
    let filter = (any::<Option<u32>>(), prop::option::of(any_flow()), any::<Option<(u8, u8)>>())
        .prop_map(|(id, flow, tos)| Filter { id, flow, tos, spi: id, flow_label: None });
    let lists = (
        prop::collection::vec(filter, 0..3),
        prop::collection::vec(any::<u8>(), 0..3),
        prop::collection::vec(any::<u32>(), 0..3),
    );
    let address = (any::<Option<Ipv4Addr>>(), any::<Option<(Ipv6Addr, u8)>>(), any::<bool>());
    (any::<(u16, u32, Option<u16>, u32, u32)>(), lists, address, "[a-z]{0,5}").prop_map(
        |(
            (id, precedence, instance, teid, far),
            (filters, qfis, qers),
            (v4, v6, is_ours),
            name,
        )| {
            Pdr {
                id,
                precedence,
                source: Source::SgiLan,
                instance,
                tunnel: v4.map(|_| LocalTunnel {
                    teid,
                    v4,
                    v6: v6.map(|it| it.0),
                    is_ours,
                    choose_id: v6.map(|it| it.1),
                }),
                user: v6.map(|_| UserAddress { v4, v6, is_ours }),
                framed: Vec::new(),
                filters,
                qfis,
                removal: None,
                far,
                urrs: qers.clone(),
                qers,
                predefined: vec![name],
            }
        },
    )
}

fn any_far() -> impl Strategy<Value = Far> {
    (any::<(u32, bool, bool, Option<u8>, u64)>(), any::<(Option<u32>, Ipv4Addr)>(), "[ -~]{0,9}")
        .prop_map(|((id, drop, buffer, bar, version), (teid, address), url)| {
            let outer = OuterHeader { teid, v4: Some(address), v6: None, port: None };
            let forwarding = Forwarding {
                destination: Destination::Control,
                instance: teid.map(|teid| teid as u16),
                outer: teid.map(|_| outer),
                marking: None,
                redirect: Some(match (drop, buffer) {
                    (true, true) => Redirect::Url(url),
                    (true, false) => Redirect::Address(address.into()),
                    (false, true) => Redirect::Both(address, address.to_ipv6_mapped()),
                    (false, false) => Redirect::Sip(url),
                }),
            };
            Far {
                id,
                actions: Actions { drop, buffer, ..Actions::default() },
                duplicating: vec![forwarding.clone()],
                forwarding: Some(forwarding),
                bar,
                end_markers: bar
                    .map(|bar| EndMarker { to: outer, instance: None, version, at: bar.into() })
                    .into_iter()
                    .collect(),
            }
        })
}

fn any_urr() -> impl Strategy<Value = Urr> {
    let counts = || any::<([u64; 4], [u64; 4], u64, u64, u64, u64, u64)>();
    (any::<(u32, u32, Option<u32>, bool)>(), any_volume(), counts(), counts()).prop_map(
        |((id, triggers, period_s, flag), volume, a, b)| Urr {
            id,
            triggers: ReportingTriggers(triggers.into()),
            period_s,
            volume_threshold: period_s.map(|_| volume),
            quota: Quota { volume: Some(volume), time_s: period_s, validity_s: None },
            progress: Progress {
                line: id,
                sequence: triggers,
                since: a.2,
                reported: a.0,
                granted: a.1,
                granted_at: a.3,
                elapsed: a.4,
                running: a.5,
                idle_after: a.6,
                elapsed_reported: b.2,
                elapsed_granted: b.3,
                first: b.4,
                period_at: b.5,
                ended: UsageReportTrigger(id.into()),
                has_traffic: flag,
                due: UsageReportTrigger(triggers.into()),
                started_at: b.6,
                stopped_at: b.2,
                traffic_after: b.5,
                split: period_s.map(|_| Split { counters: b.0, elapsed: b.6, at: b.2 }),
                is_after_monitoring: !flag,
            },
            ..typical(1).urrs.remove(0)
        },
    )
}

pub(crate) fn any_session() -> impl Strategy<Value = Session> {
    let lists = (
        prop::collection::vec(any_pdr(), 0..5),
        prop::collection::vec(any_far(), 0..5),
        prop::collection::vec(any_urr(), 0..5),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..3),
    );
    let report = (any_urr(), any::<Option<u8>>()).prop_map(|(urr, qfi)| Unacknowledged {
        message: urr.id,
        is_inactivity: false,
        downlink: qfi.map(|_| DownlinkData { pdr: 3, qfi, dscp: None }),
        usage: vec![UsageReport { counts: urr.progress.reported, ..UsageReport::default() }],
    });
    (any::<(u64, u64, u16, u32, bool)>(), lists, "\\PC{0,20}", prop::option::of(report)).prop_map(
        |(
            (seid, version, peer, generation, is_deleted),
            (pdrs, fars, urrs, sets),
            text,
            report,
        )| {
            Session {
                seid,
                version,
                peer,
                generation,
                is_deleted,
                network: Some(text),
                s_nssai: is_deleted.then_some(SNssai { sst: peer as u8, sd: generation >> 8 }),
                pdrs,
                fars,
                urrs,
                fq_csids: sets,
                reporting: Reporting {
                    notified: vec![peer],
                    unacknowledged: report.into_iter().collect(),
                    ..Reporting::default()
                },
                ..typical(5)
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(session in any_session()) {
        let bytes = encode(&session, Vec::new());
        prop_assert_eq!(decode(session.id, &record_of(&session), &bytes), Some(session));
    }

    #[test]
    fn what_is_cut_or_garbage_is_none_or_a_session(
        session in any_session(), cut in any::<prop::sample::Index>(), flips in any::<[u16; 3]>(),
    ) {
        let mut bytes = encode(&session, Vec::new());
        for flip in flips {
            let at = usize::from(flip) % bytes.len();
            bytes[at] ^= 1 << (flip >> 13);
        }
        let _ = decode(session.id, &record_of(&session), &bytes);
        let whole = encode(&session, Vec::new());
        let short = &whole[..cut.index(whole.len())];
        prop_assert_eq!(decode(session.id, &record_of(&session), short), None);
    }

    #[test]
    fn garbage_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode(SessionIndex(0), &record_of(&typical(1)), &bytes);
    }
}
