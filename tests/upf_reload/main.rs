//! Change without restart: `upf reload` under traffic of stamped packets. Each packet that was sent
//! arrives, whatever the reload does for other sessions.

mod nat_reload;
mod reload_site;

use std::time::{Duration, Instant};

use fastlane_pfcp::{Cause, Message};
use fastlane_tests::eventually;
use fastlane_tests::upf::messages::{self, SessionRequest};
use fastlane_tests::upf::{Driver, Session};
use reload_site::{
    EXTRANET, INTERNET, ReloadSite, add_extranet, establish, is_soak, refused, reload, reloaded,
};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Adds a network instance with its pool, changes limits, and removes the network instance, all
/// under traffic of other sessions.
fn networks_come_and_go(mut site: ReloadSite) {
    let sessions: Vec<Session> = (1..=10).map(|it| site.establish(it, INTERNET)).collect();
    let stamp = site.smf.heartbeat();
    let original = site.upf.read_file();
    let added = site.assert_no_loss(&sessions, 3000, |smf, lab, upf| {
        let cause = refused(smf, 90, EXTRANET);
        assert_eq!(cause, Cause::RULE_CREATION_MODIFICATION_FAILURE);
        let text = reloaded(lab, upf, add_extranet);
        assert!(text.ends_with("in force\n"), "{text}");
        for place in ["+ app.interfaces.n6b: ", "app.pools: ", "ports.n6b.steer: "] {
            assert!(text.contains(place), "{place}: {text}");
        }
        establish(smf, 11, EXTRANET)
    });
    assert_eq!(added.ue.octets()[..2], [10, 46], "from the pool that was added");
    site.assert_extranet(&[added], 300);
    site.assert_no_loss(&sessions, 1500, |_, lab, upf| {
        let text = reloaded(lab, upf, |it| it["app"]["limits"] = json!({"pdrs": 2, "held-ms": 7}));
        assert!(text.contains("app.limits.pdrs: 32 -> 2"), "{text}");
    });
    // A session in the way is named, and nothing changes.
    let remove = |it: &mut Value| *it = original.clone();
    site.assert_no_loss(&sessions, 1500, |_, lab, upf| {
        let (status, text) = reload(lab, upf, remove);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("1 sessions use the network instance `extranet`"), "{text}");
        assert!(text.contains("1 sessions use addresses of 10.46.0.0/16"), "{text}");
    });
    site.assert_extranet(&[added], 300);
    site.smf.delete(&added);
    site.assert_no_loss(&sessions, 3000, |smf, lab, upf| {
        let text = reloaded(lab, upf, remove);
        assert!(text.ends_with("in force\n"), "{text}");
        let cause = refused(smf, 91, EXTRANET);
        assert_eq!(cause, Cause::RULE_CREATION_MODIFICATION_FAILURE);
    });
    assert_eq!(site.smf.heartbeat(), stamp, "no restart");
    sessions.iter().for_each(|session| site.smf.delete(session));
    site.upf.stop();
}

#[test]
fn networks_come_and_go_under_traffic_on_af_packet() {
    let site = ReloadSite::start("reload-packet", Driver::AfPacket, 64, &[]);
    let Some(site) = site else { return };
    networks_come_and_go(site);
}

#[test]
fn networks_come_and_go_under_traffic_on_af_xdp() {
    let Some(site) = ReloadSite::start("reload-xdp", Driver::AfXdp, 64, &[]) else { return };
    networks_come_and_go(site);
}

#[test]
fn peers_limits_and_predefined_rules_change_under_traffic() {
    let site = ReloadSite::start("reload-limits", Driver::AfPacket, 64, &[]);
    let Some(mut site) = site else { return };
    let sessions: Vec<Session> = (1..=10).map(|it| site.establish(it, INTERNET)).collect();
    let complex = SessionRequest { is_complex: true, ..SessionRequest::open(80, 1 << 40) };
    site.assert_no_loss(&sessions, 3000, |smf, lab, upf| {
        assert!(smf.try_establish(&complex).is_accepted(), "three PDRs");
        let text = reloaded(lab, upf, |it| {
            it["app"]["limits"] = json!({"pdrs": 2});
            it["app"]["n4"]["allow"] = json!(["10.99.0.0/16"]);
            it["app"]["n4"]["heartbeat-s"] = json!(2);
            let rule = json!({"precedence": 1, "flows": ["permit out ip from any to assigned"]});
            it["app"]["predefined"] = json!({"all": rule});
        });
        assert_eq!(text.lines().count(), 5, "four changes and the result: {text}");
        let more = SessionRequest { cp_seid: 81, ..complex };
        assert_eq!(smf.try_establish(&more), Cause::RULE_CREATION_MODIFICATION_FAILURE);
        // The association stays, and its sessions are served; a new one is refused.
        let _ = establish(smf, 82, INTERNET);
        let sequence = smf.next_sequence();
        let response = smf.request(&messages::associate(sequence, 3_900_000_000));
        let group = Message::parse(&response).expect("PFCP").0.group();
        assert_eq!(group.need::<Cause>(), Ok(Cause::REQUEST_REJECTED), "not allowed any more");
    });
    site.assert_no_loss(&sessions, 300, |_, _, _| ());
    site.upf.stop();
}

/// Returns the number of open descriptors and the memory in KiB of a process.
fn resources(process: u32) -> [u64; 2] {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count();
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).expect("it runs");
    let pss = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
    let kib = pss.and_then(|it| it.split_whitespace().next()).and_then(|it| it.parse().ok());
    [files as u64, kib.expect("a size")]
}

#[test]
fn many_reloads_lose_no_packet_and_leak_nothing() {
    let Some(mut site) = ReloadSite::start("reload-many", Driver::AfPacket, 64, &[]) else {
        return;
    };
    let sessions: Vec<Session> = (1..=10).map(|it| site.establish(it, INTERNET)).collect();
    let original = site.upf.read_file();
    let reloads: u32 = if is_soak() { 1000 } else { 50 };
    let first = reloads / 5;
    let processes = ["fast", "slow"].map(|path| site.upf.process_id(path));
    let mut before = [[0; 2]; 2];
    let mut took = Duration::ZERO;
    for part in 0..5 {
        let numbers = part * first..(part + 1) * first;
        site.assert_no_loss(&sessions, u64::from(first) * 150, |_, lab, upf| {
            let begin = Instant::now();
            for number in numbers {
                let is_added = number % 2 == 0;
                reloaded(lab, upf, |it| {
                    *it = original.clone();
                    it["app"]["limits"] = json!({"held-ms": 1000 + number});
                    if is_added {
                        add_extranet(it);
                    }
                });
            }
            took += begin.elapsed();
        });
        let now = processes.map(resources);
        if part == 0 {
            before = now;
        }
        eprintln!("after part {part}: files and KiB of fast and slow path: {now:?}");
    }
    assert_eq!(["fast", "slow"].map(|path| site.upf.process_id(path)), processes, "no restart");
    eprintln!("{reloads} reloads, {:?} each", took / reloads);
    let after = processes.map(resources);
    for (before, after) in before.iter().zip(after) {
        assert_eq!(before[0], after[0], "open files");
        assert!(after[1] < before[1] + 1024, "{} KiB, then {} KiB", before[1], after[1]);
    }
    site.upf.stop();
}

#[test]
fn capacity_is_doubled_under_traffic() {
    let changes = [("reserved-sessions", json!(64))];
    let Some(mut site) = ReloadSite::start("reload-double", Driver::AfXdp, 32, &changes) else {
        return;
    };
    let sessions: Vec<Session> = (1..=32).map(|it| site.establish(it, INTERNET)).collect();
    assert_eq!(refused(&mut site.smf, 33, INTERNET), Cause::NO_RESOURCES_AVAILABLE);
    let more: Vec<Session> = site.assert_no_loss(&sessions, 3000, |smf, lab, upf| {
        let (status, text) = reload(lab, upf, |it| it["app"]["sessions"] = json!(65));
        assert_eq!(status, Some(3), "{text}"); // more than reserved-sessions
        let text = reloaded(lab, upf, |it| it["app"]["sessions"] = json!(64));
        assert!(text.contains("app.sessions: 32 -> 64"), "{text}");
        (33..=64).map(|it| establish(smf, it, INTERNET)).collect()
    });
    assert_eq!(refused(&mut site.smf, 65, INTERNET), Cause::NO_RESOURCES_AVAILABLE);
    let all = [&sessions[..], &more[..]].concat();
    site.assert_no_loss(&all, 3000, |_, lab, upf| {
        let (status, text) = reload(lab, upf, |it| it["app"]["sessions"] = json!(63));
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("there are 64 sessions, 63 are configured"), "{text}");
    });
    all.iter().for_each(|session| site.smf.delete(session));
    site.upf.stop();
}

#[test]
fn what_cannot_change_is_named_and_nothing_changes() {
    let Some(mut site) = ReloadSite::start("reload-refused", Driver::AfPacket, 64, &[]) else {
        return;
    };
    let session = site.establish(1, INTERNET);
    let original = site.upf.read_file();
    let changed = |it: &mut Value| {
        add_extranet(it);
        it["app"]["node-id"] = json!("10.40.0.9");
        it["app"]["limits"] = json!({"reassemblies-per-lane": 8});
        it["lanes"]["burst"] = json!(16);
        it["app"]["interfaces"]["n3"]["addresses"] = json!(["10.30.0.1", "10.30.0.9"]);
    };
    site.assert_no_loss(&[session], 1500, |smf, lab, upf| {
        let (status, text) = reload(lab, upf, changed);
        assert_eq!(status, Some(1), "{text}");
        for place in [
            "app.node-id",
            "app.limits.reassemblies-per-lane",
            "lanes.burst",
            "app.interfaces.n3.addresses",
        ] {
            assert!(text.contains(&format!("\n  {place}: ")), "{place}: {text}");
        }
        // Not even what could have changed.
        assert_eq!(refused(smf, 90, EXTRANET), Cause::RULE_CREATION_MODIFICATION_FAILURE);
        // The check finds the same.
        let file = upf.file().to_str().expect("UTF-8");
        let (status, checked) = lab.upf_command(&["reload", "--check", file]);
        assert_eq!((status, checked), (Some(1), text));
        // A file that is wrong is refused as by `upf check`.
        let (status, text) = reload(lab, upf, |it| it["app"]["sesions"] = json!(1));
        assert_eq!(status, Some(3), "{text}");
        assert!(text.contains("did you mean `sessions`"), "{text}");
        upf.write_file(&original);
        let (status, text) = lab.upf_command(&["reload", "--check", file]);
        assert_eq!((status, text.as_str()), (Some(0), "nothing differs\n"));
        // The same file by another path.
        let link = lab.hosts.file("link.json");
        std::os::unix::fs::symlink(file, &link).expect("a link");
        let linked = lab.upf_command(&["reload", "--check", link.to_str().expect("UTF-8")]);
        assert_eq!(linked, (Some(0), "nothing differs\n".to_owned()));
        // Another file is not the one that this UPF runs.
        let other = lab.hosts.file("other.json");
        std::fs::copy(file, &other).expect("a copy");
        let (status, text) = lab.upf_command(&["reload", other.to_str().expect("UTF-8")]);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("this UPF runs "), "{text}");
    });
    site.smf.delete(&session);
    site.upf.stop();
}

#[test]
fn a_signal_reloads_the_file() {
    let Some(mut site) = ReloadSite::start("reload-signal", Driver::AfPacket, 64, &[]) else {
        return;
    };
    let session = site.establish(1, INTERNET);
    let added = site.assert_no_loss(&[session], 3000, |smf, _, upf| {
        let mut configuration = upf.read_file();
        configuration["app"]["node-id"] = json!("10.40.0.9");
        upf.write_file(&configuration);
        upf.signal(Signal::HUP);
        upf.wait_for("reload: nothing was changed: app.node-id");
        configuration["app"]["node-id"] = json!("10.40.0.1");
        add_extranet(&mut configuration);
        upf.write_file(&configuration);
        upf.signal(Signal::HUP);
        upf.wait_for("the configuration is that of the file (number 2)");
        establish(smf, 2, EXTRANET)
    });
    site.assert_extranet(&[added], 300);
    site.assert_no_loss(&[session], 300, |_, _, _| ());
    site.upf.stop();
}

/// Kills the slow path at moments spread over a reload. Its successor works with the old or the new
/// configuration: pool, network instance, steering and lanes agree.
#[test]
fn a_slow_path_killed_during_a_reload_leaves_no_mixture() {
    let Some(mut site) = ReloadSite::start("reload-killed", Driver::AfPacket, 64, &[]) else {
        return;
    };
    let sessions: Vec<Session> = (1..=10).map(|it| site.establish(it, INTERNET)).collect();
    let original = site.upf.read_file();
    let kills: u32 = if is_soak() { 200 } else { 12 };
    let mut cut = 0;
    for number in 0..kills {
        let next = 100 + number;
        let added = site.assert_no_loss(&sessions, 3000, |smf, lab, upf| {
            let mut configuration = original.clone();
            add_extranet(&mut configuration);
            upf.write_file(&configuration);
            let status = std::thread::scope(|scope| {
                let file = upf.file().to_str().expect("UTF-8");
                let reload = scope.spawn(move || lab.upf_command(&["reload", file]));
                // A reload takes some ten milliseconds, most of them for the start of the command.
                let moment = Duration::from_millis(60) * (number + 1) / kills;
                std::thread::sleep(moment);
                upf.kill("slow");
                reload.join().expect("the thread does not panic").0
            });
            cut += u32::from(status != Some(0));
            // The successor reads the file: it is the new configuration in the end.
            smf.heartbeat();
            establish(smf, next, EXTRANET)
        });
        site.assert_extranet(&[added], 100);
        site.smf.delete(&added);
        site.upf.write_file(&original);
        let file = site.upf.file().to_str().expect("UTF-8").to_owned();
        eventually("the old configuration is in force", || {
            let (status, _) = site.lab.upf_command(&["reload", &file]);
            status == Some(0)
        });
        let cause = refused(&mut site.smf, 90, EXTRANET);
        assert_eq!(cause, Cause::RULE_CREATION_MODIFICATION_FAILURE);
    }
    eprintln!("{kills} kills, {cut} of them before the reply");
    sessions.iter().for_each(|session| site.smf.delete(session));
    site.upf.stop();
}

/// A fast path whose file has changed since its predecessor started takes over tables and ports: it
/// finds the configuration in force in the tables.
#[test]
fn a_fast_path_killed_after_a_reload_keeps_all_sessions() {
    let site = ReloadSite::start("reload-fast", Driver::AfXdp, 64, &[]);
    let Some(mut site) = site else { return };
    let sessions: Vec<Session> = (1..=10).map(|it| site.establish(it, INTERNET)).collect();
    let stamp = site.smf.heartbeat();
    site.upf.wait_for("holding ");
    reloaded(&site.lab, &site.upf, add_extranet);
    let added = site.establish(11, EXTRANET);
    site.assert_extranet(&[added], 100);
    site.upf.kill("fast");
    eventually("the next fast path forwards", || {
        site.traffic.send_uplink(&sessions[0]);
        site.traffic.collect()[0].len() == 1
    });
    assert_eq!(site.smf.heartbeat(), stamp, "tables and Recovery Time Stamp survive");
    site.assert_no_loss(&sessions, 300, |_, _, _| ());
    site.assert_extranet(&[added], 100);
    // The file is in force: there is nothing to reload.
    let file = site.upf.file().to_str().expect("UTF-8");
    let (status, text) = site.lab.upf_command(&["reload", file]);
    assert_eq!((status, text.as_str()), (Some(0), "nothing differs\n"));
    assert!(!site.upf.log().contains("nothing was changed"), "{}", site.upf.log());
    // A slow path whose file cannot be applied goes on with the configuration in force.
    let mut configuration = site.upf.read_file();
    configuration["app"]["n4"]["addresses"] = json!(["10.40.0.77"]);
    configuration["app"]["pools"] = json!([]);
    site.upf.write_file(&configuration);
    site.upf.kill("slow");
    site.upf.wait_for("reload: nothing was changed: app.n4.addresses: the sockets are open");
    let another = site.establish(12, EXTRANET);
    site.assert_no_loss(&sessions, 300, |_, _, _| ());
    site.assert_extranet(&[added, another], 100);
    site.upf.stop();
}
