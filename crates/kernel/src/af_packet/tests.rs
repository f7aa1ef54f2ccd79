#![allow(unsafe_code, reason = "a socket call without a safe form")]
use std::net::UdpSocket;

use rustix::thread::UnshareFlags;

use super::*;

/// Checks the filter that rejects every frame: while the sockets of a group are bound one by one,
/// each frame would reach several of them.
#[test]
fn a_socket_receives_nothing_before_it_is_steered() {
    // SAFETY: only this thread's network namespace changes, which no memory or file depends on.
    if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
        let test = "kernel/a_socket_receives_nothing_before_it_is_steered";
        return fastlane_testing::skip(test, &format!("no network namespace: {error}"));
    }
    const LOOPBACK: u32 = 1;
    crate::link::set_flags(LOOPBACK, libc::IFF_UP, 0).unwrap();
    let settings = AfPacketSettings::new(Interface::query("lo").unwrap());
    let settings = AfPacketSettings { max_length: 1522, ring_frames: 64, ..settings };
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let receives = |(socket, mut ring): (Socket, Ring)| {
        socket.bind(LOOPBACK).unwrap();
        sender.send_to(b"frame", "127.0.0.1:9").unwrap();
        ring.received(0).is_some()
    };
    assert!(!receives(socket(&settings).unwrap()));

    let open = Socket::open().unwrap();
    open.prepare().unwrap();
    let ring = Ring::new(&open, Geometry::new(1522, 64)).unwrap();
    assert!(receives((open, ring)), "without the filter it does");

    let (steered, ring) = socket(&settings).unwrap();
    let steering = Settings { max_length: 1522, mark: 0, reenter_ifindex: 0 };
    let mut program = Program::load(&Rules::default(), steering).unwrap();
    program.attach_select(steered.as_fd()).unwrap();
    assert!(receives((steered, ring)), "with the one that takes its place it does");
}
