use super::*;

const UE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 7);

/// Sends an establishment with a PDR from the core and a FAR, changed by the caller.
pub(super) fn refused(
    world: &mut SessionTestbed,
    body: Body<'_>,
) -> (u8, Option<u16>, Option<FailedRuleId>) {
    let sequence = world.now.monotonic as u32 & 0xFF_FFFF;
    world.now = world.now.after(1);
    let answered = world.ask(&establishment(sequence, 77, body));
    assert_eq!(answered.seid, 77, "{answered:?}");
    assert_eq!((world.ids().len(), world.sessions.len()), (0, 0), "it changes nothing");
    answered.why()
}

pub(super) fn down(w: &mut Writer<'_>) {
    pdr(w, 2, 2, &|w| core(w, b"internet", &address(UE)), &|_| {});
}

/// Sends a PDR body given as bytes.
fn with_pdr(world: &mut SessionTestbed, body: Body<'_>) -> (u8, Option<u16>, Option<FailedRuleId>) {
    refused(world, &|w| {
        w.group(IeType::CREATE_PDR, |w| body(w));
        far_up(w, 1);
    })
}

#[test]
fn a_session_is_established() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| usual(w, &address(UE))));
    assert_eq!((answered.cause, answered.seid), (1, 77));
    let session = world.only();
    let up = answered.up.unwrap();
    assert_eq!((up.seid, up.v4, up.v6), (session.seid, Some(Ipv4Addr::new(10, 9, 0, 2)), None));
    assert_eq!(session.seid as u32, session.id.0);
    assert_eq!((session.cp_fseid.seid, session.peer), (77, 3));
    let tunnel = answered.tunnel(1);
    assert_eq!((tunnel.v4, tunnel.v6), (Some(N3), None));
    let shape = TeidLayout::of(512);
    assert_eq!(shape.session(tunnel.teid), session.id);
    assert_eq!(world.sessions.find_tunnel(tunnel.teid), Some(session.id));
    assert_eq!(world.sessions.find(up.seid), Some(session.clone()));
    let instance = world.settings.instance("internet").unwrap();
    assert_eq!(world.sessions.find_user(instance, UE.into()), Some(session.id));
    let rules = world.sessions.published().rules(session.id).unwrap();
    assert_eq!(rules.uplink.common.version, session.version as u32);
    world.restart();
    assert_eq!(world.only(), session);
}

#[test]
fn case_22_without_an_association() {
    let mut world = SessionTestbed::new();
    world.peer = None;
    assert_eq!(refused(&mut world, &|w| usual(w, &address(UE))), (72, None, None));
}

#[test]
fn cases_23_and_24_without_node_id_or_f_seid() {
    let mut world = SessionTestbed::new();
    let no_node = message(MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, 1, |w| {
        w.put(&FSeid { seid: 77, v4: Some(GNB), v6: None });
        usual(w, &address(UE));
    });
    let answered = world.ask(&no_node);
    assert_eq!((answered.seid, answered.why()), (77, (66, Some(60), None)));
    let no_seid = message(MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, 2, |w| {
        w.put(&ie::NodeId::V4(GNB));
        usual(w, &address(UE));
    });
    let answered = world.ask(&no_seid);
    assert_eq!((answered.seid, answered.why()), (0, (66, Some(57), None)));
}

#[test]
fn cases_25_to_28_what_is_missing_is_named() {
    let mut world = SessionTestbed::new();
    assert_eq!(refused(&mut world, &|w| far_up(w, 1)), (66, Some(1), None));
    assert_eq!(refused(&mut world, &down), (66, Some(3), None));
    let id = |w: &mut Writer<'_>| w.put(&ie::PdrId(1));
    let precedence = |w: &mut Writer<'_>| w.put(&ie::Precedence(1));
    let pdi = |w: &mut Writer<'_>| w.group(IeType::PDI, |w| core(w, b"internet", &address(UE)));
    let far = |w: &mut Writer<'_>| w.put(&ie::FarId(1));
    assert_eq!(with_pdr(&mut world, &|w| (id(w), precedence(w), far(w)).2), (66, Some(2), None));
    assert_eq!(with_pdr(&mut world, &|w| (precedence(w), pdi(w), far(w)).2), (66, Some(56), None));
    assert_eq!(with_pdr(&mut world, &|w| (id(w), pdi(w), far(w)).2), (66, Some(29), None));
    let no_source = |w: &mut Writer<'_>| w.group(IeType::PDI, |w| w.put(&address(UE)));
    let why = with_pdr(&mut world, &|w| (id(w), precedence(w), no_source(w), far(w)).3);
    assert_eq!(why, (66, Some(20), None));
    let why = with_pdr(&mut world, &|w| (id(w), precedence(w), pdi(w)).2);
    assert_eq!(why, (67, Some(108), None), "it could not say what becomes of packets");
}

#[test]
fn case_29_rules_that_are_not_there() {
    let mut world = SessionTestbed::new();
    let with = |world: &mut SessionTestbed, far: u32, more: Body<'_>| {
        refused(world, &|w| {
            pdr(w, 7, far, &|w| core(w, b"internet", &address(UE)), more);
            far_up(w, 1);
        })
    };
    let failed = (73, None, Some(FailedRuleId::Pdr(7)));
    assert_eq!(with(&mut world, 9, &|_| {}), failed);
    assert_eq!(with(&mut world, 1, &|w| w.put(&ie::QerId(9))), failed);
    assert_eq!(with(&mut world, 1, &|w| w.put(&ie::UrrId(9))), failed);
    let why = refused(&mut world, &|w| {
        pdr(w, 7, 5, &|w| core(w, b"internet", &address(UE)), &|_| {});
        w.group(IeType::CREATE_FAR, |w| {
            w.put(&ie::FarId(5));
            w.put(&ie::ApplyAction::BUFF);
            w.put(&ie::BarId(3));
        });
    });
    assert_eq!(why, (73, None, Some(FailedRuleId::Far(5))));
}

#[test]
fn case_30_two_rules_of_one_number() {
    let mut world = SessionTestbed::new();
    let why = refused(&mut world, &|w| {
        down(w);
        down(w);
        far_up(w, 2);
    });
    assert_eq!(why, (73, None, Some(FailedRuleId::Pdr(2))));
    let why = refused(&mut world, &|w| {
        down(w);
        far_up(w, 2);
        far_up(w, 2);
    });
    assert_eq!(why, (73, None, Some(FailedRuleId::Far(2))));
}

#[test]
fn cases_31_and_32_lengths() {
    let mut world = SessionTestbed::new();
    let why = refused(&mut world, &|w| {
        // A PDI whose length exceeds that of its PDR.
        w.raw(IeType::CREATE_PDR, &[0, 56, 0, 2, 0, 1, 0, 2, 0, 99, 0, 20, 0, 1, 0]);
        far_up(w, 1);
    });
    assert_eq!(why.0, 68);
    let empty = |ie: IeType| {
        move |w: &mut Writer<'_>| {
            w.put(&ie::PdrId(1));
            w.put(&ie::Precedence(1));
            w.group(IeType::PDI, |w| {
                w.put(&ie::SourceInterface::ACCESS);
                w.raw(ie, &[]);
            });
            w.put(&ie::FarId(1));
        }
    };
    let why = with_pdr(&mut world, &empty(IeType::F_TEID));
    assert_eq!(why, (68, Some(IeType::F_TEID.0), None));
    let why = refused(&mut world, &|w| {
        down(w);
        w.group(IeType::CREATE_FAR, |w| {
            w.put(&ie::FarId(2));
            w.put(&ie::ApplyAction::FORW);
            w.group(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(&ie::DestinationInterface::ACCESS);
                w.raw(IeType::OUTER_HEADER_CREATION, &[]);
            });
        });
    });
    assert_eq!(why, (68, Some(84), None));
}

fn with_filter(
    world: &mut SessionTestbed,
    filter: &ie::SdfFilter<'_>,
) -> (u8, Option<u16>, Option<FailedRuleId>) {
    refused(world, &|w| {
        let pdi = |w: &mut Writer<'_>| {
            core(w, b"internet", &address(UE));
            w.put(filter);
        };
        pdr(w, 1, 1, &pdi, &|_| {});
        far_up(w, 1);
    })
}

#[test]
fn case_33_filters_that_are_none_and_too_many() {
    let mut world = SessionTestbed::new();
    for text in [&b"permit out ip from"[..], b"", b"\xFF", b"deny in ip from any to any"] {
        let filter = ie::SdfFilter { flow_description: Some(text), ..<_>::default() };
        assert_eq!(with_filter(&mut world, &filter), (69, Some(23), None), "{text:?}");
    }
    assert_eq!(with_filter(&mut world, &ie::SdfFilter::default()), (69, Some(23), None));
    let why = refused(&mut world, &|w| {
        let pdi = |w: &mut Writer<'_>| {
            core(w, b"internet", &address(UE));
            for _ in 0..17 {
                let flow_description = Some(&b"permit out 17 from any to assigned"[..]);
                w.put(&ie::SdfFilter { flow_description, ..<_>::default() });
            }
        };
        pdr(w, 1, 1, &pdi, &|_| {});
        far_up(w, 1);
    });
    assert_eq!(why, (73, Some(23), Some(FailedRuleId::Pdr(1))));
}

#[test]
fn case_35_a_filter_by_its_number() {
    let mut world = SessionTestbed::new();
    let refer = ie::SdfFilter { filter_id: Some(5), ..<_>::default() };
    let why = with_filter(&mut world, &refer);
    assert_eq!(why, (73, Some(23), Some(FailedRuleId::Pdr(1))), "there is no such filter");
    let flow_description = Some(&b"permit out 17 from any 53 to assigned"[..]);
    let define = ie::SdfFilter { flow_description, filter_id: Some(5), ..<_>::default() };
    let answered = world.ask(&establishment(1, 77, &|w| {
        let with = |filter: ie::SdfFilter<'static>| {
            move |w: &mut Writer<'_>| {
                core(w, b"internet", &address(UE));
                w.put(&filter);
            }
        };
        pdr(w, 1, 1, &with(refer), &|_| {});
        pdr(w, 2, 1, &with(define), &|_| {});
        far_up(w, 1);
    }));
    assert_eq!(answered.cause, 1);
    let session = world.only();
    assert_eq!(session.pdrs[0].filters, session.pdrs[1].filters);
    assert!(session.pdrs[0].filters[0].flow.is_some());
}

#[test]
fn cases_36_and_37_what_is_unknown_is_ignored_and_the_first_counts() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| {
        w.raw(IeType(999), b"what");
        w.raw(IeType(0x8001), b"\x12\x34enterprise");
        usual(w, &address(UE));
        w.put(&FSeid { seid: 78, v4: Some(GNB), v6: None });
    }));
    assert_eq!((answered.cause, answered.seid), (1, 77));
    assert_eq!(world.only().cp_fseid.seid, 77);
}

#[test]
fn cases_38_and_39_short_and_long_forms() {
    let mut world = SessionTestbed::new();
    let forms: [(&[u8], &[u8]); 3] = [(&[2], &[0]), (&[2, 0], &[0, 1]), (&[2, 0, 0], &[0, 0])];
    for (number, (action, removal)) in forms.into_iter().enumerate() {
        let user = Ipv4Addr::new(10, 99, 1, number as u8);
        let answered = world.ask(&establishment(number as u32, 77, &|w| {
            let raw: Body<'_> = &|w| w.raw(IeType::OUTER_HEADER_REMOVAL, removal);
            pdr(w, 1, 1, &|w| access(w, &choose(None)), raw);
            pdr(w, 2, 1, &|w| core(w, b"internet", &address(user)), &|_| {});
            w.group(IeType::CREATE_FAR, |w| {
                w.put(&ie::FarId(1));
                w.raw(IeType::APPLY_ACTION, action);
                w.group(IeType::FORWARDING_PARAMETERS, |w| w.put(&ie::DestinationInterface::CORE));
            });
        }));
        assert_eq!(answered.cause, 1, "{action:?}: a PDR without a QER forwards");
    }
    let removals: Vec<_> =
        world.sessions.iter().map(|it| it.pdrs[0].removal.unwrap().extension).collect();
    assert_eq!(removals, [false, true, false]);
}

#[test]
fn actions_that_cannot_be() {
    let mut world = SessionTestbed::new();
    let with = |world: &mut SessionTestbed, action: u8, more: Body<'_>| {
        refused(world, &|w| {
            down(w);
            w.group(IeType::CREATE_FAR, |w| {
                w.put(&ie::FarId(2));
                w.raw(IeType::APPLY_ACTION, &[action]);
                more(w);
            });
        })
    };
    for action in [0, 5, 8, 9] {
        assert_eq!(with(&mut world, action, &|_| {}), (69, Some(44), None), "{action}");
    }
    assert_eq!(with(&mut world, 0x20, &|_| {}), (76, Some(44), None));
    assert_eq!(with(&mut world, 2, &|_| {}), (67, Some(4), None));
    let policy: Body<'_> = &|w| {
        w.group(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(&ie::DestinationInterface::CORE);
            w.put(&ie::ForwardingPolicy(b"gold"));
        });
    };
    assert_eq!(with(&mut world, 2, policy), (70, Some(41), None));
}

#[test]
fn what_is_not_done_is_refused() {
    let mut world = SessionTestbed::new();
    let endpoint = refused(&mut world, &|w| {
        down(w);
        far_up(w, 2);
        w.group(IeType::CREATE_TRAFFIC_ENDPOINT, |w| w.put(&ie::TrafficEndpointId(1)));
    });
    assert_eq!(endpoint, (76, Some(127), None));
    let ethernet = refused(&mut world, &|w| {
        down(w);
        far_up(w, 2);
        w.put(&ie::EthernetPduSessionInformation::ETHI);
    });
    assert_eq!(ethernet, (76, Some(142), None));
    let pdi = |more: Body<'_>, world: &mut SessionTestbed| {
        refused(world, &|w| {
            let all = |w: &mut Writer<'_>| {
                core(w, b"internet", &address(UE));
                more(w);
            };
            pdr(w, 1, 1, &all, &|_| {});
            far_up(w, 1);
        })
    };
    assert_eq!(pdi(&|w| w.put(&ie::ApplicationId(b"video")), &mut world), (81, Some(24), None));
    let unknown = refused(&mut world, &|w| {
        pdr(w, 1, 1, &|w| core(w, b"mars", &address(UE)), &|_| {});
        far_up(w, 1);
    });
    assert_eq!(unknown, (73, Some(22), Some(FailedRuleId::Pdr(1))));
    let predefined =
        |name: &'static [u8]| move |w: &mut Writer<'_>| w.put(&ie::ActivatePredefinedRules(name));
    let unknown = refused(&mut world, &|w| {
        pdr(w, 1, 1, &|w| core(w, b"internet", &address(UE)), &predefined(b"yes-video"));
        far_up(w, 1);
    });
    assert_eq!(unknown, (80, Some(106), Some(FailedRuleId::Pdr(1))));
    let known = world.ask(&establishment(1, 77, &|w| {
        pdr(w, 1, 1, &|w| core(w, b"internet", &address(UE)), &predefined(b"no-video"));
        far_up(w, 1);
    }));
    assert_eq!(known.cause, 1);
}

#[test]
fn a_session_says_who_it_is_for() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| {
        usual(w, &address(UE));
        w.put(&ie::UserId { imsi: Some(&[0x00, 0x01, 0x01, 0xF5]), ..<_>::default() });
        w.put(&ie::ApnDnn(b"\x08internet\x03mnc"));
    }));
    assert_eq!(answered.cause, 1);
    let session = world.only();
    assert_eq!(session.supi.as_deref(), Some("0010105"));
    assert_eq!(session.network.as_deref(), Some("internet.mnc"));
    assert_eq!(world.sessions.find_supi("0010105").collect::<Vec<_>>(), [session]);
    assert_eq!(world.sessions.find_supi("0010106").count(), 0);
}

#[test]
fn case_52_no_more_sessions_than_places() {
    let mut world = SessionTestbed::with(serde_json::json!({ "sessions": 300 }));
    for number in 0..300_u32 {
        let user = Ipv4Addr::from_bits(0x0B00_0000 + number);
        let answered = world.ask(&establishment(number, 77, &|w| usual(w, &address(user))));
        assert_eq!(answered.cause, 1);
    }
    let one_more = establishment(300, 78, &|w| usual(w, &address(UE)));
    assert_eq!(world.ask(&one_more).why(), (75, None, None));
    let seid = world.sessions.iter().next().unwrap().seid;
    assert_eq!(world.ask(&deletion(301, seid)).cause, 1);
    assert_eq!(world.ask(&one_more).why(), (75, None, None), "the place rests");
    world.now = world.now.after(12 * SECOND);
    assert_eq!(world.ask(&one_more).cause, 1);
    assert_eq!(world.ask(&deletion(302, seid)).why(), (65, None, None), "it is another session");
}

#[test]
fn limits_of_rules() {
    let mut world = SessionTestbed::with(serde_json::json!({ "limits": { "qers": 2 } }));
    let why = refused(&mut world, &|w| {
        down(w);
        far_up(w, 2);
        (1..4).for_each(|id| qer(w, id));
    });
    assert_eq!(why, (73, None, Some(FailedRuleId::Qer(3))));
}
