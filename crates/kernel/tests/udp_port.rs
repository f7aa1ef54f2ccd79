//! Tests of UDP ports with ordinary sockets of Linux.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Packet, PortId, Queue};
use fastlane_kernel::udp::{self, UdpQueue};
use fastlane_testing::Spec;
use fastlane_wire::{Layers, checksum::fill_ipv4_header};

const PATIENCE: Duration = Duration::from_secs(10);

fn open(address: &str) -> UdpQueue {
    let address: SocketAddr = address.parse().unwrap();
    udp::open(address, 1).unwrap().remove(0).with_port(PortId(3))
}

/// Opens a socket connected to the queue.
fn peer(queue: &UdpQueue) -> UdpSocket {
    let any = if queue.local().is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(queue.local()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Swaps the addresses and ports of a packet and sets its payload.
fn answer(packet: &mut Packet, payload: &[u8]) {
    let is_ipv4 = packet.bytes()[14] >> 4 == 4;
    let (ip, udp, length) = if is_ipv4 { (26, 34, 4) } else { (22, 54, 16) };
    let headers = udp + 8;
    let bytes = packet.bytes_mut();
    for at in 0..length {
        bytes.swap(ip + at, ip + length + at);
    }
    bytes.swap(udp, udp + 2);
    bytes.swap(udp + 1, udp + 3);
    bytes[headers..].copy_from_slice(payload);
    if is_ipv4 {
        let layers = Layers::parse(bytes).unwrap();
        fill_ipv4_header(bytes, &layers).unwrap();
    }
}

fn there_and_back(address: &str) {
    let spec = Spec::default();
    let (mut queue, mut pool) = (open(address), spec.pool());
    let peer = peer(&queue);
    let (frames, mut burst) = (pool.free(), Burst::new(32));
    for number in 0..500_u32 {
        let payload = number.to_be_bytes().repeat(1 + number as usize % 300);
        peer.send(&payload).unwrap();
        let since = Instant::now();
        while burst.is_empty() {
            assert!(since.elapsed() < PATIENCE, "datagram {number} has not arrived");
            queue.receive(&mut burst, &mut pool);
        }
        let packet = burst.last().unwrap();
        assert_eq!(packet.port(), PortId(3));
        let headers = packet.len() - payload.len();
        assert_eq!(&packet.bytes()[headers..], payload);
        let other: Vec<u8> = payload.iter().rev().copied().collect();
        answer(packet, &other);
        let sent = queue.transmit(burst.packets(), &mut pool);
        assert_eq!((sent.taken, sent.packets), (1, 1));
        burst.clear(&mut pool);
        let mut heard = [0; 2048];
        let length = peer.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], other);
    }
    queue.close(&mut pool);
    assert_eq!(pool.free(), frames);
}

#[test]
fn datagrams_go_there_and_back_over_ipv4() {
    there_and_back("127.0.0.1:0");
}

#[test]
fn datagrams_go_there_and_back_over_ipv6() {
    there_and_back("[::1]:0");
}

#[test]
fn what_is_no_datagram_of_the_socket_is_taken_and_not_sent() {
    let spec = Spec::default();
    let (mut queue, mut pool) = (open("127.0.0.1:0"), spec.pool());
    let frames = pool.free();
    let mut packet = [pool.alloc_packet(60, PortId(3)).unwrap()];
    packet[0].bytes_mut().fill(0xaa);
    let sent = queue.transmit(&mut packet, &mut pool);
    assert_eq!((sent.taken, sent.packets), (1, 0));
    assert_eq!(pool.free(), frames);
}

#[test]
fn a_datagram_longer_than_a_frame_is_counted() {
    let spec = Spec::default();
    let (mut queue, mut pool) = (open("127.0.0.1:0"), spec.pool());
    let (frames, mut burst) = (pool.free(), Burst::new(32));
    peer(&queue).send(&[0; 9000]).unwrap();
    let since = Instant::now();
    while queue.statistics().receive_length == 0 {
        assert!(since.elapsed() < PATIENCE, "it has not arrived");
        queue.receive(&mut burst, &mut pool);
    }
    assert!(burst.is_empty());
    assert_eq!(pool.free(), frames);
}

#[test]
fn an_address_of_another_host_is_refused_with_a_remedy() {
    let error = udp::open("192.0.2.1:2152".parse().unwrap(), 1).unwrap_err().to_string();
    assert!(error.contains("192.0.2.1:2152") && error.contains("give an interface"), "{error}");
}
