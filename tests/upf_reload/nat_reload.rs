//! Reloads of a UPF with NAT under traffic: mappings stay, and what would move blocks is refused.

use std::collections::BTreeSet;

use fastlane_tests::upf::frames::UE_PORT;
use fastlane_tests::upf::{Arrival, Driver, Session, Smf, Upf, UpfLab};
use serde_json::{Value, json};

use crate::reload_site::{
    EXTRANET, INTERNET, ReloadSite, add_extranet, establish, reload, reloaded,
};

/// External addresses, and their first three octets.
const EXTERNAL: &str = "198.51.100.0/30";
const EXTERNAL_START: [u8; 3] = [198, 51, 100];
/// Packets in each direction during a reload.
const EACH: u64 = 1500;
const SESSIONS: u32 = 10;

/// Returns the configuration with NAT on N6.
fn configuration(lab: &UpfLab) -> Value {
    let mut configuration = lab.configuration(64, &[]);
    let log = lab.hosts.file("nat.log");
    configuration["app"]["interfaces"]["n6"]["nat"] = json!({"addresses": [EXTERNAL], "log": log});
    configuration["ports"]["n6"]["steer"] = json!([{"destination": EXTERNAL, "fragments": true}]);
    configuration
}

/// Asserts that all packets arrive while `meanwhile` runs, each translated as before: uplink from
/// the external address and port of its session, downlink at the port of its user.
#[track_caller]
fn keeps_mappings<T>(
    site: &mut ReloadSite,
    sessions: &[Session],
    meanwhile: impl FnOnce(&mut Smf, &UpfLab, &Upf) -> T,
) -> T {
    let (done, [uplink, downlink]) = site.without_loss(sessions, EACH, meanwhile);
    let session = |(_, packet): &Arrival| packet.stamp.session;
    for arrival in &uplink {
        let external = site.traffic.externals[&session(arrival)];
        let packet = arrival.1;
        assert_eq!((packet.ue, packet.port), (*external.ip(), external.port()), "{packet:?}");
    }
    for arrival in &downlink {
        let of = sessions.iter().find(|it| it.cp_seid == session(arrival)).expect("a session");
        let packet = arrival.1;
        assert_eq!((packet.ue, packet.port), (of.ue, UE_PORT), "{packet:?}");
    }
    done
}

/// Returns changes that would give blocks to others, with the reason that is told.
fn refusals(original: &Value) -> Vec<(Value, &'static str)> {
    let nat = |key: &str, value: Value| {
        let mut it = original.clone();
        it["app"]["interfaces"]["n6"]["nat"][key] = value;
        it
    };
    let mut without = original.clone();
    without["app"]["interfaces"]["n6"].as_object_mut().expect("an interface").remove("nat");
    let mut another = original.clone();
    add_extranet(&mut another);
    another["app"]["interfaces"]["n6b"]["nat"] = json!({"addresses": ["203.0.113.0/30"]});
    let numbered = "the blocks of external ports are numbered over the interfaces";
    vec![
        (nat("addresses", json!(["198.51.100.0/29"])), "app.interfaces.n6.nat"),
        (nat("ports-per-user", json!(512)), "app.interfaces.n6.nat"),
        (nat("first-port", json!(2048)), "app.interfaces.n6.nat"),
        (without, "app.interfaces.n6.nat"),
        (another, numbered),
    ]
}

fn mappings_survive_reloads(story: &str, driver: Driver) {
    let Some(mut site) = ReloadSite::start_as(story, driver, configuration) else { return };
    let sessions: Vec<Session> = (1..=SESSIONS).map(|it| site.establish(it, INTERNET)).collect();
    site.traffic.learn_externals(&sessions);
    let externals: BTreeSet<_> = site.traffic.externals.values().collect();
    assert_eq!(externals.len(), sessions.len(), "an external port each: {externals:?}");
    let is_external = |octets: [u8; 4]| octets[..3] == EXTERNAL_START;
    assert!(externals.iter().all(|it| is_external(it.ip().octets())), "{externals:?}");
    let original = site.upf.read_file();

    let added = keeps_mappings(&mut site, &sessions, |smf, lab, upf| {
        let text = reloaded(lab, upf, add_extranet);
        assert!(text.contains("+ app.interfaces.n6b: "), "{text}");
        establish(smf, SESSIONS + 1, EXTRANET)
    });
    site.assert_extranet(&[added], 300);
    keeps_mappings(&mut site, &sessions, |_, lab, upf| {
        let rule = json!({"precedence": 1, "flows": ["permit out ip from any to assigned"]});
        let text = reloaded(lab, upf, |it| it["app"]["predefined"] = json!({"all": rule}));
        assert!(text.contains("app.predefined"), "{text}");
    });
    let in_force = site.upf.read_file();
    for (change, reason) in refusals(&original) {
        keeps_mappings(&mut site, &sessions, |_, lab, upf| {
            let (status, text) = reload(lab, upf, |it| *it = change);
            assert_eq!(status, Some(1), "{text}");
            assert!(text.contains("nothing was changed") && text.contains(reason), "{text}");
        });
    }
    site.upf.write_file(&in_force);
    site.smf.delete(&added);
    keeps_mappings(&mut site, &sessions, |_, lab, upf| {
        let text = reloaded(lab, upf, |it| *it = original);
        assert!(text.ends_with("in force\n"), "{text}");
    });

    assert_eq!(site.lab.packet_count("nat_mapping_made"), u64::from(SESSIONS), "one each");
    let metrics = site.lab.get("/metrics");
    let used = format!("\nupf_nat_blocks{{state=\"used\"}} {SESSIONS}\n");
    assert!(metrics.contains(&used), "{metrics}");
    let log = std::fs::read_to_string(site.lab.hosts.file("nat.log")).expect("the log");
    assert_eq!(log.lines().count(), SESSIONS as usize, "each has the block that it had: {log}");
    sessions.iter().for_each(|session| site.smf.delete(session));
    site.upf.stop();
}

#[test]
fn mappings_survive_reloads_under_traffic_on_af_packet() {
    mappings_survive_reloads("reload-nat-packet", Driver::AfPacket);
}

#[test]
fn mappings_survive_reloads_under_traffic_on_af_xdp() {
    mappings_survive_reloads("reload-nat-xdp", Driver::AfXdp);
}
