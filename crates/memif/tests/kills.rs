//! Peers that are killed while frames are under way.

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastlane_memif::{Address, MemifSettings, Role};
use fastlane_testing::Peer;
use support::testpmd::{Testpmd, is_installed};
use support::{End, directory, other, settings};

/// How much this process has open, and mapped of memif.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("our descriptors").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
    (descriptors, maps.lines().filter(|line| line.contains("memfd:memif")).count())
}

fn kills() -> usize {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 100 } else { 10 }
}

/// Sends as fast as it goes, and receives, until so many have come back.
#[track_caller]
fn traffic(end: &mut End, frames: usize) {
    let (mut came, began) = (0, Instant::now());
    while came < frames {
        for _ in 0..32 {
            end.send(&[7; 64]);
        }
        while end.receive(Duration::ZERO).is_some() {
            came += 1;
        }
        let late = began.elapsed() > Duration::from_secs(30);
        assert!(!late, "{came} of {frames} came back; {:?}", end.link.state());
        std::thread::yield_now();
    }
}

/// Traffic with a peer, which is killed; then with the next.
fn survive(role: Role, start: impl Fn(&Path) -> Box<dyn FnOnce()>) {
    let directory = directory();
    let mut end = End::open(settings(&directory, role));
    let mut before = None;
    for round in 0..=kills() {
        let kill = start(directory.path());
        traffic(&mut end, 2000);
        kill();
        let connections = end.link.state().connections;
        support::until("the end of the connection", || {
            end.send(&[7; 64]);
            end.look();
            !end.link.state().connected
        });
        while end.receive(Duration::ZERO).is_some() {}
        // A peer of the role of the server leaves its socket behind.
        if role == Role::Client {
            let _ = std::fs::remove_file(directory.path().join("memif.sock"));
        }
        support::until("nothing of it left", || {
            end.look();
            before.is_none() || Some(held()) == before
        });
        if before.is_none() {
            std::thread::sleep(Duration::from_millis(200));
            before = Some(held());
            assert_eq!(held().1, 0, "nothing is mapped without a peer");
        }
        assert_eq!(connections, round as u64 + 1);
    }
    end.close();
}

fn survive_testpmd(test: &str, role: Role) {
    if is_installed(test) {
        survive(role, |directory| {
            let testpmd = Testpmd::start(directory, other(role), "macswap", &[]);
            Box::new(|| testpmd.kill())
        });
    }
}

/// This test's own program is the peer, as [`the_other_end`].
fn survive_ours(role: Role) {
    survive(role, |directory| {
        let mut child = start_other_end(directory, other(role));
        Box::new(move || {
            child.kill().expect("it is there");
            child.wait().expect("it has ended");
        })
    });
}

const DIRECTORY: &str = "MEMIF_TEST_DIRECTORY";
const ROLE: &str = "MEMIF_TEST_ROLE";

fn start_other_end(directory: &Path, role: Role) -> Child {
    Command::new(std::env::current_exe().expect("the path of the test"))
        .args(["--exact", "the_other_end", "--ignored"])
        .env(DIRECTORY, directory)
        .env(ROLE, if role == Role::Server { "server" } else { "client" })
        .stdout(Stdio::null())
        .spawn()
        .expect("the test starts itself")
}

/// Sends back what comes, until it is killed or its starter is gone.
#[test]
#[ignore = "the other end of another test, which starts it"]
fn the_other_end() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let server = std::env::var_os(ROLE).is_some_and(|role| role == "server");
    let role = if server { Role::Server } else { Role::Client };
    let socket = Address::Path(Path::new(&directory).join("memif.sock"));
    let mut end = End::open(MemifSettings { ring_size: 256, ..MemifSettings::new(socket, role) });
    while Path::new(&directory).exists() {
        match end.receive(Duration::from_millis(100)) {
            Some(frame) => drop(end.send(&frame)),
            None => std::thread::yield_now(),
        }
    }
}

// One after the other: they look at what the process holds.
#[test]
fn whoever_is_killed_we_go_on() {
    survive_ours(Role::Server);
    survive_ours(Role::Client);
    survive_testpmd("memif-kill-dpdk-client", Role::Server);
    survive_testpmd("memif-kill-dpdk-server", Role::Client);
}
