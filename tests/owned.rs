//! Devices that Linux does not have, over memif and DPDK: Linux behind them by a TAP, operation
//! without privilege, several programs side by side, and refusals.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use fastlane_testing::skip;
use fastlane_tests::{Application, Generator, Lab, Process, binary, eventually};
use serde_json::{Value, json};

/// Returns a memif port: native, or by DPDK's driver.
fn memif(lab: &Lab, native: bool, role: &str) -> Value {
    let socket = lab.file("peer.memif");
    if native {
        return json!({"memif": {"socket": socket, "role": role}});
    }
    let socket = socket.display();
    json!({"dpdk": {"vdev": format!("net_memif0,role={role},socket={socket},socket-abstract=no")}})
}

/// Returns a configuration with one port `wire`.
fn configuration(port: Value) -> Value {
    json!({"ports": {"wire": port}, "dpdk": {"huge-pages": "none"}})
}

/// Sends 20,000 packets through `macswap` without loss and stops it while its peer runs.
fn goes_round(lab: &Lab, macswap: Application, driver: &Value) {
    let mut generator = Generator::start(lab, &lab.right, driver);
    let report = generator.trial(&json!({"count-packets": 20_000, "outstanding-packets": 32}));
    report.assert_intact();
    macswap.stop();
}

#[test]
fn linux_meets_linux_over_memif_and_dpdk() {
    let Some(lab) = Lab::new("owned-linux", 1) else { return };
    let port = |native, role, address: &str| {
        let tap = json!({"name": "owned0", "addresses": [address]});
        let rules = json!([{"udp-port": 2152}]);
        configuration(json!({
            "driver": memif(&lab, native, role), "steer": rules, "kernel": {"tap": tap},
        }))
    };
    let program = binary("macswap");
    let left = Application::start(&lab, &lab.left, &program, port(true, "server", "10.88.0.1/24"));
    let carrier = || lab.left.run(&["ip", "link", "show", "owned0"]).contains("LOWER_UP");
    eventually("the TAP has no carrier without a peer", || !carrier());
    let far = port(false, "client", "10.88.0.2/24");
    let right = Application::start(&lab, &lab.right, &program, far);
    eventually("the TAP follows the link", carrier);
    // ARP and ICMP are not what the rules say is fast, so they are Linux's, both ways.
    lab.left.assert_pings(20, &["10.88.0.2"]);
    lab.right.assert_pings(20, &["-s", "1400", "10.88.0.1"]);
    assert!(left.totals().wire("steer_passed") >= 40, "{}", left.totals().0);
    assert_eq!(left.totals().wire("verdict_reflect"), 0);
    right.stop();
    eventually("the TAP follows the link down", || !carrier());
    left.stop();
}

#[test]
fn without_root_and_without_any_capability() {
    for native in [true, false] {
        let Some(lab) = Lab::new("owned-nobody", 1) else { return };
        let everyone = |path: &std::path::Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))
        };
        everyone(lab.directory()).expect("the directory is ours");
        // Where the programs are built, nobody may be let in.
        let copy = |name: &str| -> PathBuf {
            let to = lab.file(name);
            let from = binary("macswap").with_file_name(name);
            std::fs::copy(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
            to
        };
        let (program, plugin) = (copy("macswap"), copy("libfastlane_dpdk.so"));
        let port = json!({"driver": memif(&lab, native, "server")});
        let (path, session) = Application::configure(&lab, configuration(port));
        let nobody =
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"];
        let mut command = lab.left.command(&nobody);
        command.args(["--inh-caps=-all", "--no-new-privs"]).arg(program).arg(path);
        command.env("FASTLANE_DPDK_PLUGIN", plugin).env("XDG_RUNTIME_DIR", lab.directory());
        let macswap = Application::run(command, session);
        let status = format!("/proc/{}/status", macswap.process.id());
        let status = std::fs::read_to_string(status).expect("it runs");
        assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
        goes_round(&lab, macswap, &memif(&lab, true, "client"));
    }
}

#[test]
fn two_programs_on_dpdk_side_by_side() {
    let labs: Vec<Lab> = (0..2).filter_map(|_| Lab::new("owned-two", 1)).collect();
    let start = |lab: &Lab| {
        let port = json!({"driver": memif(lab, false, "server")});
        Application::macswap(lab, configuration(port))
    };
    let running: Vec<Application> = labs.iter().map(start).collect();
    for (lab, macswap) in labs.iter().zip(running) {
        goes_round(lab, macswap, &memif(lab, true, "client"));
    }
}

#[test]
fn a_switch_to_dpdk_is_refused_where_a_lane_has_no_memory_of_it() {
    let Some(lab) = Lab::new("owned-lanes", 1) else { return };
    let port = |driver: Value, lanes: &[usize]| json!({"driver": driver, "lanes": lanes});
    let socket = lab.file("other.memif");
    let macswap = Application::macswap(
        &lab,
        json!({
            "lanes": {"cpus": [0, 1]}, "dpdk": {"huge-pages": "none"},
            "ports": {
                "first": port(memif(&lab, false, "server"), &[1]),
                "wire": port(json!({"memif": {"socket": socket, "role": "server"}}), &[0, 1]),
            },
        }),
    );
    let error = macswap.switch("wire", &["dpdk", "vdev=net_null0,no-rx=1"]).expect_err("lane 0");
    assert!(error.contains("lane 0 has no memory of DPDK"), "{error}");
    macswap.stop();
}

/// Returns exit status and output of macswap with this path of the DPDK plugin.
fn refusal(lab: &Lab, driver: Value, plugin: &str) -> (Option<i32>, String) {
    let (mut command, _) = Application::wrapped(lab, &[], configuration(json!({"driver": driver})));
    command.env("FASTLANE_DPDK_PLUGIN", plugin);
    let ended = Process::start(command).wait();
    (ended.status.code(), ended.stderr)
}

#[test]
fn without_dpdk_it_says_what_to_install() {
    let Some(lab) = Lab::new("owned-missing", 1) else { return };
    let (status, message) = refusal(&lab, json!({"dpdk": {"vdev": "net_null0"}}), "/nowhere/x.so");
    assert_eq!(status, Some(4), "{message}");
    assert!(message.contains("port `wire`") && message.contains("apt install dpdk"), "{message}");
    assert!(message.contains("make dpdk-plugin") && message.contains("/nowhere/x.so"), "{message}");
    // Everything else works without: nothing is looked for before a port asks for it.
    let port = json!({"driver": {"memory": {"fill": {"frames": 8, "length": 60}}}});
    let (mut command, session) = Application::wrapped(&lab, &[], configuration(port));
    command.env("FASTLANE_DPDK_PLUGIN", "/nowhere/x.so");
    let macswap = Application::run(command, session);
    eventually("frames go round", || macswap.totals().wire("sent_packets") > 1000);
    macswap.stop();
}

/// Returns the extended attribute `security.capability` that gives CAP_NET_ADMIN to a program
/// (capabilities(7), version 2).
fn file_capability() -> Vec<u8> {
    let (version_and_effective, net_admin) = (0x0200_0001_u32, 1_u32 << 12);
    [version_and_effective, net_admin, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Whoever may start a program with capabilities of its own must not choose what code it loads.
#[test]
fn a_program_with_file_capabilities_loads_nothing_that_its_caller_names() {
    let Some(lab) = Lab::new("owned-caps", 1) else { return };
    let everyone = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(lab.directory(), everyone).expect("the directory is ours");
    let (program, evil) = (lab.file("macswap"), lab.file("evil.so"));
    std::fs::copy(binary("macswap"), &program).expect("a copy");
    for path in [&evil, &lab.file("libfastlane_dpdk.so")] {
        std::fs::write(path, "no library").expect("a file");
    }
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let refused = |arguments: Value| {
        let mut with = configuration(json!({"driver": {"dpdk": {"vdev": "net_null0"}}}));
        with["dpdk"]["eal-arguments"] = arguments;
        let (path, _) = Application::configure(&lab, with);
        let mut command = lab.left.command(&nobody);
        command.arg(&program).arg(path).env("FASTLANE_DPDK_PLUGIN", &evil);
        let ended = Process::start(command).wait();
        assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
        ended.stderr
    };
    let error = refused(json!([]));
    assert!(error.contains("evil.so cannot be opened"), "the control: {error}");
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::setxattr(&program, "security.capability", &file_capability(), flags);
    if let Err(error) = set {
        return skip("owned-caps", &format!("no file capabilities here: {error}"));
    }
    let error = refused(json!([]));
    assert!(error.contains("has file capabilities") && !error.contains("evil.so"), "{error}");
    assert!(!error.contains(&lab.directory().display().to_string()), "{error}");
    let error = refused(json!(["-d", evil]));
    assert!(error.contains("are refused") && error.contains("AmbientCapabilities"), "{error}");
}

#[test]
fn the_program_itself_knows_no_dpdk() {
    let output = Command::new("ldd").arg(binary("macswap")).output().expect("ldd can be started");
    let libraries = String::from_utf8_lossy(&output.stdout);
    assert!(libraries.contains("libc.so") && !libraries.contains("librte"), "{libraries}");
}

#[test]
fn devices_that_are_not_there_are_named() {
    let Some(lab) = Lab::new("owned-refused", 1) else { return };
    let plugin = binary("macswap").with_file_name("libfastlane_dpdk.so");
    let plugin = plugin.to_str().expect("a path in ASCII");
    let cases = [
        (json!({"dpdk": {"vdev": "net_nonsense0"}}), "net_nonsense0"),
        (json!({"dpdk": {"vdev": "net_af_packet0,iface=nowhere0"}}), "net_af_packet0"),
        (json!({"memif": {"socket": "/nowhere/at/all.sock", "role": "server"}}), "/nowhere/at/all"),
    ];
    for (driver, named) in cases {
        let (status, message) = refusal(&lab, driver, plugin);
        assert_eq!(status, Some(4), "{message}");
        assert!(message.contains("port `wire`") && message.contains(named), "{message}");
    }
}
