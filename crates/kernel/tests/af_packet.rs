//! AF_PACKET on a veth pair, with a real Linux at both ends.

mod support;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent};
use fastlane_kernel::af_packet::{AfPacketQueue, AfPacketSettings, Device};
use fastlane_steer::{Rule, Rules};
use support::{Hosts, interface, pool, udp};

/// The port that the rules claim in these tests.
const FAST: &str = "192.0.2.1:2152";

/// A program that sends every packet back.
struct Echo {
    device: Device,
    queue: AfPacketQueue,
    pool: Pool,
    burst: Burst,
    seen: usize,
}

impl Echo {
    fn new(settings: &AfPacketSettings, rules: &Rules) -> Self {
        let mut device = Device::open(settings, rules).unwrap();
        let queue = device.queue(PortId(0), 0).unwrap();
        assert!(device.queue(PortId(0), 0).is_none());
        Self { device, queue, pool: pool(1024), burst: Burst::new(32), seen: 0 }
    }

    fn claiming() -> Self {
        Self::new(&AfPacketSettings::new(interface("d0")), &fast_rules())
    }

    /// One turn; `change` sees every packet.
    fn turn(&mut self, mut change: impl FnMut(&mut Packet)) -> Sent {
        self.queue.receive(&mut self.burst, &mut self.pool);
        self.seen += self.burst.len();
        for packet in self.burst.packets() {
            swap(packet.bytes_mut());
            change(packet);
        }
        let sent = self.queue.transmit(self.burst.packets(), &mut self.pool);
        self.burst.clear(&mut self.pool);
        self.queue.flush(&mut self.pool);
        sent
    }

    /// Turns until `count` packets were seen, or a second has passed.
    fn see(&mut self, count: usize) {
        let end = Instant::now() + Duration::from_secs(1);
        while self.seen < count && Instant::now() < end {
            self.turn(|_| {});
        }
        assert_eq!(self.seen, count);
    }

    /// Ends; all frames must be back.
    fn close(mut self) {
        self.queue.close(&mut self.pool);
        assert_eq!(self.pool.free(), self.pool.frames());
    }
}

fn fast_rules() -> Rules {
    let rule = Rule { udp_port: Some(2152.into()), ..Rule::default() };
    Rules::new(vec![rule]).expect("a good rule")
}

/// Swaps the Ethernet addresses, and those and the ports of IPv4 UDP behind at most one tag.
fn swap(frame: &mut [u8]) {
    for index in 0..6 {
        frame.swap(index, index + 6);
    }
    let tag = if frame.get(12..14) == Some(&[0x81, 0]) { 4 } else { 0 };
    if frame.len() >= 42 + tag && frame[12 + tag..14 + tag] == [8, 0] {
        for index in 26 + tag..30 + tag {
            frame.swap(index, index + 4);
        }
        for index in 34 + tag..36 + tag {
            frame.swap(index, index + 2);
        }
    }
}

fn peer_socket(hosts: &Hosts) -> UdpSocket {
    hosts.at_peer(|| {
        let socket = udp("192.0.2.2:0");
        socket.connect(FAST).unwrap();
        socket
    })
}

#[test]
fn a_datagram_comes_back_whole() {
    let hosts = Hosts::new("");
    let socket = peer_socket(&hosts);
    let mut echo = Echo::claiming();
    for length in [1, 18, 100, 1472] {
        let payload = vec![length as u8; length];
        socket.send(&payload).unwrap();
        echo.see(echo.seen + 1);
        let mut answer = [0; 2000];
        // The socket checks the checksum, which was partial when the frame came and went.
        assert_eq!(socket.recv(&mut answer).unwrap(), length);
        assert_eq!(answer[..length], payload);
    }
    assert_eq!(support::losses(echo.queue.statistics()), 0);
    assert_eq!(echo.device.counts().unwrap().claimed, 4);
    echo.close();
}
