//! The program as operators start it: command line, and both processes under their supervisor.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastlane_testing::namespace::{ip, private};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

/// Timeout of every wait: only a hanging machine needs longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn upf(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_upf")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Creates two interfaces in the namespace of the calling thread, and a configuration for them.
fn configuration(folder: &Path) -> Value {
    for (name, address) in [("n3", "10.3.0.1/24"), ("n6", "10.6.0.1/24")] {
        ip(&format!("link add {name} type veth peer name {name}wire"));
        ip(&format!("link set {name} up"));
        ip(&format!("link set {name}wire up"));
        ip(&format!("address add {address} dev {name}"));
    }
    let port = |name: &str| json!({ "driver": { "af-packet": { "interface": name } } });
    json!({
        "ports": { "n3": port("n3"), "n6": port("n6") },
        "session": folder.join("upf.sock"),
        "app": {
            "node-id": "127.0.0.1",
            "n4": { "addresses": ["127.0.0.1"] },
            "interfaces": {
                "n3": { "port": "n3", "role": "n3", "network-instances": ["access"],
                        "addresses": ["10.3.0.1"] },
                "n6": { "port": "n6", "role": "n6", "network-instances": ["internet"] },
            },
            "pools": [{ "network-instance": "internet", "prefix": "10.45.0.0/16" }],
            "sessions": 256,
        },
    })
}

fn written(folder: &Path, configuration: &Value) -> String {
    let path = folder.join("upf.json");
    std::fs::write(&path, configuration.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A supervisor, which ends with the test, and its output.
struct Supervisor {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Supervisor {
    fn start(config: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_upf"));
        let mut child = command.arg(config).stderr(Stdio::piped()).spawn().unwrap();
        let (stderr, lines) = (child.stderr.take().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let to = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                to.lock().unwrap().push(line);
            }
        });
        Self { child, lines }
    }

    /// Returns the ids of a process and its restarts, once there are `count`.
    fn processes(&self, half: &str, count: usize) -> Vec<Pid> {
        let begin = format!("upf: the {half} path process has id ");
        until(&format!("the {half} half's process {count}"), || {
            let lines = self.lines.lock().unwrap();
            let ids = lines.iter().filter_map(|line| line.strip_prefix(&begin)?.parse().ok());
            let ids: Vec<Pid> = ids.filter_map(Pid::from_raw).collect();
            (ids.len() >= count).then_some(ids)
        })
    }

    fn wait_until_said(&self, words: &str, count: usize) {
        until(words, || {
            let lines = self.lines.lock().unwrap();
            (lines.iter().filter(|line| line.contains(words)).count() >= count).then_some(())
        });
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for its end.
    fn status(&mut self) -> Option<i32> {
        until("the supervisor's end", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Its processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match found() {
            Some(found) => return found,
            None => assert!(Instant::now() < end, "no {what}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_there(process: Pid) -> bool {
    test_kill_process(process).is_ok()
}

/// Waits until the API gives this reply.
fn answers(arguments: &[&str], part: &str) {
    until(part, || {
        let (status, text) = said(&upf(arguments));
        (status == Some(0) && text.contains(part)).then_some(())
    });
}

#[test]
fn a_half_that_dies_is_started_again_and_the_other_goes_on() {
    if !private("a_half_that_dies_is_started_again_and_the_other_goes_on") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = written(folder.path(), &configuration(folder.path()));
    let mut supervisor = Supervisor::start(&config);
    let fast = supervisor.processes("fast", 1)[0];
    let slow = supervisor.processes("slow", 1)[0];
    answers(&["sessions"], "0 of 0 sessions");

    kill_process(slow, Signal::KILL).unwrap();
    let slow = supervisor.processes("slow", 2)[1];
    answers(&["sessions"], "0 of 0 sessions");
    assert!(is_there(fast), "the lanes have nothing to do with it");

    kill_process(fast, Signal::KILL).unwrap();
    let fast = supervisor.processes("fast", 2)[1];
    supervisor.wait_until_said("table `sessions`: inherited from the previous process", 1);
    assert!(is_there(slow), "it waits for the next fast half");
    answers(&["sessions"], "0 of 0 sessions");

    kill_process(supervisor.id(), Signal::TERM).unwrap();
    assert_eq!(supervisor.status(), Some(0));
    assert!(!is_there(fast) && !is_there(slow));
}

/// A process without supervisor, as in a container of its own, which ends with the test.
struct Alone(Child);

impl Alone {
    fn start(half: &str, config: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_upf"));
        Self(command.args([half, config]).spawn().unwrap())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the API responds to a GET with all of `parts`.
fn responds(path: &str, parts: &[&str]) {
    until(&format!("{path} with {parts:?}"), || {
        let mut stream = TcpStream::connect("127.0.0.1:8805").ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        parts.iter().all(|part| text.contains(part)).then_some(())
    });
}

#[test]
fn a_control_plane_tells_that_there_is_no_fast_path() {
    if !private("a_control_plane_tells_that_there_is_no_fast_path") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = written(folder.path(), &configuration(folder.path()));
    let _slow = Alone::start("slow", &config);
    let absent = || {
        responds("/healthz", &[" 503 ", "the fast path process does not run"]);
        responds("/readyz", &[" 503 ", "no-fast-path"]);
        responds("/metrics", &[" 200 ", "upf_fast_half_up 0"]);
        let (status, text) = said(&upf(&["sessions"]));
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("waits for the fast path process"), "{text}");
    };
    absent();
    for _ in 0..2 {
        let fast = Alone::start("fast", &config);
        responds("/healthz", &[" 200 ", "ok"]);
        answers(&["sessions"], "0 of 0 sessions");
        drop(fast);
        absent();
    }
}

#[test]
fn halves_do_not_outlive_their_supervisor() {
    if !private("halves_do_not_outlive_their_supervisor") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = written(folder.path(), &configuration(folder.path()));
    let mut supervisor = Supervisor::start(&config);
    let fast = supervisor.processes("fast", 1)[0];
    let slow = supervisor.processes("slow", 1)[0];
    answers(&["sessions"], "0 of 0 sessions");
    kill_process(supervisor.id(), Signal::KILL).unwrap();
    assert_eq!(supervisor.status(), None);
    // Init reaps orphans; until then they are zombies.
    until("the end of both halves", || {
        let ended = |process: Pid| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        (ended(fast) && ended(slow)).then_some(())
    });
}

#[test]
fn what_refuses_to_start_ends_all_with_its_status() {
    if !private("what_refuses_to_start_ends_all_with_its_status") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = configuration(folder.path());
    wrong["ports"]["n6"]["driver"]["af-packet"]["interface"] = json!("n66");
    let mut supervisor = Supervisor::start(&written(folder.path(), &wrong));
    assert_eq!(supervisor.status(), Some(4));
    supervisor.wait_until_said("the fast path process cannot start (exit status 4)", 1);

    let mut wrong = configuration_of_n4("192.0.2.77", folder.path());
    let mut supervisor = Supervisor::start(&written(folder.path(), &wrong));
    assert_eq!(supervisor.status(), Some(4));
    supervisor.wait_until_said("192.0.2.77", 1);

    wrong["app"]["pools"][0]["prefix"] = json!("10.45.0.1/16");
    let config = written(folder.path(), &wrong);
    let (status, text) = said(&upf(&[&config]));
    assert_eq!(status, Some(3));
    let expected = "app.pools.0.prefix: `10.45.0.1/16` has bits set behind the prefix";
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains("is process"), "{text}");
}

/// Returns the configuration with another N4 address.
/// A datagram socket shows each write(2) by itself.
#[test]
fn each_line_of_the_supervisor_is_one_write() {
    if !private("upf/supervisor-lines") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut config = configuration(folder.path());
    config["ports"]["n6"]["driver"]["af-packet"]["interface"] = json!("absent");
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_upf"));
    command.arg(written(folder.path(), &config)).stderr(OwnedFd::from(theirs));
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut lines, mut buffer) = (vec![], [0; 4096]);
    while !lines.iter().any(|line: &String| line.contains("ending both")) {
        let length = ours.recv(&mut buffer).expect("the supervisor ends both");
        lines.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    child.wait().unwrap();
    let of_supervisor = |line: &&String| line.contains("path process");
    assert!(lines.iter().filter(of_supervisor).count() >= 3, "{lines:?}");
    for line in lines.iter().filter(of_supervisor) {
        assert!(line.starts_with("upf: the ") && line.ends_with('\n'), "{line:?}");
    }
}

fn configuration_of_n4(address: &str, folder: &Path) -> Value {
    for name in ["n3", "n6"] {
        ip(&format!("link delete {name}"));
    }
    let mut configuration = configuration(folder);
    configuration["app"]["n4"]["addresses"] = json!([address]);
    configuration
}

#[test]
fn a_check_says_what_is_missing_and_touches_nothing() {
    if !private("a_check_says_what_is_missing_and_touches_nothing") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut configuration = configuration(folder.path());
    configuration["app"]["n4"]["addresses"] = json!(["192.0.2.77"]);
    let config = written(folder.path(), &configuration);
    let (status, text) = said(&upf(&["check", &config]));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("port `n3`: af-packet"), "{text}");
    assert!(text.contains("192.0.2.77 is no address of this host"), "{text}");
    assert!(text.contains("`ip route add blackhole 10.45.0.0/16`"), "{text}");
    assert!(!folder.path().join("upf.sock").exists());
    let (_, again) = said(&upf(&["check", &config]));
    assert_eq!(text, again, "what it said the first time is still so");
}

#[test]
fn an_open_n4_is_warned_of_by_the_check_and_in_the_log() {
    if !private("an_open_n4_is_warned_of_by_the_check_and_in_the_log") {
        return;
    }
    let warning = "app.n4: any address may associate and establish sessions";
    let folder = tempfile::tempdir().unwrap();
    let mut open = configuration(folder.path());
    let config = written(folder.path(), &open);
    let (_, text) = said(&upf(&["check", &config]));
    assert!(text.contains(warning), "{text}");
    let supervisor = Supervisor::start(&config);
    supervisor.wait_until_said(warning, 1);
    drop(supervisor);
    open["app"]["n4"]["allow"] = json!(["127.0.0.0/8"]);
    let (_, text) = said(&upf(&["check", &written(folder.path(), &open)]));
    assert!(!text.contains(warning), "{text}");
}

#[test]
fn who_asks_where_nobody_is_learns_what_to_do() {
    for question in [&["sessions"][..], &["associations"], &["trace", "10.45.0.2"]] {
        let arguments = [question, &["--api", "127.0.0.1:1"]].concat();
        let (status, text) = said(&upf(&arguments));
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("no reply from 127.0.0.1:1"), "{text}");
    }
    let (status, text) = said(&upf(&["trace", "nobody"]));
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("write a SUPI"), "{text}");
}

#[test]
fn the_committed_schema_is_the_one_in_the_program() {
    let (_, text) = said(&upf(&["schema"]));
    assert_eq!(
        text,
        include_str!("../upf.schema.json"),
        "write it anew: `cargo run -p upf -- schema > apps/upf/upf.schema.json`"
    );
}

#[test]
fn the_examples_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    for name in ["af-xdp", "af-packet", "memif", "dpdk", "tap"] {
        let path = folder.join(name).with_extension("json");
        let told = upf::supervisor::read(&path, &[]);
        let told = told.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(told.settings.sessions, 100_000);
    }
}
