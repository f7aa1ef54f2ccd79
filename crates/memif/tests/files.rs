//! A process without a free descriptor. The limit applies to the whole process, so this test has a
//! program of its own.

mod support;

use std::time::Duration;

use fastlane_core::PortId;
use fastlane_memif::Role;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use support::raw::{HELLO, Raw};
use support::{directory, settings, until};

/// Returns the CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_server_without_files_waits_for_some_and_says_so() {
    let directory = directory();
    let (link, _queues) =
        fastlane_memif::open(settings(&directory, Role::Server), PortId(0)).unwrap();
    let path = directory.path().join("memif.sock");
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    let client = Raw { socket: socket.unwrap() };

    let before = getrlimit(Resource::Nofile);
    // With this limit no descriptor can be opened: all numbers below are in use.
    let free = std::os::fd::AsRawFd::as_raw_fd(&std::io::pipe().unwrap().0) as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..before }).unwrap();
    rustix::net::connect(&client.socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    until("a reason", || link.state().last_end.is_some_and(|end| end.contains("ulimit -n")));
    let began = cpu_time();
    std::thread::sleep(Duration::from_millis(500));
    let used = cpu_time() - began;
    setrlimit(Resource::Nofile, before).unwrap();

    assert!(used < Duration::from_millis(50), "it waits, and does not try all the time: {used:?}");
    assert_eq!(client.receive().expect("the client is served now").0, HELLO);
}
