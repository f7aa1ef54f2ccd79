//! The handshake of Intel's AF_XDP device plugin. `map_client.c` sends the requests of DPDK's
//! driver and of CNDP in their order, and makes its sockets itself, as they do.

use std::path::PathBuf;
use std::process::Command;

use fastlane::agent::seqpacket;
use fastlane_tests::{Agent, GrantingAgent, Host, Lab, NOBODY, Process, eventually, pool_of};
use serde_json::{Value, json};

use crate::hostile::{Hostile, as_nobody};
use crate::{configuration, refused, traffic};

/// Rate of the traffic in packets per second. The rings of the client hold the packets of a second,
/// for which a busy machine may not run it.
const RATE: u64 = 2000;

/// Builds the client where everybody may execute it.
fn build(lab: &Lab) -> PathBuf {
    let program = lab.file("map_client");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/agent/map_client.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    let output = command.arg(&program).arg(source).output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Starts the client as [`NOBODY`] with CAP_NET_RAW only, and waits until it runs.
#[track_caller]
fn start(lab: &Lab, host: &Host, socket: &str, queues: u32, packets: u64) -> Process {
    let program = build(lab);
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    let mut command = host.command(&["setpriv"]);
    command.args(user).arg("--clear-groups");
    command.args(["--bounding-set=-all,+net_raw", "--inh-caps=-all,+net_raw"]);
    command.args(["--ambient-caps=-all,+net_raw", "--no-new-privs"]);
    command.arg(program).args(["wire0", socket, &queues.to_string(), &packets.to_string()]);
    let process = Process::start(command);
    process.wait_for("running");
    process
}

/// Asserts that a client has ended after all packets, and got the expected responses.
#[track_caller]
fn has_ended(client: Process) {
    let ended = client.wait();
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    for line in [
        "/version -> 0.1",
        "/xsk_map_fd,other0 -> /fd_nak",
        "/xsk_map_fd,wire0 -> /fd_ack",
        "/config_busy_poll,20,64 -> /config_busy_poll_ack",
        "/config_busy_poll,20,64 -> /config_busy_poll_nak",
        "/xsk_socket -> /nak",
        "/fin -> /fin_ack",
    ] {
        assert!(ended.stdout.contains(line), "no `{line}` in {}", ended.stdout);
    }
}

fn pool(lab: &Lab) -> Value {
    let mut pool = pool_of(&["wire0"]);
    pool["handshake"] = json!(lab.file("afxdp.sock"));
    pool
}

#[test]
fn a_client_of_device_plugins_gets_the_map_and_the_claimed_frames() {
    let Some(lab) = Lab::new("handshake", 2) else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let before = agent.descriptors();
    agent.grant("dpdk", &pool(&lab));
    let socket = lab.file("afxdp.sock");
    let socket = socket.to_str().expect("UTF-8");
    // Twice: a container that is started again connects again.
    for _ in 0..2 {
        let client = start(&lab, &lab.left, socket, 2, 5000);
        traffic(&lab, 5000, RATE).assert_intact();
        // What no rule claims stays in Linux.
        lab.right.assert_pings(3, &[fastlane_tests::LEFT]);
        has_ended(client);
    }
    // The next agent takes the programs over.
    let client = start(&lab, &lab.left, socket, 2, 6000);
    traffic(&lab, 2000, RATE).assert_intact();
    agent.kill();
    traffic(&lab, 2000, RATE).assert_intact();
    agent.run(&lab);
    agent.grant("dpdk", &pool(&lab));
    agent.process().wait_for("`wire0` is taken over for the handshake");
    traffic(&lab, 2000, RATE).assert_intact();
    has_ended(client);
    assert_eq!((agent.pinned(), agent.grants().as_str()), (1, "[dpdk 0 wire0]"));
    agent.revoke("dpdk");
    assert_eq!(agent.pinned(), 0);
    let link = lab.left.run(&["ip", "-d", "link", "show", "dev", "wire0"]);
    assert!(!link.contains("xdp"), "{link}");
    eventually("the agent releases everything", || agent.descriptors() == before);
}

#[test]
fn an_interface_that_is_moved_to_its_pod_keeps_its_program() {
    let Some(lab) = Lab::new("handshake-pod", 1) else { return };
    let Some(pod) = Host::new("handshake-pod") else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    agent.grant("dpdk", &pool(&lab));
    lab.left.run(&["ip", "link", "set", "wire0", "netns", &pod.path()]);
    pod.run(&["ip", "link", "set", "wire0", "up"]);
    let socket = lab.file("afxdp.sock");
    let client = start(&lab, &pod, socket.to_str().expect("UTF-8"), 1, 4000);
    traffic(&lab, 2000, RATE).assert_intact();
    agent.kill();
    agent.run(&lab);
    agent.grant("dpdk", &pool(&lab));
    agent.process().wait_for("`wire0` is taken over for the handshake");
    traffic(&lab, 2000, RATE).assert_intact();
    has_ended(client);
}

#[test]
fn only_users_of_the_pool_get_the_map_and_nothing_else_of_it() {
    let Some(lab) = Lab::new("handshake-users", 1) else { return };
    let mut pools = Agent::pools();
    pools["upf"]["handshake"] = json!(lab.file("afxdp.sock"));
    let Some(mut agent) = Agent::start(&lab, &pools) else { return };
    let before = agent.descriptors();
    // Root is in no pool.
    let connect = || seqpacket::connect(&lab.file("afxdp.sock")).expect("everybody may connect");
    let converse = |socket: &std::os::fd::OwnedFd, request: &[u8]| {
        let _ = seqpacket::send(socket, request, &[], std::time::Duration::from_secs(5));
        let received = seqpacket::receive(socket, None).expect("a response or the end");
        received.map(|it| String::from_utf8_lossy(&it.bytes).into_owned()).unwrap_or_default()
    };
    let root = connect();
    assert!(converse(&root, b"/connect,pod").contains("user 0 may not use pool `upf`"));
    // The first record connects, or the connection ends.
    for first in [&b"/version"[..], b"/xsk_map_fd,wire0", b"/connect", &[0xff; 300]] {
        let socket = as_nobody(connect);
        assert_eq!(converse(&socket, first), "/host_nak");
        assert_eq!(converse(&socket, b"/connect,pod"), "");
    }
    let socket = as_nobody(connect);
    assert_eq!(converse(&socket, b"/connect,another-pod"), "/host_ok");
    for request in [&b"/connect,pod"[..], b"/xsk_socket", b"/config_busy_poll,1", &[b'x'; 300]] {
        assert_eq!(converse(&socket, request), "/nak");
    }
    assert_eq!(converse(&socket, b"/xsk_map_fd,lo"), "/fd_nak");
    // Busy polling is for AF_XDP sockets.
    let request = b"/config_busy_poll,20,64";
    let patience = std::time::Duration::from_secs(5);
    let descriptor = std::os::fd::AsFd::as_fd(&socket);
    seqpacket::send(&socket, request, &[descriptor], patience).expect("the agent receives");
    let received = seqpacket::receive(&socket, None).expect("a response").expect("a response");
    assert_eq!(received.bytes, b"/config_busy_poll_nak");
    assert_eq!(converse(&socket, b"/fin"), "/fin_ack");
    // The interface is for nothing else.
    let mut client = Hostile::connect(&agent);
    let reason = client.try_attach().expect_err("a refusal");
    assert!(reason.contains("for the `handshake` of device plugins only"), "{reason}");
    drop((root, client, socket));
    refused(
        &lab,
        &agent,
        configuration(fastlane_tests::Mechanism::XdpNative),
        &["for the `handshake` of device plugins only"],
    );
    eventually("nothing is left", || agent.descriptors() == before);
    // An agent that ends by a signal leaves the program to the next one.
    assert!(agent.stop().status.success());
    assert_eq!(agent.pinned(), 1);
    agent.run(&lab);
    agent.process().wait_for("`wire0` is taken over for the handshake");
}
