//! An N4 interface that delays, loses, repeats, reorders and corrupts datagrams (netem): PFCP
//! retransmits, and each request is carried out once.

use fastlane_tests::upf::messages::SessionRequest;
use fastlane_tests::upf::{Driver, UpfLab};
use fastlane_tests::{Guest, Kernel, eventually, load_modules};
use serde_json::Value;

/// Number of sessions.
const SESSIONS: u32 = 40;

fn request(number: u32) -> SessionRequest {
    SessionRequest::open(number, 1 << 30)
}

/// Returns the number of sessions of all associations, as the API shows it.
fn sessions(lab: &UpfLab) -> u64 {
    let response = lab.get("/associations");
    let (_, body) = response.split_once("\r\n\r\n").expect("HTTP");
    let all: Value = serde_json::from_str(body).expect("JSON");
    all.as_array().expect("a list").iter().filter_map(|it| it["sessions"].as_u64()).sum()
}

/// Impairs N4 in both directions.
fn impair(lab: &UpfLab, change: &str, how: &str) {
    let words = format!("tc qdisc {change} dev n4 root netem {how}");
    for host in [&lab.hosts.left, &lab.hosts.right] {
        host.run(&words.split_whitespace().collect::<Vec<_>>());
    }
}

#[test]
fn sessions_are_set_up_once_over_an_n4_that_loses_repeats_and_reorders() {
    Guest::new(Kernel::V6_12).run(|| {
        load_modules(&["sch_netem"]);
        let lab = UpfLab::new("lab-netem", Driver::AfPacket).expect("the guest allows everything");
        // A request that is carried out twice would exceed the limit of sessions.
        let mut upf = lab.start_supervised(lab.configuration(SESSIONS, &[]));
        let mut smf = lab.smf();
        smf.associate();
        impair(&lab, "add", "delay 5ms 3ms loss 15% duplicate 15% reorder 25% corrupt 5%");
        let half = SESSIONS / 2;
        let mut all: Vec<_> = (1..=half).map(|it| smf.establish(&request(it))).collect();
        // Restoration: the successor answers what its predecessor had begun.
        lab.kill_slow_path(&mut upf);
        all.extend((half + 1..=SESSIONS).map(|it| smf.establish(&request(it))));
        assert_eq!(sessions(&lab), u64::from(SESSIONS));
        let retransmissions = smf.inbox.retransmissions;
        assert!(retransmissions > 0, "nothing was lost: netem does nothing");
        all.iter().for_each(|session| smf.delete(session));
        assert_eq!(sessions(&lab), 0);
        eprintln!("{retransmissions} requests repeated, {} responses", smf.inbox.repeated);
        upf.stop();
    });
}

/// Heartbeats that are lost are repeated (TS 29.244, 6.4). Only when all repetitions of one are
/// lost does the UPF end the association.
#[test]
fn an_association_lives_on_a_bad_n4_and_ends_on_a_dead_one() {
    const HEARTBEATS: u64 = 15;
    Guest::new(Kernel::V6_12).run(|| {
        load_modules(&["sch_netem"]);
        let lab = UpfLab::new("lab-netem", Driver::AfPacket).expect("the guest allows everything");
        let upf = lab.start_supervised(lab.configuration(SESSIONS, &[]));
        let mut smf = lab.smf();
        smf.associate();
        let session = smf.establish(&request(1));
        impair(&lab, "add", "delay 20ms 10ms loss 20% duplicate 20%");
        let wanted = smf.inbox.heartbeats + HEARTBEATS;
        eventually("heartbeats arrive", || {
            smf.poll();
            smf.inbox.heartbeats >= wanted
        });
        assert_eq!(sessions(&lab), 1, "{}", upf.log());
        smf.delete(&session);
        smf.establish(&request(2));
        impair(&lab, "change", "loss 100%");
        eventually("the association ends", || sessions(&lab) == 0);
        impair(&lab, "change", "delay 1ms");
        smf.associate();
        smf.establish(&request(3));
        assert_eq!(sessions(&lab), 1, "{}", upf.log());
        upf.stop();
    });
}
