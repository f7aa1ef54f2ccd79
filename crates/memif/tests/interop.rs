//! Interoperability with DPDK's memif driver.

mod support;

use std::time::{Duration, Instant};

use fastlane_memif::{MemifSettings, Role};
use fastlane_testing::Peer;
use support::testpmd::{Testpmd, is_installed};
use support::{End, directory, other, settings};

/// Returns a frame with unique contents.
fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length as u32).map(|at| (number * 31 + at * 7) as u8).collect();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends frames to a testpmd that swaps their addresses and returns them. Asserts that each comes
/// back once, in order and unchanged.
#[track_caller]
fn exchange(end: &mut End, count: u32, length: usize) {
    let (mut sent, mut came, mut moved) = (0, 0, Instant::now());
    while came < count {
        while sent < count && sent - came < 64 && end.send(&frame(sent, length)) {
            sent += 1;
        }
        while let Some(mut received) = end.receive(Duration::ZERO) {
            received[..12].rotate_left(6);
            assert!(received == frame(came, length), "frame {came} of {length}: {received:?}");
            (came, moved) = (came + 1, Instant::now());
        }
        let quiet = moved.elapsed();
        assert!(
            quiet < Duration::from_secs(20),
            "{came} of {sent} came back; {:?}",
            end.link.state()
        );
        std::thread::yield_now();
    }
}

fn with_testpmd(test: &str, role: Role, queues: usize) {
    if !is_installed(test) {
        return;
    }
    let directory = directory();
    let end = || End::open(MemifSettings { queues, ..settings(&directory, role) });
    let many = [format!("--rxq={queues}"), format!("--txq={queues}")];
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    // DPDK's client does not wait for its server; ours does.
    let mut early = (role == Role::Server).then(end);
    let testpmd = Testpmd::start(directory.path(), other(role), "macswap", &many);
    let mut end = early.take().unwrap_or_else(end);
    end.connect();
    let state = end.link.state();
    assert_eq!((state.receive_rings, state.transmit_rings), (queues, queues), "{state:?}");
    assert!(state.peer.contains("DPDK"), "{state:?}");
    if queues == 1 {
        for length in [64, 1500, 18] {
            exchange(&mut end, 5000, length);
        }
    } else {
        // Frames over several queues have no order.
        for number in 0..400 {
            // DPDK's client offers buffers only once its core polls.
            support::until("a buffer", || end.send(&frame(number, 64)));
        }
        let came = (0..400).filter_map(|_| end.receive(Duration::from_secs(10))).count();
        assert_eq!(came, 400);
    }
    testpmd.kill();
    support::until("the end of it", || !end.link.state().connected);
    end.look();
    end.close();
}

#[test]
fn our_server_and_its_client_exchange_frames() {
    with_testpmd("memif-dpdk-client", Role::Server, 1);
}

#[test]
fn our_client_and_its_server_exchange_frames() {
    with_testpmd("memif-dpdk-server", Role::Client, 1);
}

#[test]
fn our_server_and_its_client_with_two_queues() {
    with_testpmd("memif-dpdk-client-queues", Role::Server, 2);
}

#[test]
fn our_client_and_its_server_with_two_queues() {
    with_testpmd("memif-dpdk-server-queues", Role::Client, 2);
}

/// Connects to DPDK's server, which offers 256 rings and refuses those that it does not have.
#[test]
fn our_client_makes_do_with_fewer_rings() {
    if !is_installed("memif-dpdk-fewer-rings") {
        return;
    }
    let directory = directory();
    let _testpmd = Testpmd::start(directory.path(), Role::Server, "macswap", &[]);
    let mut end = End::open(MemifSettings { queues: 3, ..settings(&directory, Role::Client) });
    end.connect();
    assert_eq!((end.link.state().receive_rings, end.link.state().transmit_rings), (1, 1));
    end.queues.truncate(1);
    exchange(&mut end, 1000, 64);
    end.close();
}
