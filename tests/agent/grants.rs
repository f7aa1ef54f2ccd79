//! Grants: rights that are given and taken while the agent runs, each with a socket of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use fastlane::agent::seqpacket;
use fastlane_tests::{
    Application, GrantingAgent, Lab, Mechanism, Process, assert_unprivileged, eventually, pool_of,
};
use serde_json::json;

use crate::hostile::Hostile;
use crate::{configuration, traffic};

/// Starts macswap without any capability through a grant.
#[track_caller]
fn macswap(agent: &GrantingAgent, lab: &Lab, grant: &str) -> Application {
    let configuration = configuration(Mechanism::XdpNative);
    let (command, session) = agent.client(lab, &lab.left, "macswap", grant, configuration);
    let macswap = Application::run(command, session);
    assert_unprivileged(&macswap.process);
    macswap
}

#[test]
fn a_grant_lasts_until_it_is_revoked_also_when_the_agent_is_killed() {
    let Some(lab) = Lab::new("grant-lasts", 1) else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let before = agent.descriptors();
    agent.grant("claim-1", &pool_of(&["wire0"]));
    assert_eq!(agent.grants(), "[claim-1 0 ]");
    let application = macswap(&agent, &lab, "claim-1");
    traffic(&lab, 500, 5000).assert_intact();
    assert_eq!(agent.grants(), "[claim-1 1 wire0]");
    for _ in 0..2 {
        agent.kill();
        traffic(&lab, 500, 5000).assert_intact();
        agent.run(&lab);
        assert_eq!(agent.grants(), "[]");
        traffic(&lab, 500, 5000).assert_intact();
        agent.grant("claim-1", &pool_of(&["wire0"]));
        eventually("the client comes back", || agent.grants() == "[claim-1 1 wire0]");
        agent.process().wait_for("of grant `claim-1` has `wire0` again");
    }
    traffic(&lab, 500, 5000).assert_intact();
    assert_eq!(agent.pinned(), 1);
    agent.revoke("claim-1");
    assert_eq!((agent.grants().as_str(), agent.pinned()), ("[]", 0));
    assert!(!agent.socket("claim-1").exists());
    // What was pinned, the kernel releases after a grace period.
    eventually("the program is detached", || {
        !lab.left.run(&["ip", "-d", "link", "show", "dev", "wire0"]).contains("xdp")
    });
    eventually("the agent releases everything", || agent.descriptors() == before);
    application.stop();
    // The interface is free for the next grant, which may have the same name.
    agent.grant("claim-1", &pool_of(&["wire0"]));
    let application = macswap(&agent, &lab, "claim-1");
    traffic(&lab, 500, 5000).assert_intact();
    application.stop();
}

#[test]
fn a_grant_that_is_not_given_again_ends_with_its_devices() {
    let Some(lab) = Lab::new("grant-ends", 1) else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    agent.grant("a", &pool_of(&["wire0"]));
    let application = macswap(&agent, &lab, "a");
    agent.kill();
    agent.run(&lab);
    // Another grant of the interface does not get what the former one's client has.
    agent.grant("b", &pool_of(&["wire0"]));
    let mut other = Hostile::connect_at(&agent.socket("b"));
    let attach = other.try_attach().expect_err("it waits for its client");
    assert!(attach.contains("is reserved for a client"), "{attach}");
    agent.revoke("b");
    agent.grant("a", &pool_of(&["wire0"]));
    eventually("the client comes back", || agent.grants() == "[a 1 wire0]");
    application.kill();
    eventually("nothing stays", || agent.pinned() == 0);
    // A client that ended while the agent was away.
    let application = macswap(&agent, &lab, "a");
    agent.kill();
    application.kill();
    agent.run(&lab);
    assert_eq!(agent.pinned(), 1);
    agent.grant("a", &pool_of(&["wire0"]));
    let given = Instant::now();
    eventually("nothing stays", || agent.pinned() == 0);
    assert!(given.elapsed() < Duration::from_secs(30), "without a grant it would wait a minute");
    // A grant that is revoked before its client comes back.
    let application = macswap(&agent, &lab, "a");
    agent.kill();
    application.kill();
    agent.run(&lab);
    agent.grant("a", &pool_of(&["wire0"]));
    agent.revoke("a");
    assert_eq!(agent.pinned(), 0);
}

#[test]
fn an_application_of_another_user_namespace_uses_its_grant() {
    let Some(lab) = Lab::new("grant-userns", 1) else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    agent.grant("pod", &pool_of(&["wire0"]));
    let configuration = configuration(Mechanism::XdpNative);
    let (plain, session) = agent.client(&lab, &lab.left, "macswap", "pod", configuration);
    // User 1500 of a user namespace, which is user 984679900 to the agent.
    let words: Vec<String> =
        plain.get_args().map(|word| word.to_str().expect("UTF-8").to_owned()).collect();
    let [.., program, file] = &words[..] else { panic!("{words:?}") };
    let mut command = lab.left.command(&["setpriv", "--reuid=984679900", "--regid=984679900"]);
    command.args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
    command.args(["unshare", "--user", "--map-user=1500", "--map-group=1500", "--"]);
    command.args([program, file]);
    let directory = lab.file("run");
    std::fs::create_dir(&directory).expect("a directory");
    std::os::unix::fs::chown(&directory, Some(984_679_900), None).expect("root may");
    command.env("XDG_RUNTIME_DIR", &directory);
    let application = Application::run(command, session);
    let status = std::fs::read_to_string(format!("/proc/{}/status", application.process.id()));
    let status = status.expect("it runs");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    assert!(status.contains("Uid:\t984679900\t"), "{status}");
    let map = std::fs::read_to_string(format!("/proc/{}/uid_map", application.process.id()));
    assert!(map.expect("it runs").contains("1500  984679900"));
    traffic(&lab, 1000, 5000).assert_intact();
    application.stop();
}

#[test]
fn a_process_that_its_front_door_does_not_know_is_refused() {
    let Some(lab) = Lab::new("grant-admission", 1) else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let give = |agent: &mut GrantingAgent, name: &str, cgroup: &str| {
        let (socket, pool) = (agent.socket(name), pool_of(&["wire0"]));
        let grant = json!({"grant": name, "pool": pool, "socket": socket, "cgroup": cgroup});
        assert_eq!(agent.request(&grant), "done");
    };
    give(&mut agent, "foreign", "/kubepods/pod3b0e2d2c-5a4a-4d34-9b1e-1f2f3a4b5c6d");
    let client = Hostile::connect_at(&agent.socket("foreign"));
    let Some((0, response, _)) = client.receive() else { panic!("a refusal") };
    let words = format!("process {} is in another pod", std::process::id());
    assert!(format!("{response:?}").contains(&words), "{response:?}");
    assert!(client.receive().is_none(), "the connection ends");
    agent.revoke("foreign");
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("it exists");
    give(&mut agent, "own", own.lines().next().expect("a control group"));
    let application = macswap(&agent, &lab, "own");
    traffic(&lab, 500, 5000).assert_intact();
    application.stop();
}

#[test]
fn the_client_of_a_grant_gets_nothing_of_another() {
    let Some(lab) = Lab::new("grant-other", 1) else { return };
    lab.wire("wire1");
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let before = agent.descriptors();
    agent.grant("a", &pool_of(&["wire0"]));
    agent.grant("b", &pool_of(&["wire1"]));
    let mut a = Hostile::connect_at(&agent.socket("a"));
    let device = a.attach();
    let mut b = Hostile::connect_at(&agent.socket("b"));
    let foreign = b.try_attach().expect_err("another pool's");
    assert!(foreign.contains("this client may not use `wire0`, only [wire1]"), "{foreign}");
    let release = b.request(&json!({"release": {"device": device}}), &[]);
    assert!(release.is_err_and(|reason| reason.contains("no such device")));
    // Nor what a client of the other one had before the agent was killed.
    agent.kill();
    agent.run(&lab);
    agent.grant("a", &pool_of(&["wire0"]));
    agent.grant("b", &pool_of(&["wire0x"]));
    let attach = json!({"driver": {"af-xdp": {"interface": "wire0"}}, "steer": [{"udp-port": 2152}],
        "max-length": 1792});
    let resume = json!({"resume": {"device": device, "words": [1, 1, 0, 1792],
        "attach": attach, "is-released": false}});
    let mut b = Hostile::connect_at(&agent.socket("b"));
    let refused = b.request(&resume, &[]).expect_err("another owner's");
    assert!(refused.contains("no device waits for its client"), "{refused}");
    // One grant does not use up the connections of another.
    let many: Vec<Hostile> = (0..1000).map(|_| Hostile::connect_at(&agent.socket("b"))).collect();
    let mut a = Hostile::connect_at(&agent.socket("a"));
    let detach = a.request(&json!({"detach": {"device": device}}), &[]);
    assert!(detach.is_err_and(|reason| reason.contains("no such device")));
    let refusals = many.iter().filter(|client| {
        let end = Instant::now() + Duration::from_millis(1);
        seqpacket::receive(&client.socket, Some(end)).is_ok()
    });
    assert!(refusals.count() >= 990, "eight connections are served");
    drop((many, a, b));
    for name in ["a", "b"] {
        agent.revoke(name);
    }
    eventually("the agent releases everything", || {
        agent.descriptors() == before && agent.pinned() == 0
    });
}

#[test]
fn grants_that_cannot_be_are_refused_with_the_reason() {
    let Some(lab) = Lab::new("grant-refused", 1) else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    agent.grant("a", &pool_of(&["wire0"]));
    let socket = agent.socket("b");
    let mut users = pool_of(&["wire1"]);
    users["users"] = json!([65534]);
    let mut steer = pool_of(&["wire1"]);
    steer["steer"] = json!([{"udp-port": 1, "tcp-port": 2}]);
    let wire1 = pool_of(&["wire1"]);
    let taken = lab.file("agent-file");
    std::fs::write(&taken, "").expect("it is ours");
    for (name, pool, socket, words) in [
        ("a", &wire1, &socket, "it is in force already; revoke it first"),
        ("../b", &wire1, &socket, "1 to 64 letters, digits, `-` and `_`"),
        ("b", &pool_of(&["wire0"]), &socket, "`wire0` is in pool `a` too"),
        ("b", &users, &socket, "its socket tells who may use it"),
        ("b", &steer, &socket, "pools.b.steer: rule 1"),
        ("b", &pool_of(&[]), &socket, "no `interfaces`, no `taps` and no `pci`"),
        ("b", &wire1, &taken, "another file is there"),
        ("b", &wire1, &agent.socket("a"), "another agent listens there"),
    ] {
        let request = json!({"grant": name, "pool": pool, "socket": socket});
        let refused = agent.request(&request);
        assert!(refused.contains(words), "no `{words}` in {refused}");
    }
    assert_eq!(agent.request(&json!({"revoke": "b"})), "there is no such grant");
    // The look whether an agent listens was a client for a moment.
    eventually("nobody uses it", || agent.grants() == "[a 0 ]");
    // Another agent with the same pins would take the devices of the clients for orphans.
    let pins = lab.file("bpf").join("fastlane");
    let mut second: Command = lab.left.command(&[]);
    second.arg(fastlane_tests::binary("pod_agent")).arg(pins);
    let ended = Process::start(second).wait();
    assert!(ended.stderr.contains("OtherAgent"), "{}", ended.stderr);
}
