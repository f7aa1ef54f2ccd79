//! Attacks from a pod: another network namespace, through the socket of a grant.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use fastlane::agent::records::{self, Attached, Request, Response};
use fastlane::agent::seqpacket;
use fastlane_tests::{GrantingAgent, Host, Lab, eventually, pool_of};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde_json::{Value, json};

use crate::hostile::Hostile;

const ADDRESS: &str = "10.99.0.1";

fn pool() -> Value {
    let mut pool = pool_of(&["wire0"]);
    pool["taps"] = json!({"tap7": {"addresses": [format!("{ADDRESS}/24"), "fd99::1/64"]},
        "eth0": {}});
    pool["af-packet"] = json!(true);
    pool
}

/// Opens a datagram socket in the network namespace of a host.
fn datagram(host: &Host, family: AddressFamily) -> OwnedFd {
    host.enter(|| {
        rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .expect("a socket")
    })
}

/// Returns the request for a TAP device with an IPv4 address.
fn tap(name: &str) -> Value {
    json!({"tap": {"name": name, "mac": null, "mtu": null, "queues": 1,
        "addresses": [[ADDRESS, 24]]}})
}

/// Asserts that a request is refused for a reason with these words.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, String>, words: &str) {
    let reason = result.expect_err("a refusal");
    assert!(reason.contains(words), "no `{words}` in {reason}");
}

fn links(host: &Host) -> String {
    host.run(&["ip", "-brief", "address", "show"])
}

#[test]
fn addresses_are_set_in_the_pod_only() {
    let Some(lab) = Lab::new("pod-addresses", 1) else { return };
    let Some(pod) = Host::new("pod-addresses") else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let before = agent.descriptors();
    agent.grant("pod", &pool());
    // An interface of this name is where the agent is.
    lab.left.run(&["ip", "link", "add", "tap7", "type", "veth", "peer", "name", "other7"]);
    let mut client = pod.enter(|| Hostile::connect_at(&agent.socket("pod")));
    let (own, agents) =
        (datagram(&pod, AddressFamily::INET), datagram(&lab.left, AddressFamily::INET));
    let own6 = datagram(&pod, AddressFamily::INET6);
    let file = std::fs::File::open("/dev/null").expect("it exists");
    refused(client.request(&tap("tap7"), &[agents.as_fd()]), "a socket is of a third one");
    refused(client.request(&tap("tap7"), &[own.as_fd(), agents.as_fd()]), "is of a third one");
    refused(client.request(&tap("tap7"), &[file.as_fd()]), "network namespace of a client");
    refused(client.request(&tap("tap7"), &[own6.as_fd()]), "a socket is missing");
    refused(client.request(&tap("tap7"), &[]), "a socket is missing");
    let three = [own.as_fd(), own6.as_fd(), own.as_fd()];
    refused(client.request(&tap("tap7"), &three), "3 descriptors came instead of 2");
    assert!(!links(&lab.left).contains(ADDRESS), "{}", links(&lab.left));
    assert!(!links(&pod).contains("tap7"), "{}", links(&pod));
    // The control.
    let made = client.request(&tap("tap7"), &[own.as_fd()]).expect("the pool has it");
    assert!(links(&pod).contains(ADDRESS), "{}", links(&pod));
    assert!(!links(&lab.left).contains(ADDRESS), "{}", links(&lab.left));
    drop((made, client));
    agent.revoke("pod");
    eventually("nothing stays", || agent.descriptors() == before && agent.pinned() == 0);
}

#[test]
fn only_tap_devices_of_the_pod_and_interfaces_of_the_pool_are_touched() {
    let Some(lab) = Lab::new("pod-touched", 1) else { return };
    let Some(pod) = Host::new("pod-touched") else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let before = agent.descriptors();
    agent.grant("pod", &pool());
    // The pod's own network, whose name the pool has, and one of the agent's.
    pod.run(&["ip", "link", "add", "eth0", "mtu", "1280", "type", "veth", "peer", "name", "eth1"]);
    pod.run(&["ip", "link", "set", "eth0", "up"]);
    lab.left.run(&["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]);
    lab.left.run(&["ip", "link", "set", "eth0", "up"]);
    let mut client = pod.enter(|| Hostile::connect_at(&agent.socket("pod")));
    let device = client.attach();
    for request in [
        json!({"follow": {"tap": "eth0", "device": device}}),
        json!({"set-tap-down": {"name": "eth0"}}),
    ] {
        refused(client.request(&request, &[]), "eth0: it is no TAP device");
    }
    for request in [
        json!({"follow": {"tap": "eth1", "device": device}}),
        json!({"set-tap-down": {"name": "lo"}}),
    ] {
        refused(client.request(&request, &[]), "this client has no TAP device");
    }
    let eth0 = |host: &Host| host.run(&["ip", "-brief", "link", "show", "dev", "eth0"]);
    assert!(eth0(&pod).contains("UP") && eth0(&lab.left).contains("UP"));
    assert!(pod.run(&["ip", "link", "show", "dev", "eth0"]).contains("mtu 1280"));
    // Properties of interfaces that the pool does not have, by name and by index.
    let ask = |name: &str, index: Value| json!({"interface": {"name": name, "index": index}});
    refused(client.request(&ask("eth0", Value::Null), &[]), "may not use `eth0`");
    refused(client.request(&ask("lo", json!(1)), &[]), "may not use `lo`");
    match client.request(&ask("wire0", json!(1)), &[]) {
        Ok((Response::Interface(None), _)) => {}
        other => panic!("{other:?}"),
    }
    // A re-entry by a descriptor that is none, or of a TAP device in the pod.
    let redirect = json!({"redirect": {"reentry": 5, "device": device}});
    let file = std::fs::File::open("/dev/null").expect("it exists");
    refused(client.request(&redirect, &[file.as_fd()]), "it is no queue of one");
    let socket = datagram(&pod, AddressFamily::INET);
    refused(client.request(&redirect, &[socket.as_fd()]), "it is no queue of one");
    let tap = client.request(&tap("tap7"), &[socket.as_fd()]).expect("the pool has it").1;
    refused(client.request(&redirect, &[tap[0].as_fd()]), "tap7 is in another network namespace");
    refused(client.request(&redirect, &[]), "0 descriptors came instead of 1");
    let far = json!({"redirect": {"reentry": u32::MAX, "device": device}});
    refused(client.request(&far, &[tap[0].as_fd()]), "there is no such re-entry");
    drop((client, tap));
    agent.revoke("pod");
    eventually("nothing stays", || agent.descriptors() == before && agent.pinned() == 0);
}

#[test]
fn a_grant_is_revoked_under_a_client_that_takes_no_responses() {
    let Some(lab) = Lab::new("pod-revoked", 1) else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let before = agent.descriptors();
    agent.grant("pod", &pool());
    let mut holder = Hostile::connect_at(&agent.socket("pod"));
    let device = holder.attach();
    let request = Request::Counts { device };
    let record = records::encode(1, &request).expect("a record");
    let flood = |client: &Hostile| {
        while seqpacket::send(&client.socket, &record, &[], Duration::from_millis(200)).is_ok() {}
    };
    flood(&holder);
    let silent = Hostile::connect_at(&agent.socket("pod"));
    let began = Instant::now();
    agent.revoke("pod");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(agent.pinned(), 0);
    eventually("nothing stays", || agent.descriptors() == before);
    drop((holder, silent));
    // The interface is free.
    agent.grant("pod", &pool());
    let mut client = Hostile::connect_at(&agent.socket("pod"));
    match client.request(
        &json!({"attach": {"driver": {"af-packet": {"interface": "wire0"}},
        "steer": [{"udp-port": 2152}], "max-length": 1792, "sockets": 1}}),
        &[],
    ) {
        Ok((Response::Attached(Attached { .. }), _)) => {}
        other => panic!("{other:?}"),
    }
}
