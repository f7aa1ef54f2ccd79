//! Three ways to see what an application does, which agree: `top`, Prometheus, the summary at the
//! end.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use fastlane_tests::{Application, Echo, Lab, Mechanism, Process, binary, eventually};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

const FRAMES: u64 = 250;

/// Returns the value of a metric, summed over all samples whose labels contain `label`.
fn sample(page: &str, name: &str, label: &str) -> u64 {
    let lines = page.lines().filter(|line| line.starts_with(&format!("{name}_total{{")));
    let values = lines.filter(|line| line.contains(label)).map(|line| {
        let (_, value) = line.rsplit_once("} ").expect("labels, then the value");
        value.parse::<u64>().expect("a whole number")
    });
    values.sum()
}

#[test]
fn top_metrics_and_summary_agree() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("observe-agree", 1) else { return };
        let mut configuration = Application::steered(&mechanism.on("wire0"));
        configuration["metrics"] = json!({});
        let macswap = Application::macswap(&lab, configuration);
        let mut echo = Echo::new(&lab.right, "wire0");
        (0..FRAMES).for_each(|_| echo.once());
        eventually("steering is counted", || macswap.totals().wire("steer_claimed") == FRAMES);

        let totals = macswap.totals();
        let page = lab.left.run(&["curl", "--silent", "--fail", "http://127.0.0.1:9464/metrics"]);
        assert!(page.ends_with("# EOF\n"), "{page}");
        let ended = macswap.stop();
        for (counter, name, label) in [
            ("received_packets", "fastlane_port_received_packets", "wire"),
            ("received_bytes", "fastlane_port_received_bytes", "wire"),
            ("sent_packets", "fastlane_port_sent_packets", "wire"),
            ("sent_bytes", "fastlane_port_sent_bytes", "wire"),
            ("verdict_reflect", "fastlane_port_verdict_packets", "verdict=\"reflect\""),
            ("verdict_kernel", "fastlane_port_verdict_packets", "verdict=\"kernel\""),
            ("steer_claimed", "fastlane_steer_packets", "result=\"claimed\""),
        ] {
            let by_top = totals.wire(counter);
            assert_eq!(by_top, sample(&page, name, label), "{counter}: top and metrics\n{page}");
            assert_eq!(by_top, ended.counter(counter), "{counter}: top and {}", ended.stderr);
        }
        assert_eq!(totals.wire("received_packets"), FRAMES);
        let mode = totals.mode("wire");
        assert!(!mode.is_empty() && page.contains(&format!("mode=\"{mode}\"")), "{mode}\n{page}");
        assert!(ended.stderr.contains(&mode), "{}", ended.stderr);
    }
}

/// Containers of one pod have PID namespaces of their own: the kernel tells no process id.
#[test]
fn a_client_of_another_pid_namespace_is_served() {
    let Some(lab) = Lab::new("observe-pid", 1) else { return };
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let configuration = Application::steered(&Mechanism::Packet.on("wire0"));
    let macswap =
        Application::start_behind(&lab, &lab.left, &unshare, &binary("macswap"), configuration);
    assert_eq!(macswap.totals().wire("received_packets"), 0);
    // Its id is that in its own namespace.
    let mut command = std::process::Command::new(binary("fastlane"));
    command.arg("keep").arg(macswap.session());
    let keeper = Process::start(command);
    keeper.wait_for("process 1, ");
    keeper.kill();
    macswap.kill();
}

#[test]
fn another_user_sees_nothing() {
    let Some(lab) = Lab::new("observe-user", 1) else { return };
    let macswap = Application::macswap(&lab, Application::steered(&Mechanism::Packet.on("wire0")));
    // Where that user may go and what he may run, so that it is the session that refuses.
    set_permissions(lab.directory(), Permissions::from_mode(0o755)).expect("our directory");
    let fastlane = lab.file("fastlane");
    std::fs::copy(binary("fastlane"), &fastlane).expect("a copy of the program");
    set_permissions(&fastlane, Permissions::from_mode(0o755)).expect("our file");
    let session = macswap.session().to_str().expect("a path in ASCII");
    let top = [fastlane.to_str().expect("a path in ASCII"), "top", session, "--once", "--json"];
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

    let refused = lab.left.attempt(&[&nobody[..], &top].concat());
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(
        message.contains(session) && message.contains("run as that user, or as root"),
        "{message}"
    );
    assert!(refused.stdout.is_empty());
    // The control: it is the user that makes the difference.
    assert!(lab.left.run(&top).contains("received_packets"));
    macswap.stop();
}

/// A process that may have no descriptor cannot wait for any: poll(2) fails with EINVAL.
#[test]
fn a_session_outlives_an_error_of_poll() {
    let Some(lab) = Lab::new("observe-poll", 1) else { return };
    let port = json!({"driver": {"memory": {"fill": {"frames": 8, "length": 60}}}});
    let macswap = Application::macswap(&lab, json!({"ports": {"wire": port}}));
    let writer = fastlane::slow::attach(macswap.session().to_str().unwrap()).unwrap();
    let process = Pid::from_raw(macswap.process.id() as i32);
    let set = |limit: Rlimit| prlimit(process, Resource::Nofile, limit).expect("the same user");
    let before = set(Rlimit {
        current: Some(0),
        maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
    });
    // Wakes the session's thread, whose next wait fails.
    let _client = std::os::unix::net::UnixStream::connect(macswap.session()).unwrap();
    macswap.process.wait_for("the session cannot wait for its clients");
    set(before);
    assert!(writer.is_alive());
    eventually("the session serves again", || {
        fastlane::session::connect(macswap.session()).is_ok_and(|client| client.is_alive())
    });
    assert!(writer.tables().unwrap().is_empty());
    macswap.stop();
}

#[test]
fn a_session_that_can_never_wait_again_ends_with_its_application() {
    let Some(lab) = Lab::new("observe-poll-end", 1) else { return };
    let port = json!({"driver": {"memory": {"fill": {"frames": 8, "length": 60}}}});
    let macswap = Application::macswap(&lab, json!({"ports": {"wire": port}}));
    let process = Pid::from_raw(macswap.process.id() as i32);
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: Some(0), maximum };
    prlimit(process, Resource::Nofile, limit).expect("the same user");
    let _client = std::os::unix::net::UnixStream::connect(macswap.session()).unwrap();
    macswap.process.wait_for("the session cannot wait for its clients");
    // Its last wait fails, too: it must not try for ever.
    macswap.stop();
}
