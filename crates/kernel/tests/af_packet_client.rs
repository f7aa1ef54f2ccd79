//! AF_PACKET sockets that one process opens for another: its rings work, and it gets no more than
//! the claimed frames of its interface.
#![allow(unsafe_code, reason = "socket calls without a safe form")]

mod support;

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use fastlane_core::{Burst, PortId, Queue};
use fastlane_kernel::Interface;
use fastlane_kernel::af_packet::{self, AfPacketSettings, Device};
use fastlane_steer::{Program, Rule, Rules};
use support::{Hosts, interface, pool, udp};

/// UDP address that the rules claim in these tests.
const FAST: &str = "192.0.2.1:2152";

fn fast_rules() -> Rules {
    let rule = Rule { udp_port: Some(2152.into()), ..Rule::default() };
    Rules::new(vec![rule]).expect("a good rule")
}

/// Binds a socket to an interface again.
fn bind(socket: &OwnedFd, interface: u32) -> std::io::Result<()> {
    // SAFETY: zeros are a valid `struct sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = i32::try_from(interface).expect("an index");
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a whole `struct sockaddr_ll` of this length, and outlives the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option of level SOL_SOCKET.
fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> std::io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let (file, value) = (socket.as_raw_fd(), (&raw const *value).cast());
    // SAFETY: the kernel reads `length` octets of `value`, which outlives the call.
    let result = unsafe { libc::setsockopt(file, libc::SOL_SOCKET, option, value, length) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes this thread one without capabilities for good.
fn drop_capabilities() {
    use rustix::thread::{CapabilitySet as Set, CapabilitySets};
    let none = Set::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).expect("a process may drop its own");
}

fn opened() -> (Interface, AfPacketSettings, Program, Vec<OwnedFd>) {
    let ours = interface("d0");
    let settings = AfPacketSettings::new(ours.clone());
    let opened = af_packet::open_for_client(&settings, &fast_rules());
    let (program, sockets) = opened.expect("root may");
    (ours, settings, program, sockets)
}

#[test]
fn a_process_without_capabilities_uses_the_sockets() {
    let Some(hosts) = Hosts::new("") else { return };
    let (_, settings, program, sockets) = opened();
    let peer = hosts.at_peer(|| udp("0.0.0.0:0"));
    peer.send_to(b"before the ring is mapped", FAST).expect("it is sent");
    drop_capabilities();
    let device = Device::with_sockets(&settings, sockets, Box::new(program));
    let mut device = device.expect("mapping needs no privilege");
    let mut queue = device.queue(PortId(0), 0).expect("one queue");
    let (mut pool, mut burst) = (pool(64), Burst::new(32));
    peer.send_to(b"after it", FAST).expect("it is sent");
    let end = Instant::now() + Duration::from_secs(5);
    while burst.len() < 2 && Instant::now() < end {
        queue.receive(&mut burst, &mut pool);
    }
    assert_eq!(burst.len(), 2, "none is lost");
    assert_eq!(queue.transmit(burst.packets(), &mut pool).packets, 2);
    burst.clear(&mut pool);
    queue.close(&mut pool);
    assert_eq!(pool.free(), pool.frames());
}

#[test]
fn a_process_without_capabilities_gets_no_other_frames() {
    let Some(hosts) = Hosts::new("") else { return };
    fastlane_testing::namespace::ip("link add other0 type veth peer name other1");
    fastlane_testing::namespace::ip("link set other0 up");
    let (ours, settings, program, sockets) = opened();
    let other = interface("other0").index;
    let peer = hosts.at_peer(|| udp("0.0.0.0:0"));
    drop_capabilities();
    for index in [other, 0, ours.index] {
        assert!(bind(&sockets[0], index).is_err(), "interface {index}");
    }
    assert!(set(&sockets[0], libc::SO_DETACH_FILTER, &0).is_err());
    let mut accept = libc::sock_filter { code: 6, jt: 0, jf: 0, k: u32::MAX };
    let accept = libc::sock_fprog { len: 1, filter: &raw mut accept };
    assert!(set(&sockets[0], libc::SO_ATTACH_FILTER, &accept).is_err());
    assert!(set(&sockets[0], libc::SO_LOCK_FILTER, &0).is_err());
    // What no rule claims is not received, then what one claims is.
    peer.send_to(b"Linux's", "192.0.2.1:2153").expect("it is sent");
    peer.send_to(b"ours", FAST).expect("it is sent");
    let device = Device::with_sockets(&settings, sockets, Box::new(program));
    let mut device = device.expect("mapping needs no privilege");
    let mut queue = device.queue(PortId(0), 0).expect("one queue");
    let (mut pool, mut burst) = (pool(64), Burst::new(32));
    let end = Instant::now() + Duration::from_secs(5);
    while burst.is_empty() && Instant::now() < end {
        queue.receive(&mut burst, &mut pool);
    }
    assert_eq!(burst.len(), 1);
    assert!(burst.packets()[0].bytes().ends_with(b"ours"));
    burst.clear(&mut pool);
    queue.close(&mut pool);
}
