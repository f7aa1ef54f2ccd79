//! A raw socket as a port, on a veth pair: slow, but a real device.

use std::net::UdpSocket;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use fastlane_core::{Burst, Packet, Partial, Pool, Queue, Sent, Statistics};
use fastlane_testing::namespace::{self, Wire};
use fastlane_testing::{Addresses, LaneRig, Peer, Rig, Spec};
use fastlane_wire::checksum::find_partial;

struct SocketQueue {
    wire: Wire,
    statistics: Statistics,
}

impl Queue for SocketQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        while burst.room() > 0 && pool.free() > 0 {
            let Some(bytes) = self.wire.receive(Duration::ZERO) else { return };
            let frame = pool.take().unwrap();
            let packet = pool.packet(frame, pool.data_offset(), bytes.len(), Spec::PORT);
            let mut packet = packet.unwrap();
            packet.bytes_mut().copy_from_slice(&bytes);
            packet.set_partial_checksum(partial_of(&bytes));
            burst.push(packet).unwrap();
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent { taken: packets.len(), ..Sent::default() };
        for packet in packets {
            if packet.len() > 0 && packet.complete_checksum() {
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
                let refused = !self.wire.send(packet.bytes());
                self.statistics.transmit_error += u64::from(refused);
            }
            pool.release(packet);
        }
        sent
    }

    fn flush(&mut self, _: &mut Pool) -> bool {
        false
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn close(&mut self, _: &mut Pool) {}
}

fn partial_of(frame: &[u8]) -> Option<Partial> {
    find_partial(frame).map(|partial| Partial { start: partial.start, offset: partial.offset })
}

pub(crate) struct SocketRig {
    peer: Wire,
    addresses: Addresses,
}

impl Rig for SocketRig {
    const HAS_SOCKET: bool = true;
    const HAS_LINK: bool = true;
    const HAS_REMOVABLE_PEER: bool = true;

    fn open(_: &Spec) -> Option<Self> {
        if !namespace::private("testing-socket") {
            return None;
        }
        let addresses = namespace::veth("device", "peer", 1);
        Some(Self { peer: Wire::open("peer").unwrap(), addresses })
    }

    fn lanes(&mut self, spec: &Spec) -> Vec<LaneRig> {
        let (wire, statistics) = (Wire::open("device").unwrap(), Statistics::default());
        let queue = Box::new(SocketQueue { wire, statistics });
        vec![LaneRig { pool: spec.pool(), queues: vec![queue], kernel: None }]
    }

    fn peer(&mut self) -> &mut dyn Peer {
        &mut self.peer
    }

    fn addresses(&self) -> Addresses {
        self.addresses
    }

    fn socket(&mut self) -> Option<UdpSocket> {
        Some(namespace::socket("peer", self.addresses))
    }

    fn set_link(&mut self, up: bool) {
        namespace::set_link("device", up);
    }

    fn remove_peer(&mut self) {
        namespace::ip("link delete peer");
    }
}
