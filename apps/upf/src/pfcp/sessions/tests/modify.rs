use super::*;

const UE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 7);

/// Creates a testbed with a typical session. Returns its UP SEID.
fn one() -> (SessionTestbed, u64) {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| usual(w, &address(UE))));
    assert_eq!(answered.cause, 1);
    (world, answered.up.unwrap().seid)
}

fn update_far(
    w: &mut Writer<'_>,
    id: u32,
    action: ie::ApplyAction,
    teid: Option<u32>,
    marks: bool,
) {
    w.group(IeType::UPDATE_FAR, |w| {
        w.put(&ie::FarId(id));
        w.put(&action);
        w.group(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
            w.maybe(teid.map(|teid| ie::OuterHeaderCreation::gtp_u_v4(teid, GNB)).as_ref());
            if marks {
                w.put(&ie::PfcpsmreqFlags::SNDEM);
            }
        });
    });
}

#[test]
fn case_45_a_session_that_is_not_there() {
    let (mut world, seid) = one();
    for wrong in [0, seid + 1, seid + (1 << 32), u64::MAX] {
        let changed = world.ask(&modification(2, wrong, &|_| {}));
        assert_eq!((changed.seid, changed.why()), (0, (65, None, None)));
        let deleted = world.ask(&deletion(3, wrong));
        assert_eq!((deleted.seid, deleted.why()), (0, (65, None, None)));
    }
    assert_eq!(world.sessions.len(), 1);
}

#[test]
fn case_46_from_buffering_to_forwarding() {
    let (mut world, seid) = one();
    let buffer = ie::ApplyAction::BUFF | ie::ApplyAction::NOCP;
    let held = world.ask(&modification(2, seid, &|w| update_far(w, 2, buffer, None, false)));
    assert_eq!((held.cause, held.seid), (1, 77));
    let far = &world.only().fars[1];
    assert!(far.actions.buffer && far.actions.notify && !far.actions.forward);
    let forward = ie::ApplyAction::FORW;
    let on = world.ask(&modification(3, seid, &|w| update_far(w, 2, forward, Some(0x200), false)));
    assert_eq!(on.cause, 1);
    let session = world.only();
    let outer = session.fars[1].forwarding.as_ref().unwrap().outer.unwrap();
    assert_eq!((outer.teid, session.fars[1].end_markers.len()), (Some(0x200), 0));
    let rules = world.sessions.published().rules(session.id).unwrap();
    assert_eq!(rules.downlink.common.version, session.version as u32);
}

#[test]
fn case_67_an_end_marker_to_the_old_tunnel() {
    let (mut world, seid) = one();
    let forward = ie::ApplyAction::FORW;
    let flip = |world: &mut SessionTestbed, sequence, teid| {
        let request =
            modification(sequence, seid, &|w| update_far(w, 2, forward, Some(teid), true));
        assert_eq!(world.ask(&request).cause, 1);
    };
    flip(&mut world, 2, 0x200);
    let session = world.only();
    let marker = session.fars[1].end_markers[0];
    assert_eq!((marker.to.teid, marker.version), (Some(0x100), session.version));
    // No end marker is needed for the same tunnel.
    flip(&mut world, 3, 0x200);
    let tunnels = |world: &SessionTestbed| {
        let markers = world.only().fars[1].end_markers.clone();
        markers.iter().map(|marker| marker.to.teid.unwrap()).collect::<Vec<u32>>()
    };
    assert_eq!(tunnels(&world), [0x100]);
    // What no lane has sent yet stays due beside the next one.
    flip(&mut world, 4, 0x300);
    assert_eq!(tunnels(&world), [0x100, 0x200]);
    let session = world.only();
    assert!(session.fars[1].end_markers.iter().all(|it| it.version == session.version));
    let rules = world.sessions.published().rules(session.id).unwrap();
    assert_eq!((rules.cold.marker_teid, rules.cold.block != 0), (0x200, true));
    // Packets take this tunnel again, so it has no end.
    flip(&mut world, 5, 0x200);
    assert_eq!(tunnels(&world), [0x100, 0x300]);
    // There are limits, of number and time.
    for (sequence, teid) in (6..).zip(0x400..0x405) {
        flip(&mut world, sequence, teid);
    }
    assert_eq!(tunnels(&world), [0x400, 0x401, 0x402, 0x403]);
    assert_eq!(world.sessions.take_markers_given_up(), 3);
    world.now = world.now.after(10 * SECOND);
    flip(&mut world, 20, 0x500);
    assert_eq!((tunnels(&world), world.sessions.take_markers_given_up()), (vec![0x404], 4));
}

#[test]
fn case_77_packets_that_are_held_are_dropped() {
    let (mut world, seid) = one();
    assert_eq!(world.only().discarded, 0);
    let drop = modification(2, seid, &|w| w.put(&ie::PfcpsmreqFlags::DROBU));
    assert_eq!(world.ask(&drop).cause, 1);
    let session = world.only();
    assert_eq!(session.discarded, session.version);
}

#[test]
fn case_47_what_fails_half_way_leaves_everything_as_it_was() {
    let (mut world, seid) = one();
    let before = world.only();
    let used = world.sessions.addresses().usage().map(|it| it.2).collect::<Vec<_>>();
    let request = modification(2, seid, &|w| {
        w.group(IeType::REMOVE_PDR, |w| w.put(&ie::PdrId(1)));
        update_far(w, 2, ie::ApplyAction::DROP, None, true);
        w.put(&ie::PfcpsmreqFlags::DROBU);
        let dynamic = UeIpAddress { choose_v4: true, ..UeIpAddress::default() };
        pdr(w, 9, 1, &|w| core(w, b"internet", &dynamic), &|_| {});
        pdr(w, 10, 99, &|w| access(w, &choose(None)), &|_| {});
    });
    let failed = world.ask(&request);
    assert_eq!(failed.why(), (73, None, Some(FailedRuleId::Pdr(10))));
    assert_eq!(world.only(), before);
    assert_eq!(world.sessions.addresses().usage().map(|it| it.2).collect::<Vec<_>>(), used);
    let rules = world.sessions.published().rules(before.id).unwrap();
    assert_eq!(rules.uplink.common.version, before.version as u32);
}

#[test]
fn case_48_rules_are_removed() {
    let (mut world, seid) = one();
    let far = modification(2, seid, &|w| w.group(IeType::REMOVE_FAR, |w| w.put(&ie::FarId(2))));
    assert_eq!(world.ask(&far).why(), (73, None, Some(FailedRuleId::Far(2))), "PDR 2 has it");
    let pdr = modification(3, seid, &|w| w.group(IeType::REMOVE_PDR, |w| w.put(&ie::PdrId(2))));
    assert_eq!(world.ask(&pdr).cause, 1);
    assert_eq!(
        world
            .ask(&modification(4, seid, &|w| {
                w.group(IeType::REMOVE_PDR, |w| w.put(&ie::PdrId(2)));
            }))
            .why(),
        (73, None, Some(FailedRuleId::Pdr(2)))
    );
    assert_eq!(
        world
            .ask(&modification(5, seid, &|w| {
                w.group(IeType::REMOVE_FAR, |w| w.put(&ie::FarId(2)));
                w.group(IeType::REMOVE_QER, |w| w.put(&ie::QerId(1)));
            }))
            .cause,
        1
    );
    let session = world.only();
    assert_eq!((session.pdrs.len(), session.fars.len(), session.qers.len()), (1, 1, 0));
    assert!(session.pdrs[0].qers.is_empty());
    let instance = world.settings.instance("internet").unwrap();
    assert_eq!(world.sessions.find_user(instance, UE.into()), None);
}

#[test]
fn a_rule_is_replaced_in_one_request_and_keeps_its_tunnel() {
    let (mut world, seid) = one();
    let tunnel = world.only().pdrs[0].tunnel.unwrap();
    let own = FTeid { teid: tunnel.teid, v4: tunnel.v4, ..FTeid::default() };
    let answered = world.ask(&modification(2, seid, &|w| {
        w.group(IeType::REMOVE_PDR, |w| w.put(&ie::PdrId(1)));
        pdr(w, 1, 1, &|w| access(w, &own), &|_| {});
    }));
    assert_eq!((answered.cause, answered.created.len()), (1, 0));
    let session = world.only();
    let first = session.pdrs.iter().find(|pdr| pdr.id == 1).unwrap();
    assert_eq!((first.tunnel, first.urrs.len()), (Some(tunnel), 0));
}

#[test]
fn a_pdr_is_updated() {
    let (mut world, seid) = one();
    let before = world.only();
    let answered = world.ask(&modification(2, seid, &|w| {
        w.group(IeType::UPDATE_PDR, |w| {
            w.put(&ie::PdrId(1));
            w.put(&ie::Precedence(7));
        });
        w.group(IeType::UPDATE_PDR, |w| {
            w.put(&ie::PdrId(2));
            w.group(IeType::PDI, |w| core(w, b"internet", &address(Ipv4Addr::new(10, 99, 0, 8))));
        });
    }));
    assert_eq!(answered.cause, 1);
    let session = world.only();
    assert_eq!((session.pdrs[0].precedence, session.pdrs[0].tunnel), (7, before.pdrs[0].tunnel));
    assert_eq!(session.pdrs[0].qers, before.pdrs[0].qers);
    let instance = world.settings.instance("internet").unwrap();
    assert_eq!(world.sessions.find_user(instance, UE.into()), None);
    let now: IpAddr = [10, 99, 0, 8].into();
    assert_eq!(world.sessions.find_user(instance, now), Some(session.id));
    for unknown in [IeType::UPDATE_PDR, IeType::REMOVE_PDR] {
        let request = modification(3, seid, &|w| w.group(unknown, |w| w.put(&ie::PdrId(50))));
        assert_eq!(world.ask(&request).why(), (73, None, Some(FailedRuleId::Pdr(50))));
    }
}

#[test]
fn case_49_usage_is_queried() {
    let (mut world, seid) = one();
    let line = world.only().urrs[0].progress.line;
    world.count(line, 1000);
    let all = world.ask(&modification(2, seid, &|w| w.put(&ie::PfcpsmreqFlags::QAURR)));
    assert_eq!(all.usage, [(1, 0, ie::UsageReportTrigger::IMMER.0, Some(1000))]);
    world.count(line, 234);
    let query = modification(3, seid, &|w| w.group(IeType::QUERY_URR, |w| w.put(&ie::UrrId(1))));
    let one = world.ask(&query);
    assert_eq!(one.usage, [(1, 1, ie::UsageReportTrigger::IMMER.0, Some(234))]);
    // The same bytes again, also by a successor, and nothing is counted twice.
    world.restart();
    assert_eq!(world.handle(&query), one.bytes);
    assert_eq!(world.ask(&modification(4, seid, &|_| {})).usage, []);
    let wrong = modification(5, seid, &|w| w.group(IeType::QUERY_URR, |w| w.put(&ie::UrrId(9))));
    assert_eq!(world.ask(&wrong).why(), (73, None, Some(FailedRuleId::Urr(9))));
}

#[test]
fn a_urr_that_is_removed_reports_last_and_a_new_one_begins_from_zero() {
    let (mut world, seid) = one();
    world.count(world.only().urrs[0].progress.line, 1000);
    let answered = world.ask(&modification(2, seid, &|w| {
        w.group(IeType::REMOVE_URR, |w| w.put(&ie::UrrId(1)));
        urr(w, 2);
        w.group(IeType::UPDATE_PDR, |w| {
            w.put(&ie::PdrId(1));
            w.put(&ie::UrrId(2));
        });
    }));
    assert_eq!(answered.usage, [(1, 0, ie::UsageReportTrigger::TERMR.0, Some(1000))]);
    let session = world.only();
    assert_eq!((session.urrs.len(), session.urrs[0].id), (1, 2));
    world.count(session.urrs[0].progress.line, 50);
    let all = world.ask(&modification(3, seid, &|w| w.put(&ie::PfcpsmreqFlags::QAURR)));
    assert_eq!(all.usage, [(2, 0, ie::UsageReportTrigger::IMMER.0, Some(50))]);
}

/// TS 29.244 table 7.5.5.2-1 and clause 8.2.41: the report of a URR that no PDR has any more.
#[test]
fn a_urr_that_loses_its_last_pdr_reports_and_may_get_another_one() {
    let (mut world, seid) = one();
    let line = world.only().urrs[0].progress.line;
    world.count(line, 1000);
    let pdrs: Vec<_> =
        world.only().pdrs.iter().filter(|it| it.urrs.contains(&1)).map(|it| it.id).collect();
    let (last, others) = pdrs.split_last().unwrap();
    let without =
        |pdr| move |w: &mut Writer<'_>| w.group(IeType::REMOVE_PDR, |w| w.put(&ie::PdrId(pdr)));
    for pdr in others {
        assert_eq!(world.ask(&modification(2, seid, &without(*pdr))).usage, []);
    }
    let answered = world.ask(&modification(3, seid, &without(*last)));
    assert_eq!(answered.usage, [(1, 0, ie::UsageReportTrigger::TERMR.0, Some(1000))]);
    assert_eq!(world.only().urrs[0].id, 1, "the rule itself stays");
    assert_eq!(world.ask(&modification(4, seid, &|_| {})).usage, []);
}

#[test]
fn case_53_the_control_plane_moves_its_end() {
    let (mut world, seid) = one();
    let answered = world.ask(&modification(2, seid, &|w| {
        w.put(&FSeid { seid: 99, v4: Some(Ipv4Addr::new(10, 9, 0, 5)), v6: None });
    }));
    assert_eq!((answered.cause, answered.seid), (1, 99));
    let control = world.only().cp_fseid;
    assert_eq!((control.seid, control.address), (99, [10, 9, 0, 5].into()));
    assert_eq!(world.ask(&deletion(3, seid)).seid, 99);
}
