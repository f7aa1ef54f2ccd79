//! Peers that are killed while frames are in flight.

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastlane_memif::{Address, MemifSettings, Role};
use fastlane_testing::Peer;
use support::testpmd::{Testpmd, is_installed};
use support::{End, directory, other, settings};

/// Returns the number of open descriptors, and of memif mappings, of this process.
fn open_resources() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("our descriptors").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
    (descriptors, maps.lines().filter(|line| line.contains("memfd:memif")).count())
}

fn kills() -> usize {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 100 } else { 10 }
}

/// Sends at full speed, and receives until `frames` have come back.
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

/// Exchanges traffic with a peer and kills it, one peer after the other.
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
        // A killed server leaves its socket file behind.
        if role == Role::Client {
            let _ = std::fs::remove_file(directory.path().join("memif.sock"));
        }
        support::until("nothing of it left", || {
            end.look();
            before.is_none() || Some(open_resources()) == before
        });
        if before.is_none() {
            std::thread::sleep(Duration::from_millis(200));
            before = Some(open_resources());
            assert_eq!(open_resources().1, 0, "nothing is mapped without a peer");
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

/// Runs [`survive`] with this test program as the peer ([`the_other_end`]).
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

/// Sends all frames back until it is killed or the directory of the test is removed.
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

// One after the other, because they count what the process holds.
#[test]
fn a_killed_peer_is_survived() {
    survive_ours(Role::Server);
    survive_ours(Role::Client);
    survive_testpmd("memif-kill-dpdk-client", Role::Server);
    survive_testpmd("memif-kill-dpdk-server", Role::Client);
}
