//! Configurations that cannot run are refused with exit status 4; the message names the object, the
//! reason and the remedy.

use fastlane_tests::{Application, Echo, Lab, Mechanism, eventually};
use serde_json::{Value, json};

/// Asserts that macswap refuses to start with these words.
#[track_caller]
fn refused(lab: &Lab, wrapper: &[&str], configuration: Value, words: &[&str]) {
    let before = links(lab);
    let (status, log) = Application::refused(lab, wrapper, configuration);
    assert_eq!(status, Some(4), "{log}");
    for word in words {
        assert!(log.contains(word), "`{word}` is not in: {log}");
    }
    eventually("no interface is left behind", || links(lab) == before);
}

/// Returns the names of the interfaces of the left host. Their states change asynchronously.
fn links(lab: &Lab) -> Vec<String> {
    let text = lab.left.run(&["ip", "-brief", "link"]);
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn steered(mechanism: Mechanism) -> Value {
    Application::steered(&mechanism.on("wire0"))
}

#[test]
fn no_such_interface() {
    let Some(lab) = Lab::new("refusals-interface", 1) else { return };
    for mechanism in Mechanism::ALL {
        let configuration = Application::steered(&mechanism.on("wire7"));
        let words = ["macswap: port `wire`: no interface wire7", "there are lo", "wire0"];
        refused(&lab, &[], configuration, &words);
    }
}

#[test]
fn an_mtu_too_large_for_a_frame() {
    let Some(lab) = Lab::new("refusals-mtu", 1) else { return };
    for host in [&lab.left, &lab.right] {
        host.run(&["ip", "link", "set", "wire0", "mtu", "9000"]);
    }
    for mechanism in Mechanism::ALL {
        let words = [
            "port `wire`: wire0 has an MTU of 9000 bytes, but a frame of the pool holds an MTU of ",
            "increase `lanes.frame-size` (up to ",
            "or run `ip link set dev wire0 mtu ",
        ];
        refused(&lab, &[], steered(mechanism), &words);
    }
}

#[test]
fn an_interface_that_another_xdp_program_holds() {
    let Some(lab) = Lab::new("refusals-xdp", 1) else { return };
    let holder = Application::macswap(&lab, steered(Mechanism::XdpNative));
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let words = [
            "macswap: port `wire`: the XDP program `fastlane_xdp` (id ",
            ", native mode) is attached to `wire0`: end the process that holds its link, or run \
             `bpftool link detach id ",
        ];
        refused(&lab, &[], steered(mechanism), &words);
    }
    Echo::new(&lab.right, "wire0").once();
    holder.stop();
}

#[test]
fn a_cpu_that_is_not_there() {
    let Some(lab) = Lab::new("refusals-cpu", 1) else { return };
    let mut configuration = steered(Mechanism::Packet);
    configuration["lanes"] = json!({"cpus": [0, 1000]});
    let words = ["lane 1: this process may not use CPU 1000, only ", "`lanes.cpus`"];
    refused(&lab, &[], configuration.clone(), &words);
    // Nor is one that the process may not use.
    configuration["lanes"] = json!({"cpus": [1]});
    let words = ["lane 0: this process may not use CPU 1, only 0; "];
    refused(&lab, &["taskset", "--cpu-list", "0"], configuration, &words);
}

#[test]
fn an_interface_that_another_holds() {
    let Some(lab) = Lab::new("refusals-busy", 1) else { return };
    for first in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let macswap = Application::macswap(&lab, steered(first));
        for second in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
            let words = [
                "port `wire`: the XDP program `fastlane_xdp` (id ",
                "is attached to `wire0`: end the process that holds its link, or run `bpftool link",
            ];
            refused(&lab, &[], steered(second), &words);
        }
        // The first one is not disturbed.
        Echo::new(&lab.right, "wire0").once();
        macswap.stop();
    }
}

#[test]
fn too_few_queues_to_send() {
    let Some(lab) = Lab::new("refusals-queues", 1) else { return };
    let ends = ["numrxqueues", "4", "numtxqueues", "1"];
    lab.left.run(
        &[
            &["ip", "link", "add", "wire1"][..],
            &ends,
            &["type", "veth", "peer", "name", "wire2"],
            &["numrxqueues", "1", "numtxqueues", "4"],
        ]
        .concat(),
    );
    for interface in ["wire1", "wire2"] {
        lab.left.run(&["ip", "link", "set", interface, "up"]);
    }
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let configuration = Application::steered(&mechanism.on("wire1"));
        let words = [
            "port `wire`: wire1 has 4 receive queues but only 1 transmit queues",
            "`ethtool -L wire1 rx 1 tx 1`",
        ];
        refused(&lab, &[], configuration, &words);
    }
}

#[test]
fn locked_memory_that_is_not_granted() {
    let Some(lab) = Lab::new("refusals-memlock", 1) else { return };
    // Root may lock as much as it likes, unless it has lost that capability.
    let limit = ["prlimit", "--memlock=65536:65536", "--"];
    let lost = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"];
    let words = [
        "port `wire`: out of locked memory: `ulimit -l` is 64 KiB",
        "needs 16384 KiB",
        "LimitMEMLOCK=",
        "CAP_IPC_LOCK",
        "\"frames\"",
    ];
    refused(&lab, &[&limit[..], &lost].concat(), steered(Mechanism::XdpNative), &words);
    // The control: with the capability the limit is no obstacle.
    let (command, session) = Application::wrapped(&lab, &limit, steered(Mechanism::XdpNative));
    let macswap = Application::run(command, session);
    Echo::new(&lab.right, "wire0").once();
    macswap.stop();
}

#[test]
fn a_capability_that_is_missing() {
    let Some(lab) = Lab::new("refusals-capabilities", 1) else { return };
    let without = |lost: &str| {
        let lost = lost.split(' ').map(|name| format!("-{name}")).collect::<Vec<_>>().join(",");
        [format!("--bounding-set={lost}"), format!("--inh-caps={lost}")]
    };
    for (mechanism, lost, named) in [
        (Mechanism::XdpNative, "net_raw", "CAP_NET_RAW"),
        (Mechanism::XdpNative, "net_admin", "CAP_NET_ADMIN"),
        (Mechanism::XdpNative, "bpf sys_admin", "CAP_BPF"),
        (Mechanism::Packet, "net_raw", "CAP_NET_RAW"),
        (Mechanism::Packet, "net_admin", "CAP_NET_ADMIN"),
    ] {
        let [bounding, inheritable] = without(lost);
        let wrapper = ["setpriv", &bounding, &inheritable];
        refused(&lab, &wrapper, steered(mechanism), &[named, "wire", "run as root"]);
    }
}
