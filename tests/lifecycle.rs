//! Start and end of an application, and the state of its interface meanwhile.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use fastlane_tests::{Application, Echo, Lab, Mechanism, binary, build_as_release, eventually};
use serde_json::json;

/// Number of SIGABRT.
const ABORTED: i32 = 6;

/// Returns the IDs of the eBPF programs and maps of a process, by their kind in `/proc` (proc(5)).
fn held(process: u32) -> BTreeSet<(&'static str, String)> {
    let folder = format!("/proc/{process}/fdinfo");
    let files = std::fs::read_dir(folder).expect("the process runs").flatten();
    let texts: Vec<String> =
        files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let pairs = lines.filter_map(|line| line.split_once(':'));
    pairs
        .filter_map(|(key, value)| match key {
            "prog_id" => Some(("prog", value.trim().to_owned())),
            "map_id" => Some(("map", value.trim().to_owned())),
            _ => None,
        })
        .collect()
}

/// Returns all interfaces, programs and filters on the left host that an application could leave
/// behind.
fn traces(lab: &Lab) -> Vec<String> {
    let links = lab.left.run(&["ip", "-d", "link"]);
    let mut traces: Vec<String> = links
        .lines()
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_digit()))
        .filter(|line| !line.contains(": lo:") && !line.contains(": wire0@"))
        .map(str::to_owned)
        .collect();
    traces.extend(links.lines().filter(|line| line.contains("prog/xdp")).map(str::to_owned));
    let attached = lab.left.run(&["bpftool", "net", "list"]);
    traces.extend(attached.lines().filter(|line| line.contains(" id ")).map(str::to_owned));
    traces
}

/// Returns true if the program or map with this ID exists on the left host.
fn is_loaded(lab: &Lab, kind: &str, id: &str) -> bool {
    lab.left.attempt(&["bpftool", kind, "show", "id", id]).status.success()
}

fn killed(name: &str, mechanism: Mechanism) {
    let Some(lab) = Lab::new(name, 1) else { return };
    let configuration = || Application::steered(&mechanism.on("wire0"));
    assert_eq!(traces(&lab), [""; 0], "the control: nothing is there before");
    let mut echo = Echo::new(&lab.right, "wire0");
    let mut held_before = BTreeSet::new();
    for _ in 0..3 {
        let macswap = Application::macswap(&lab, configuration());
        echo.once();
        held_before.extend(held(macswap.process.id()));
        assert!(!traces(&lab).is_empty(), "nothing is seen of it");
        macswap.kill();
        // At once again: the kernel may still be busy with the end of the first.
    }
    assert!(held_before.iter().any(|(kind, _)| *kind == "map"), "{held_before:?}");
    eventually("nothing is left", || traces(&lab).is_empty());
    eventually("nothing is loaded", || {
        !held_before.iter().any(|(kind, id)| is_loaded(&lab, kind, id))
    });
    Application::macswap(&lab, configuration()).stop();
    eventually("nothing is left", || traces(&lab).is_empty());
}

#[test]
fn killed_on_af_xdp_in_native_mode_nothing_is_left() {
    killed("lifecycle-killed-native", Mechanism::XdpNative);
}

#[test]
fn killed_on_af_xdp_in_generic_mode_nothing_is_left() {
    killed("lifecycle-killed-generic", Mechanism::XdpGeneric);
}

#[test]
fn killed_on_af_packet_nothing_is_left() {
    killed("lifecycle-killed-af-packet", Mechanism::Packet);
}

#[test]
fn killed_on_a_tap_nothing_is_left() {
    let Some(lab) = Lab::new("lifecycle-killed-tap", 1) else { return };
    let tap = || json!({"ports": {"wire": {"driver": {"tap": {"name": "wire9"}}}}});
    let macswap = Application::macswap(&lab, tap());
    assert!(traces(&lab).iter().any(|trace| trace.contains("wire9")));
    macswap.kill();
    eventually("nothing is left", || traces(&lab).is_empty());
    Application::macswap(&lab, tap()).stop();
}

#[test]
fn asked_to_end_it_sends_what_it_holds_and_sums_up() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("lifecycle-summary", 1) else { return };
        let macswap = Application::macswap(&lab, Application::steered(&mechanism.on("wire0")));
        let mut echo = Echo::new(&lab.right, "wire0");
        (0..100).for_each(|_| echo.once());
        let ended = macswap.stop();
        for counter in ["received_packets", "sent_packets", "verdict_reflect", "steer_claimed"] {
            assert_eq!(ended.counter(counter), 100, "{counter}:\n{}", ended.stderr);
        }
        assert_eq!(ended.drops(), 0, "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn without_input_it_runs_as_ever() {
    let Some(lab) = Lab::new("lifecycle-input", 1) else { return };
    for wrapper in [r#"exec "$0" "$@" <&-"#, r#"exec "$0" "$@" </dev/null"#] {
        let driver = Mechanism::XdpNative.on("wire0");
        let shell = ["sh", "-c", wrapper];
        let (command, session) = Application::wrapped(&lab, &shell, Application::steered(&driver));
        let macswap = Application::run(command, session);
        let mut echo = Echo::new(&lab.right, "wire0");
        (0..10).for_each(|_| echo.once());
        macswap.stop();
    }
}

#[test]
fn a_link_goes_down_and_comes_up_again() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("lifecycle-link", 1) else { return };
        let mut macswap = Application::macswap(&lab, Application::steered(&mechanism.on("wire0")));
        let mut echo = Echo::new(&lab.right, "wire0");
        for host in [&lab.left, &lab.right] {
            echo.once();
            host.run(&["ip", "link", "set", "wire0", "down"]);
            assert!(!echo.try_once(Duration::from_millis(100)), "the control: the link is down");
            host.run(&["ip", "link", "set", "wire0", "up"]);
            // A packet socket reports once that its interface was down; frames sent before the link
            // is ready are lost.
            eventually("frames come back again", || echo.try_once(Duration::from_millis(200)));
            echo.once();
        }
        assert!(macswap.process.is_running());
        macswap.stop();
    }
}

#[test]
fn an_interface_vanishes_without_crash_or_spin() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("lifecycle-vanishes", 1) else { return };
        let mut macswap = Application::macswap(&lab, Application::steered(&mechanism.on("wire0")));
        Echo::new(&lab.right, "wire0").once();
        lab.left.run(&["ip", "link", "delete", "wire0"]);
        // By then a spinning lane would have used a second of CPU, if it had got one.
        std::thread::sleep(Duration::from_millis(500));
        let before = macswap.totals().lane(0, "turn");
        std::thread::sleep(Duration::from_secs(1));
        let turns = macswap.totals().lane(0, "turn") - before;
        assert!(turns < 2000, "{mechanism:?}: {turns} turns in about a second");
        assert!(macswap.process.is_running());
        let ended = macswap.process.stop();
        assert_eq!(ended.status.code(), Some(0), "{mechanism:?}: {}", ended.stderr);
    }
}

/// Lets a lane of `program` panic. Asserts that the process ends by SIGABRT with the message, and
/// that the next one starts over what it has left.
fn panics(lab: &Lab, program: &Path) {
    let file = lab.file("panic");
    let mut configuration = Application::steered(&Mechanism::XdpNative.on("wire0"));
    configuration["app"] = json!([0, file]);
    let (path, session) = Application::configure(lab, configuration);
    let start = || {
        let mut command = lab.left.command(&[]);
        command.arg(program).arg(&path);
        Application::run(command, session.clone())
    };
    let mut echo = Echo::new(&lab.right, "wire0");
    let application = start();
    echo.once();
    let slow = fastlane::slow::attach(session.to_str().unwrap()).unwrap();
    std::fs::write(&file, "").unwrap();
    let ended = application.process.wait();
    assert_eq!(ended.status.signal(), Some(ABORTED), "{}", ended.stderr);
    assert!(ended.stderr.contains("'lane-0'") && ended.stderr.contains("on purpose"));
    assert!(!ended.stderr.contains("frames out"), "no summary: {}", ended.stderr);
    // Its peers see the end, Linux has the interface, and the next one starts over the old socket.
    assert!(!slow.is_alive());
    eventually("nothing is left of it", || traces(lab).is_empty());
    std::fs::remove_file(&file).unwrap();
    let application = start();
    echo.once();
    application.stop();
}

/// A test program unwinds, unless the program itself sees to it.
#[test]
fn a_lane_that_panics_ends_the_process_at_once() {
    let Some(lab) = Lab::new("lifecycle-panic", 1) else { return };
    panics(&lab, &binary("panics"));
}

#[test]
fn a_lane_that_panics_ends_a_release_at_once() {
    let Some(lab) = Lab::new("lifecycle-abort", 1) else { return };
    let manifest = include_str!("../Cargo.toml");
    let (_, release) = manifest.split_once("[profile.release]").expect("the profile");
    let release = release.split("\n[").next().expect("its settings");
    assert!(release.contains("\npanic = \"abort\"\n"), "the program is not built as a release");
    let program = lab.file("panics");
    build_as_release(&program);
    panics(&lab, &program);
}
