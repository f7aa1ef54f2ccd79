//! Black-box tests of the UPF: 83 numbered cases of PFCP and GTP-U (table in `apps/upf/README.md`)
//! on every mechanism. The cases are `upf/*.py`: scapy acts as SMF, gNB and data network, tshark
//! checks the messages of the UPF.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex};

use fastlane_tests::{Application, Lab, Mechanism, binary, measure};
use serde_json::{Value, json};

mod group;
mod topology;

use group::{Group, ask, outcome, run};
use topology::{PortMechanism, Variant, is_soak};

/// Cases for mechanisms with a short test: one or two per clause.
const SHORT: [(Group, &[u32]); 3] = [
    (Group::Node, &[1, 3, 9]),
    (Group::Session, &[22, 40, 46, 50]),
    (Group::Data, &[57, 58, 64, 68, 71, 73, 78]),
];

/// Cases for networks with differences with a short test: those that send packets of users, change
/// rules, count, or name addresses.
const SHORT_VARIANT: [(Group, &[u32]); 3] = [
    (Group::Session, &[40, 46, 49, 50]),
    (Group::Data, &[57, 58, 64, 65, 66, 68, 71, 73, 76, 77, 78]),
    (Group::Survive, &[81]),
];

/// Number of networks with differences that the long form has at a time.
const NETWORKS: usize = 4;

/// Returns the list of all cases, by number. It is asked for once: scapy takes half a second to
/// load.
fn listed() -> &'static [Value] {
    static LIST: LazyLock<Vec<Value>> =
        LazyLock::new(|| serde_json::from_str(&ask("--cases")).expect("JSON"));
    &LIST
}

/// Asserts that a case has passed in all groups that have a part of it, or that it is listed as
/// missing.
#[track_caller]
fn passes(mechanism: PortMechanism, number: u32) {
    let all = listed();
    let one = all.iter().find(|it| it["case"] == number).expect("the case is listed");
    let groups = one["groups"].as_array().expect("a list");
    let of = |group: &&Group| groups.iter().any(|name| name == group.name());
    let mut wrong = Vec::new();
    for group in Group::ALL.iter().filter(of) {
        let outcome = outcome(*group, mechanism);
        match outcome.cases.get(&number) {
            Some(Ok(())) => {}
            Some(Err(why)) => wrong.push(format!("{}: {why}", group.name())),
            None => wrong.push(format!("{}: not run", group.name())),
        }
    }
    if let Some(missing) = one["missing"].as_str() {
        assert!(!wrong.is_empty(), "case {number} passes: it is listed as not passed ({missing})");
        return;
    }
    assert!(wrong.is_empty(), "case {number} on {mechanism:?}: {}", wrong.join("; "));
}

macro_rules! cases {
    ($($name:ident = $number:expr,)*) => {
        const NAMES: &[(u32, &str)] = &[$(($number, stringify!($name)),)*];

        mod af_xdp {
            $(
                #[test]
                fn $name() {
                    super::passes(super::PortMechanism::AfXdp, $number);
                }
            )*
        }

        mod af_packet {
            $(
                #[test]
                fn $name() {
                    super::passes(super::PortMechanism::AfPacket, $number);
                }
            )*
        }
    };
}

cases! {
    case_01_heartbeat_before_and_after_association = 1,
    case_02_heartbeat_without_recovery_time_stamp = 2,
    case_03_association_setup = 3,
    case_04_setup_without_node_id = 4,
    case_05_setup_without_recovery_time_stamp = 5,
    case_06_setup_for_a_known_node_id_session_retention = 6,
    case_07_setup_with_a_newer_time_stamp_then_heartbeat_with_the_same = 7,
    case_08_heartbeat_response_with_a_newer_time_stamp = 8,
    case_09_association_release = 9,
    case_10_association_update = 10,
    case_11_association_set_up_by_the_upf_the_peer_silent_at_first = 11,
    case_12_heartbeats_not_answered = 12,
    case_13_two_smfs_with_equal_seids_and_rule_ids = 13,
    case_14_pfcp_version_other_than_1 = 14,
    case_15_flood_of_version_2 = 15,
    case_16_wrong_length_in_the_header_short_datagrams = 16,
    case_17_unknown_message_type = 17,
    case_18_response_that_nobody_asked_for = 18,
    case_19_pfd_management_not_advertised = 19,
    case_20_s_flag_wrong_for_the_message_type = 20,
    case_21_bundled_messages = 21,
    case_22_establishment_without_association = 22,
    case_23_establishment_without_node_id = 23,
    case_24_establishment_without_cp_f_seid = 24,
    case_25_establishment_without_create_pdr = 25,
    case_26_establishment_without_create_far = 26,
    case_27_pdr_without_pdi = 27,
    case_28_pdr_without_pdr_id_without_precedence = 28,
    case_29_pdr_to_an_unknown_far_qer_urr_far_to_an_unknown_bar = 29,
    case_30_duplicate_pdr_id = 30,
    case_31_grouped_ie_that_overruns = 31,
    case_32_zero_length_outer_header_creation_f_teid_mbr = 32,
    case_33_bad_sdf_text_empty_sdf_text_too_many_filters = 33,
    case_34_every_form_of_flow_description = 34,
    case_35_sdf_filter_with_id_referred_to_by_another_pdr = 35,
    case_36_unknown_and_enterprise_ies = 36,
    case_37_non_repeatable_ie_repeated = 37,
    case_38_apply_action_of_1_2_and_3_octets = 38,
    case_39_outer_header_removal_of_1_and_2_octets = 39,
    case_40_f_teid_choose_choose_id = 40,
    case_41_who_chooses_teids_the_upf_or_the_smf_side_by_side = 41,
    case_42_ue_ip_address_chosen_by_the_upf_pool_exhausted = 42,
    case_43_ue_address_in_use_in_one_network_instance_and_in_another = 43,
    case_44_exact_retransmission_and_the_same_after_n1_x_t1 = 44,
    case_45_unknown_seid_a_report_answered_with_cause_65 = 45,
    case_46_from_buffering_to_forwarding_with_a_new_tunnel = 46,
    case_47_modification_that_fails_half_way = 47,
    case_48_remove_a_pdr_in_use_remove_a_far_still_referenced = 48,
    case_49_query_urr_qaurr = 49,
    case_50_deletion_reports_what_is_left = 50,
    case_51_quota_threshold_monitoring_time_period_start_and_stop_of_traffic_inactivity = 51,
    case_52_sessions_over_the_limit = 52,
    case_53_cp_f_seid_changed_by_a_modification = 53,
    case_54_session_set_deletion_by_fq_csid = 54,
    case_55_establishment_flood = 55,
    case_56_random_mutation_soak = 56,
    case_57_echo_request_with_and_without_sequence_number = 57,
    case_58_g_pdu_for_an_unknown_teid = 58,
    case_59_end_marker_for_an_unknown_teid = 59,
    case_60_gtp_version_0_and_2_gtp_unknown_message_type = 60,
    case_61_truncated_header_wrong_lengths_extension_headers_that_do_not_end = 61,
    case_62_unknown_extension_headers = 62,
    case_63_e_s_and_pn_in_all_combinations = 63,
    case_64_pdu_session_container_both_ways = 64,
    case_65_error_indication_received_and_a_spoofed_one = 65,
    case_66_type_31_and_echo_response_received = 66,
    case_67_end_marker_when_a_far_changes_tunnels = 67,
    case_68_ue_source_address_framed_route_router_solicitation = 68,
    case_69_overlapping_sdf_filters_both_directions = 69,
    case_70_gates_and_mbr_of_session_and_flow = 70,
    case_71_ttl_and_hop_limit = 71,
    case_72_downlink_longer_than_the_mtu_of_n3 = 72,
    case_73_fields_of_the_outer_header = 73,
    case_74_ue_to_ue = 74,
    case_75_n9_uplink_classifier = 75,
    case_76_fragments_inner_ipv6_inner_garbage = 76,
    case_77_buffering_one_notification_order_limits_drobu = 77,
    case_78_ipv4v6_session = 78,
    case_79_packets_for_a_session_that_is_being_deleted = 79,
    case_80_flood_of_echo_requests_and_unknown_teids = 80,
    case_81_urr_octets_add_up = 81,
    case_82_a_half_crashes = 82,
    case_83_release_requested_by_the_upf = 83,
}

/// All messages of the UPF are well formed according to tshark.
#[test]
fn nothing_malformed_is_sent() {
    for mechanism in [PortMechanism::AfXdp, PortMechanism::AfPacket] {
        for group in Group::ALL {
            let wrong = &outcome(group, mechanism).malformed;
            assert!(wrong.is_empty(), "{group:?} on {mechanism:?}: {wrong:?}");
        }
    }
}

/// Asserts that these cases (no numbers: all) of groups pass on a mechanism and in a network.
fn all_pass(mechanism: PortMechanism, variant: Variant, groups: &[(Group, &[u32])]) {
    let wrong = faults(mechanism, variant, groups);
    assert!(wrong.is_empty(), "on {mechanism:?}, {variant:?}: {wrong:#?}");
}

/// Runs these cases (no numbers: all) of groups, on a mechanism and in a network. Returns what has
/// failed.
fn faults(mechanism: PortMechanism, variant: Variant, groups: &[(Group, &[u32])]) -> Vec<String> {
    let (mut wrong, mut right) = (Vec::new(), BTreeSet::new());
    for (group, only) in groups {
        let outcome = run(*group, mechanism, variant, only);
        let missing = only.iter().filter(|it| !outcome.cases.contains_key(it));
        assert_eq!(missing.count(), 0, "{:?}", outcome.cases);
        wrong.extend(outcome.malformed);
        for (number, result) in &outcome.cases {
            let listed = listed();
            let one = listed.iter().find(|it| it["case"] == *number).expect("the case is listed");
            match (result, &one["missing"]) {
                (Err(why), Value::Null) => wrong.push(format!("case {number}: {why}")),
                (Err(_), _) => {}
                (Ok(()), _) => drop(right.insert(*number)),
            }
        }
    }
    eprintln!(
        "on {mechanism:?}, {variant:?}: {} cases have passed, {} parts have not",
        right.len(),
        wrong.len()
    );
    wrong
}

/// Runs a part of the cases, or all in the long form, on a mechanism behind a relay.
fn behind_a_relay(mechanism: PortMechanism) {
    let all = Group::ALL.map(|it| (it, &[][..]));
    let groups = if is_soak() { &all[..] } else { &SHORT[..] };
    all_pass(mechanism, Variant::default(), groups);
}

#[test]
fn over_memif() {
    behind_a_relay(PortMechanism::Memif);
}

#[test]
fn over_dpdk() {
    behind_a_relay(PortMechanism::Dpdk);
}

/// N3 with IPv4 only, N4 over IPv6, two lanes, probed paths, and packets of users in bursts: all of
/// it at once, and in the long form each alone with all cases.
#[test]
fn in_other_networks() {
    if !is_soak() {
        return all_pass(PortMechanism::AfXdp, Variant::ALL, &SHORT_VARIANT);
    }
    let groups = Group::ALL.into_iter().filter(|it| *it != Group::Soak);
    let groups: Vec<(Group, &[u32])> = groups.map(|it| (it, &[][..])).collect();
    let mut networks = Vec::new();
    for mechanism in [PortMechanism::AfXdp, PortMechanism::AfPacket] {
        networks.extend(Variant::each().map(|variant| (mechanism, variant)));
        networks.push((mechanism, Variant::ALL));
    }
    let networks = Mutex::new(networks);
    let next = || networks.lock().expect("no thread panics with it").pop();
    // They mostly wait for timers of N4.
    let work = || {
        let each = std::iter::from_fn(next);
        each.map(|(mechanism, variant)| {
            let found = faults(mechanism, variant, &groups);
            (!found.is_empty()).then(|| format!("on {mechanism:?}, {variant:?}: {found:#?}"))
        })
        .collect()
    };
    let wrong: Vec<Option<String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..NETWORKS).map(|_| scope.spawn(work)).collect();
        let found = threads.into_iter().map(|it| it.join().expect("its test ends"));
        found.collect::<Vec<Vec<_>>>().concat()
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Prints the outcome of the cases in the environment, for work on them.
#[test]
#[ignore = "UPF_GROUP=data UPF_CASES=57,58 UPF_ON=memif cargo test --test upf some -- --ignored"]
fn some_cases() {
    let word = |name: &str| std::env::var(name).unwrap_or_default();
    let group = Group::ALL.into_iter().find(|it| it.name() == word("UPF_GROUP"));
    let mechanism = match word("UPF_ON").as_str() {
        "af-xdp" => PortMechanism::AfXdp,
        "memif" => PortMechanism::Memif,
        "dpdk" => PortMechanism::Dpdk,
        _ => PortMechanism::AfPacket,
    };
    let only: Vec<u32> = word("UPF_CASES").split(',').filter_map(|it| it.parse().ok()).collect();
    let variant = if word("UPF_NETWORK") == "other" { Variant::ALL } else { Variant::default() };
    let outcome = run(group.expect("UPF_GROUP names a group"), mechanism, variant, &only);
    for (number, result) in &outcome.cases {
        println!("case {number}: {result:?}");
    }
    println!("malformed: {:#?}", outcome.malformed);
    assert!(outcome.cases.values().all(Result::is_ok));
}

/// Control of the relay: frames pass it to a macswap over memif and return intact.
#[test]
fn the_relay_echoes() {
    let Some(lab) = Lab::new("upf-relay", 1) else { return };
    let socket = lab.file("echo.memif");
    let side = |role: &str| json!({"driver": {"memif": {"socket": socket, "role": role}}});
    let wire = json!({"driver": Mechanism::Packet.on("wire0"), "kernel": "none"});
    let ports = json!({"ports": {"wire": wire, "wire-far": side("server")}});
    let relay = Application::start(&lab, &lab.left, &binary("relay"), ports);
    let far = json!({"ports": {"wire": side("client")}});
    let far = Application::start(&lab, &lab.right, &binary("macswap"), far);
    relay.process.wait_for("port `wire-far`: link up");
    let settings = json!({"count-packets": 5000, "outstanding-packets": 32, "flows": {}});
    let (report, _) = measure(&lab, &lab.right, &Mechanism::Packet.on("wire0"), settings);
    assert_eq!(report.sent(), 5000);
    report.assert_intact();
    relay.stop();
    far.stop();
}

/// The encoder of the cases agrees with scapy and tshark.
#[test]
fn what_is_sent_is_what_scapy_and_tshark_read() {
    assert!(ask("--self").contains("agrees"));
}

/// The test names and the table of the README agree with the list of cases.
#[test]
fn names_and_table_are_those_of_the_cases() {
    let all = listed();
    let numbers: Vec<u64> = all.iter().filter_map(|it| it["case"].as_u64()).collect();
    assert_eq!(numbers, (1..=83).collect::<Vec<_>>());
    for ((number, name), one) in NAMES.iter().zip(all) {
        let words = one["name"].as_str().expect("a name").to_lowercase();
        let words = words.split(|it: char| !it.is_ascii_alphanumeric()).filter(|it| !it.is_empty());
        let wanted = format!("case_{number:02}_{}", words.collect::<Vec<_>>().join("_"));
        assert_eq!(*name, wanted);
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../apps/upf/README.md");
    let readme = std::fs::read_to_string(path).expect("the README of the UPF");
    let table = ask("--table");
    assert!(readme.contains(table.trim()), "write this into apps/upf/README.md:\n{table}");
}
