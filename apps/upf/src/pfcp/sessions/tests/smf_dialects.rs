//! Dialects of SMFs, and refusals of rules that would forward nothing.

use super::*;

const UE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 7);
const NETWORK_INSTANCE: Option<u16> = Some(22);
const OUTER_HEADER: Option<u16> = Some(84);

fn uplink(w: &mut Writer<'_>, tunnel: &FTeid, instance: &[u8]) {
    w.put(&ie::SourceInterface::ACCESS);
    w.put(tunnel);
    w.put(&ie::NetworkInstance(instance));
}

fn far(w: &mut Writer<'_>, id: u32, action: ie::ApplyAction, parameters: Body<'_>) {
    w.group(IeType::CREATE_FAR, |w| {
        w.put(&ie::FarId(id));
        w.put(&action);
        w.group(IeType::FORWARDING_PARAMETERS, |w| parameters(w));
    });
}

fn to_gnb(w: &mut Writer<'_>, outer: &ie::OuterHeaderCreation) {
    w.put(&ie::DestinationInterface::ACCESS);
    w.put(outer);
}

/// Establishes a session whose downlink FAR has these parameters. Returns the response.
fn with_far(action: ie::ApplyAction, parameters: Body<'_>) -> (SessionTestbed, Answered) {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| {
        pdr(w, 1, 1, &|w| access(w, &choose(None)), &|_| {});
        pdr(w, 2, 2, &|w| core(w, b"internet", &address(UE)), &|_| {});
        far_up(w, 1);
        far(w, 2, action, parameters);
    }));
    (world, answered)
}

/// Open5GS, free5GC and SD-Core name the DNN on both sides.
#[test]
fn a_data_network_on_the_access_side_is_served_by_n3() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| {
        pdr(w, 1, 1, &|w| uplink(w, &choose(None), b"\x08internet"), &|_| {});
        pdr(w, 2, 2, &|w| core(w, b"internet", &address(UE)), &|_| {});
        pdr(w, 3, 1, &|w| uplink(w, &choose(None), b"office"), &|_| {});
        far_up(w, 1);
        far(w, 2, ie::ApplyAction::FORW, &|w| {
            to_gnb(w, &ie::OuterHeaderCreation::gtp_u_v4(0x100, GNB));
            w.put(&ie::NetworkInstance(b"internet"));
        });
    }));
    assert_eq!(answered.why(), (1, None, None));
    assert_eq!([answered.tunnel(1).v4, answered.tunnel(3).v4], [Some(N3); 2]);
    let rules = world.sessions.published().rules(world.only().id).unwrap();
    assert!(rules.has_blocks());
}

#[test]
fn what_can_have_no_exit_is_refused_with_the_rule() {
    let forward = ie::ApplyAction::FORW;
    let failed = |id| Some(FailedRuleId::Far(id));
    // N9 is no data network.
    let (_, answered) = with_far(forward, &|w| {
        w.put(&ie::DestinationInterface::CORE);
        w.put(&ie::NetworkInstance(b"between"));
    });
    assert_eq!(answered.why(), (73, NETWORK_INSTANCE, failed(2)));
    // N9 has no IPv6 address.
    let (_, answered) = with_far(forward, &|w| {
        let peer = "2001:db8::1".parse().unwrap();
        to_gnb(w, &ie::OuterHeaderCreation::gtp_u_v6(0x100, peer));
        w.put(&ie::NetworkInstance(b"between"));
    });
    assert_eq!(answered.why(), (73, OUTER_HEADER, failed(2)));
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| {
        pdr(w, 1, 1, &|w| core(w, b"access", &address(UE)), &|_| {});
        far_up(w, 1);
    }));
    assert_eq!(answered.why(), (73, NETWORK_INSTANCE, Some(FailedRuleId::Pdr(1))));
    assert_eq!(world.sessions.len(), 0);
}

/// An intermediate UPF forwards by tunnels only, whether or not the SMF names the data network.
#[test]
fn a_packet_for_the_data_network_is_refused_where_there_is_no_n6() {
    let no_n6 = serde_json::json!({ "pools": [], "interfaces": {
        "a": { "port": "a", "role": "n3", "addresses": ["192.168.1.10"] },
        "b": { "port": "a", "role": "n9", "addresses": ["192.168.9.10"] },
    } });
    let mut world = SessionTestbed::with(no_n6);
    let mut sequence = 0;
    let mut with = |action: ie::ApplyAction, parameters: Body<'_>| {
        sequence += 1;
        let answered = world.ask(&establishment(sequence, 77, &|w| {
            let up = |w: &mut Writer<'_>| {
                w.put(&ie::SourceInterface::ACCESS);
                w.put(&choose(None));
            };
            pdr(w, 1, 2, &up, &|_| {});
            far(w, 2, action, parameters);
        }));
        answered.why()
    };
    let forward = ie::ApplyAction::FORW;
    let refused = (73, OUTER_HEADER, Some(FailedRuleId::Far(2)));
    let interfaces = [ie::DestinationInterface::CORE, ie::DestinationInterface::SGI_LAN];
    for interface in interfaces {
        assert_eq!(with(forward, &|w| w.put(&interface)), refused);
        let to_psa = |w: &mut Writer<'_>| {
            w.put(&interface);
            w.put(&ie::OuterHeaderCreation::gtp_u_v4(0x300, GNB));
        };
        assert_eq!(with(forward, &to_psa), (1, None, None));
        assert_eq!(with(ie::ApplyAction::DROP, &|w| w.put(&interface)), (1, None, None));
    }
}

/// A FAR towards the access network may wait for the tunnel of the gNB; the CP function knows its
/// own.
#[test]
fn a_far_to_the_cp_function_needs_its_tunnel() {
    let to_control = |w: &mut Writer<'_>| w.put(&ie::DestinationInterface::CP_FUNCTION);
    let (_, answered) = with_far(ie::ApplyAction::FORW, &to_control);
    assert_eq!(answered.why(), (73, OUTER_HEADER, Some(FailedRuleId::Far(2))));
    let (_, answered) = with_far(ie::ApplyAction::DROP, &to_control);
    assert_eq!(answered.why(), (1, None, None));
    let (_, answered) = with_far(ie::ApplyAction::FORW, &|w| {
        to_control(w);
        w.put(&ie::OuterHeaderCreation::gtp_u_v4(0x5, Ipv4Addr::new(10, 9, 0, 1)));
    });
    assert_eq!(answered.why(), (1, None, None));
    let (_, answered) =
        with_far(ie::ApplyAction::FORW, &|w| w.put(&ie::DestinationInterface::ACCESS));
    assert_eq!(answered.why(), (1, None, None));
}

/// A PDR that no packet could ever match would be a black hole of its own kind.
#[test]
fn a_pdr_that_no_packet_can_reach_is_refused() {
    const F_TEID: Option<u16> = Some(21);
    const UE_IP_ADDRESS: Option<u16> = Some(93);
    let core_without_address = |w: &mut Writer<'_>| {
        w.put(&ie::SourceInterface::CORE);
        w.put(&ie::NetworkInstance(b"internet"));
    };
    let source = |source: ie::SourceInterface| move |w: &mut Writer<'_>| w.put(&source);
    let establish = |body: Body<'_>| {
        let mut world = SessionTestbed::new();
        let answered = world.ask(&establishment(1, 77, &|w| {
            body(w);
            far_up(w, 1);
        }));
        (world, answered)
    };
    let failed = |id| Some(FailedRuleId::Pdr(id));
    for source in [source(ie::SourceInterface::ACCESS), source(ie::SourceInterface::CP_FUNCTION)] {
        let (world, answered) = establish(&|w| pdr(w, 5, 1, &source, &|_| {}));
        assert_eq!((answered.why(), world.sessions.len()), ((73, F_TEID, failed(5)), 0));
    }
    let (_, answered) = establish(&|w| {
        // The address of an uplink PDR leads no packet of the data network here.
        let up = |w: &mut Writer<'_>| {
            access(w, &choose(None));
            w.put(&address(UE));
        };
        pdr(w, 1, 1, &up, &|_| {});
        pdr(w, 2, 1, &core_without_address, &|_| {});
    });
    assert_eq!(answered.why(), (73, UE_IP_ADDRESS, failed(2)));
    // Another PDR of the same data network leads packets to it.
    let (mut world, answered) = establish(&|w| {
        pdr(w, 2, 1, &core_without_address, &|_| {});
        pdr(w, 3, 1, &|w| core(w, b"internet", &address(UE)), &|_| {});
    });
    assert_eq!(answered.why(), (1, None, None));
    let seid = answered.up.unwrap().seid;
    let office = |w: &mut Writer<'_>| {
        w.put(&ie::SourceInterface::CORE);
        w.put(&ie::NetworkInstance(b"office"));
    };
    let answered = world.ask(&modification(2, seid, &|w| pdr(w, 4, 1, &office, &|_| {})));
    assert_eq!(answered.why(), (73, UE_IP_ADDRESS, failed(4)));
    // The SMF may remove what leads to it, and then the rest.
    let remove = |sequence, id| {
        modification(sequence, seid, &|w| w.group(IeType::REMOVE_PDR, |w| w.put(&ie::PdrId(id))))
    };
    assert_eq!(world.ask(&remove(3, 3)).why(), (1, None, None));
    assert_eq!(world.ask(&remove(4, 2)).why(), (1, None, None));
}

/// The interface decides about the family of a dual-stack outer header.
#[test]
fn a_dual_stack_peer_is_sent_to_in_a_family_that_the_interface_has() {
    let (world, answered) = with_far(ie::ApplyAction::FORW, &|w| {
        let both = ie::OuterHeaderCreation {
            description: 0x0300,
            teid: Some(0x100),
            v4: Some(GNB),
            v6: Some("2001:db8::1".parse().unwrap()),
            ..<_>::default()
        };
        to_gnb(w, &both);
        w.put(&ie::NetworkInstance(b"between"));
    });
    assert_eq!(answered.cause, 1);
    let rules = world.sessions.published().rules(world.only().id).unwrap();
    assert_eq!(rules.downlink.common.forwarding.peer, GNB.octets());
}

/// pfcpsim sends FARs that drop or buffer with the tunnel of nobody.
#[test]
fn an_outer_header_is_judged_when_packets_take_it() {
    let nobody = ie::OuterHeaderCreation::gtp_u_v4(0, Ipv4Addr::UNSPECIFIED);
    let (mut world, answered) = with_far(ie::ApplyAction::DROP, &|w| to_gnb(w, &nobody));
    assert_eq!(answered.why(), (1, None, None));
    let seid = answered.up.unwrap().seid;
    let update = |sequence, outer: Option<ie::OuterHeaderCreation>| {
        modification(sequence, seid, &|w| {
            w.group(IeType::UPDATE_FAR, |w| {
                w.put(&ie::FarId(2));
                w.put(&ie::ApplyAction::FORW);
                w.group(IeType::UPDATE_FORWARDING_PARAMETERS, |w| w.maybe(outer.as_ref()));
            });
        })
    };
    assert_eq!(world.ask(&update(2, None)).why(), (69, OUTER_HEADER, None));
    let gnb = ie::OuterHeaderCreation::gtp_u_v4(0x100, GNB);
    assert_eq!(world.ask(&update(3, Some(gnb))).why(), (1, None, None));
}

#[test]
fn an_outer_header_of_udp_only_is_refused() {
    let (_, answered) = with_far(ie::ApplyAction::FORW, &|w| {
        let udp = ie::OuterHeaderCreation {
            description: ie::OuterHeaderCreation::UDP_IPV4,
            v4: Some(GNB),
            port: Some(9),
            ..<_>::default()
        };
        to_gnb(w, &udp);
    });
    assert_eq!(answered.why(), (76, OUTER_HEADER, None));
}

/// Some versions of SD-Core write the group of Create FAR.
#[test]
fn an_updated_far_may_have_the_parameters_of_a_new_one() {
    let gnb = ie::OuterHeaderCreation::gtp_u_v4(0x100, GNB);
    let (mut world, answered) = with_far(ie::ApplyAction::FORW, &|w| to_gnb(w, &gnb));
    let seid = answered.up.unwrap().seid;
    let answered = world.ask(&modification(2, seid, &|w| {
        w.group(IeType::UPDATE_FAR, |w| {
            w.put(&ie::FarId(2));
            let moved = ie::OuterHeaderCreation::gtp_u_v4(0x200, GNB);
            w.group(IeType::FORWARDING_PARAMETERS, |w| to_gnb(w, &moved));
        });
    }));
    assert_eq!(answered.cause, 1);
    let outer = world.only().fars[1].forwarding.as_ref().unwrap().outer.unwrap();
    assert_eq!(outer.teid, Some(0x200));
}

/// Open5GS asks for the same endpoint again when it adds a flow, also after a restart of the UPF.
#[test]
fn a_choose_id_is_one_tunnel_in_all_requests_of_a_session() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| {
        pdr(w, 1, 1, &|w| access(w, &choose(Some(5))), &|_| {});
        pdr(w, 2, 2, &|w| core(w, b"internet", &address(UE)), &|_| {});
        far_up(w, 1);
        far_down(w, 2, 0x100);
    }));
    let (seid, first) = (answered.up.unwrap().seid, answered.tunnel(1));
    world.restart();
    let add = |sequence, id, choose_id, remove: &'static [u16]| {
        modification(sequence, seid, &|w| {
            for id in remove {
                w.group(IeType::REMOVE_PDR, |w| w.put(&ie::PdrId(*id)));
            }
            pdr(w, id, 1, &|w| access(w, &choose(choose_id)), &|_| {});
        })
    };
    assert_eq!(world.ask(&add(2, 3, Some(5), &[])).tunnel(3), first);
    let others = [world.ask(&add(3, 4, Some(6), &[])), world.ask(&add(4, 5, None, &[]))];
    assert!([4, 5].iter().zip(&others).all(|(id, it)| it.tunnel(*id).teid != first.teid));
    // Without a PDR that has it the tunnel is gone.
    assert_ne!(world.ask(&add(5, 6, Some(5), &[1, 3])).tunnel(6).teid, first.teid);
    let of_core = world.ask(&modification(6, seid, &|w| {
        let pdi = |w: &mut Writer<'_>| {
            w.put(&ie::SourceInterface::CORE);
            w.put(&choose(Some(5)));
        };
        pdr(w, 7, 1, &pdi, &|_| {});
    }));
    assert_ne!(of_core.tunnel(7).v4, Some(N3), "packets of another interface end at another one");
}

/// Open5GS changes the filters of a flow with a PDI that has neither F-TEID nor QFI
/// (docs/why/0022-partial-pdi.md).
#[test]
fn a_partial_pdi_keeps_what_identifies_the_packets() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| {
        let up = |w: &mut Writer<'_>| {
            access(w, &choose(None));
            w.put(&ie::Qfi(3));
        };
        pdr(w, 1, 1, &up, &|_| {});
        pdr(w, 2, 2, &|w| core(w, b"internet", &address(UE)), &|_| {});
        far_up(w, 1);
        far_down(w, 2, 0x100);
    }));
    let seid = answered.up.unwrap().seid;
    let before = world.only();
    let update = |sequence, id, pdi: Body<'_>| {
        modification(sequence, seid, &|w| {
            w.group(IeType::UPDATE_PDR, |w| {
                w.put(&ie::PdrId(id));
                w.group(IeType::PDI, |w| pdi(w));
            });
        })
    };
    let filter = ie::SdfFilter {
        flow_description: Some(b"permit out udp from any to assigned"),
        ..ie::SdfFilter::default()
    };
    let partial = |source: ie::SourceInterface| {
        move |w: &mut Writer<'_>| {
            w.put(&source);
            w.put(&filter);
        }
    };
    for (id, source) in [(1, ie::SourceInterface::ACCESS), (2, ie::SourceInterface::CORE)] {
        assert_eq!(world.ask(&update(u32::from(id) + 1, id, &partial(source))).cause, 1);
    }
    let after = world.only();
    for (before, after) in before.pdrs.iter().zip(&after.pdrs) {
        let kept = |pdr: &Pdr| (pdr.tunnel, pdr.user, pdr.instance, pdr.qfis.clone());
        assert_eq!(kept(after), kept(before));
        assert_eq!(after.filters.len(), 1);
    }
    // A complete PDI replaces all: no QFI, no filter.
    let tunnel = before.pdrs[0].tunnel.unwrap();
    let own = FTeid { teid: tunnel.teid, v4: tunnel.v4, ..FTeid::default() };
    assert_eq!(world.ask(&update(4, 1, &|w| access(w, &own))).cause, 1);
    let pdr = world.only().pdrs[0].clone();
    assert!(pdr.qfis.is_empty() && pdr.filters.is_empty() && pdr.tunnel == Some(tunnel));
    // The tunnel of a PDR that moves to the data network goes.
    let chosen = world.ask(&update(5, 2, &|w| {
        w.put(&ie::SourceInterface::CORE);
        w.put(&choose(None));
    }));
    assert_eq!((chosen.cause, world.only().pdrs[1].user), (1, None));
    assert_eq!(world.ask(&update(6, 2, &|w| core(w, b"internet", &address(UE)))).cause, 1);
    assert_eq!(world.only().pdrs[1].tunnel, None);
}

/// Open5GS without FTUP writes the only address that it knows, also for packets that it sends to
/// users itself. Those arrive at it, unless N3 has it.
#[test]
fn a_tunnel_at_the_address_of_n4_ends_on_n3_but_for_the_cp_function() {
    let of_n4 = |teid| FTeid { teid, v4: Some([10, 9, 0, 2].into()), ..FTeid::default() };
    let request = establishment(1, 77, &|w| {
        pdr(w, 1, 1, &|w| access(w, &of_n4(5)), &|_| {});
        let of_cp_function = |w: &mut Writer<'_>| {
            w.put(&ie::SourceInterface::CP_FUNCTION);
            w.put(&of_n4(6));
        };
        pdr(w, 3, 2, &of_cp_function, &|_| {});
        far_up(w, 1);
        far_down(w, 2, 0x100);
    });
    let without_n9 = serde_json::json!({ "interfaces": {
        "a": { "port": "a", "role": "n3", "network-instances": ["access"],
               "addresses": ["192.168.1.10"] },
        "c": { "port": "b", "role": "n6", "network-instances": ["internet", "office"] },
    } });
    for mut world in [SessionTestbed::new(), SessionTestbed::with(without_n9)] {
        assert_eq!(world.ask(&request).why(), (1, None, None));
        let tunnels = world.only().pdrs.iter().map(|pdr| pdr.tunnel.unwrap()).collect::<Vec<_>>();
        assert_eq!(
            tunnels.iter().map(|it| (it.teid, it.v4)).collect::<Vec<_>>(),
            [(5, Some(N3)), (6, Some([10, 9, 0, 2].into()))]
        );
    }
    let two = serde_json::json!({ "interfaces": {
        "a": { "port": "a", "role": "n3", "addresses": ["192.168.1.10"] },
        "b": { "port": "a", "role": "n3", "addresses": ["192.168.2.10"] },
        "c": { "port": "b", "role": "n6", "network-instances": ["internet", "office"] },
    } });
    let mut world = SessionTestbed::with(two);
    let ambiguous = (73, Some(21), Some(FailedRuleId::Pdr(1)));
    assert_eq!(world.ask(&request).why(), ambiguous);
}

#[test]
fn a_tunnel_at_the_address_of_another_is_refused() {
    let v4_only = serde_json::json!({ "interfaces": {
        "a": { "port": "a", "role": "n3", "addresses": ["192.168.1.10", "203.0.113.10"] },
        "c": { "port": "b", "role": "n6", "network-instances": ["internet", "office"] },
    } });
    let with = |world: &mut SessionTestbed, v4: Option<[u8; 4]>, v6: Option<&str>| {
        let v6 = v6.map(|text| text.parse().unwrap());
        let tunnel = FTeid { teid: 5, v4: v4.map(Into::into), v6, ..FTeid::default() };
        let request = establishment(1, 77, &|w| {
            pdr(w, 1, 1, &|w| access(w, &tunnel), &|_| {});
            far_up(w, 1);
        });
        world.ask(&request).why()
    };
    let refused = (73, Some(21), Some(FailedRuleId::Pdr(1)));
    let own_v6 = Some("2001:db8:3::10");
    let mut world = SessionTestbed::new();
    assert_eq!(with(&mut world, Some([8, 8, 8, 8]), None), refused);
    assert_eq!(with(&mut world, None, Some("2001:db8::8")), refused);
    assert_eq!(world.ids().len(), 0, "nothing is left of them");
    let mut narrow = SessionTestbed::with(v4_only.clone());
    assert_eq!(with(&mut narrow, None, own_v6), refused, "N3 has IPv4 only");
    // One address of ours is enough, and each that is configured is one.
    for (world, v4, v6) in [
        (&mut world, None, own_v6),
        (&mut narrow, Some([192, 168, 1, 10]), own_v6),
        (&mut SessionTestbed::with(v4_only), Some([203, 0, 113, 10]), None),
    ] {
        assert_eq!(with(world, v4, v6), (1, None, None));
    }
}

/// Packets that a base station sends back to the access network are the user's downlink packets, so
/// their source is any host.
#[test]
fn indirect_forwarding_checks_no_source() {
    use crate::rules::layout::session_rules::flag;
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| {
        pdr(w, 1, 1, &|w| access(w, &choose(None)), &|_| {});
        pdr(w, 2, 2, &|w| core(w, b"internet", &address(UE)), &|_| {});
        far_up(w, 1);
        far_down(w, 2, 0x100);
    }));
    let checked = |world: &SessionTestbed| {
        let rules = *world.sessions.published().rules(world.only().id).unwrap();
        rules.uplink.common.flags & flag::UE4 != 0
    };
    assert!(checked(&world));
    let seid = answered.up.unwrap().seid;
    let turned = world.ask(&modification(2, seid, &|w| {
        w.group(IeType::UPDATE_PDR, |w| {
            w.put(&ie::PdrId(1));
            w.put(&ie::FarId(2));
        });
    }));
    assert_eq!(turned.cause, 1);
    assert!(!checked(&world));
}
