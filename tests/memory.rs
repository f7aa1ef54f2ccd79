//! Memory of the lanes is provided before the first packet, and locked on request.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use fastlane_tests::{Application, LEFT_MAC, Lab, Mechanism, Process, Totals, binary, measure};
use serde_json::{Value, json};

/// Frames of the pool: 16 MiB.
const FRAMES: u64 = 8192;

/// Asserts that lane 0 has taken no page fault since its first turn.
#[track_caller]
fn assert_no_faults(totals: &Totals, what: &str) {
    let faults = ["minor_page_faults", "major_page_faults"].map(|name| totals.lane(0, name));
    assert_eq!(faults, [0, 0], "minor and major page faults of the lane, {what}");
}

/// Returns a field of `/proc/PID/status` in KiB.
fn status(application: &Application, field: &str) -> u64 {
    let path = format!("/proc/{}/status", application.process.id());
    let text = std::fs::read_to_string(path).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Waits until the main thread has read the page faults again.
fn wait_for_faults() {
    thread::sleep(Duration::from_millis(300));
}

#[test]
fn a_lane_takes_no_page_fault_after_its_start() {
    for mechanism in Mechanism::ALL {
        let name = format!("memory-{mechanism:?}").to_lowercase();
        let Some(lab) = Lab::new(&name, 1) else { return };
        let macswap = Application::macswap(&lab, Application::steered(&mechanism.on("wire0")));
        let settings = json!({
            "count-packets": 50_000, "outstanding-packets": 1024, "flows": {"count": 64},
        });
        let (report, _) = measure(&lab, &lab.right, &mechanism.on("wire0"), settings);
        assert!(report.received() > 40_000, "{}", report.0);
        wait_for_faults();
        assert_no_faults(&macswap.totals(), &name);
        macswap.stop();
    }
}

#[test]
fn a_lane_takes_no_page_fault_after_its_port_was_reopened() {
    for mechanism in Mechanism::ALL {
        let name = format!("memory-again-{mechanism:?}").to_lowercase();
        let Some(lab) = Lab::new(&name, 1) else { return };
        let mut configuration = Application::steered(&mechanism.on("wire0"));
        // A queue's account of 16,384 frames takes several pages.
        configuration["lanes"] = json!({"frames": 2 * FRAMES, "lock-memory": true});
        let macswap = Application::macswap(&lab, configuration);
        let locked = status(&macswap, "VmLck");
        assert!(locked > 0);
        lab.left.run(&["ip", "link", "delete", "wire0"]);
        macswap.process.wait_for("was removed");
        lab.join(1, LEFT_MAC);
        macswap.process.wait_for("port `wire`: reopened on wire0");
        let settings = json!({
            "count-packets": 50_000, "outstanding-packets": 1024, "flows": {"count": 64},
        });
        let (report, _) = measure(&lab, &lab.right, &mechanism.on("wire0"), settings);
        assert!(report.received() > 40_000, "{}", report.0);
        wait_for_faults();
        assert_no_faults(&macswap.totals(), &name);
        let unlocked = unlocked(&macswap);
        assert!(unlocked.is_empty(), "not locked on {mechanism:?}: {unlocked:#?}");
        macswap.stop();
    }
}

/// Returns the heaps and private mappings of a process of which no page is locked.
fn unlocked(application: &Application) -> Vec<String> {
    let path = format!("/proc/{}/smaps", application.process.id());
    let text = std::fs::read_to_string(path).expect("the process runs");
    let mut unlocked = Vec::new();
    let mut head = "";
    for line in text.lines() {
        match line.split_once(':') {
            Some(("VmFlags", flags)) => {
                let has = |flag: &str| flags.split_whitespace().any(|it| it == flag);
                let is_private = head.split_whitespace().nth(1) == Some("rw-p");
                if is_private && !has("lo") && !has("nr") {
                    unlocked.push(head.to_owned());
                }
            }
            Some((name, _)) if name.contains('-') => head = line,
            _ if line.contains('-') && !line.contains("kB") => head = line,
            _ => {}
        }
    }
    unlocked
}

/// Returns a configuration whose only port needs no privilege.
fn in_memory(lock: bool) -> Value {
    let fill = json!({"frames": 64, "length": 60});
    json!({
        "lanes": {"frames": FRAMES, "lock-memory": lock},
        "ports": {"wire": {"driver": {"memory": {"fill": fill}}}},
    })
}

#[test]
fn memory_is_locked_on_request() {
    let Some(lab) = Lab::new("memory-locked", 1) else { return };
    let macswap = Application::macswap(&lab, in_memory(false));
    assert_eq!(status(&macswap, "VmLck"), 0);
    macswap.stop();
    let macswap = Application::macswap(&lab, in_memory(true));
    let (locked, resident) = (status(&macswap, "VmLck"), status(&macswap, "VmRSS"));
    assert!(locked > FRAMES * 2, "the pool alone has 16 MiB: {locked} KiB");
    assert!(locked > resident * 9 / 10, "{locked} of {resident} KiB");
    wait_for_faults();
    assert_no_faults(&macswap.totals(), "locked");
    macswap.stop();
}

#[test]
fn memory_that_cannot_be_locked_is_refused() {
    let Some(lab) = Lab::new("memory-limit", 1) else { return };
    // A directory of the lab's that another user may use, with a copy of the program.
    set_permissions(lab.directory(), Permissions::from_mode(0o777)).expect("our directory");
    let program = lab.file("macswap");
    std::fs::copy(binary("macswap"), &program).expect("a copy of the program");
    let command = |limit: &str, lock| -> Command {
        let (path, _) = Application::configure(&lab, in_memory(lock));
        let limit = format!("--memlock={limit}");
        let mut command = lab.left.command(&[
            "prlimit",
            &limit,
            "--",
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
            "--inh-caps=-all",
        ]);
        command.arg(&program).arg(path);
        command
    };
    for (limit, said) in [("0:0", "0 KiB"), ("8388608:8388608", "8192 KiB")] {
        let ended = Process::start(command(limit, true)).wait();
        assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
        for word in [
            "lanes.lock-memory: ",
            " MiB cannot be locked (",
            &format!("RLIMIT_MEMLOCK is {said}: raise it (`LimitMEMLOCK=infinity`"),
            "CAP_IPC_LOCK",
        ] {
            assert!(ended.stderr.contains(word), "`{word}` is not in: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("running; "), "{}", ended.stderr);
    }
    // The control: the same user may start without locking.
    let process = Process::start(command("0:0", false));
    process.wait_for("running; ");
}
