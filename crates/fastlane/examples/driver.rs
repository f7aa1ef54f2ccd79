//! Returns every frame of a Unix datagram socket: a whole driver, and a lane without configuration.
//!
//! ```sh
//! cargo run --example driver -- /tmp/a.sock /tmp/b.sock   # returns every frame to /tmp/b.sock
//! socat - UNIX-SENDTO:/tmp/a.sock,bind=/tmp/b.sock       # each line is a frame
//! ```
//! A driver is a type that implements [`Queue`], in about 60 lines here. The framework's own
//! drivers are also opened by configuration, and each passes the suite
//! `fastlane_testing::conformance`.

use std::error::Error;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastlane::counters::Counters;
use fastlane::table::SharedMemory;
use fastlane::{Packet, PortId, Verdict};
use fastlane_core::{Burst, Idle, Lane, LaneConfig, Pool, Port, Queue, Sent, Statistics, TxMemory};
use rustix::event::epoll;

/// Queue of a connected, non-blocking Unix datagram socket. A datagram is a frame.
struct DatagramQueue {
    socket: UnixDatagram,
    port: PortId,
    statistics: Statistics,
}

impl DatagramQueue {
    fn new(socket: UnixDatagram, port: PortId) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, port, statistics: Statistics::default() })
    }
}

impl Queue for DatagramQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        while burst.room() > 0 {
            // Without a free frame the datagram stays in the socket.
            let Some(mut packet) = pool.alloc_packet(pool.room(), self.port) else { return };
            let received = self.socket.recv(packet.bytes_mut());
            // A datagram that fills the frame may have been cut off by the kernel.
            let length = received.as_ref().ok().filter(|length| **length < packet.len());
            if length.is_some_and(|length| *length > 0 && packet.truncate(*length)) {
                let _ = burst.push(packet); // there is room
                continue;
            }
            pool.release(&mut packet); // a frame is in a packet, a ring or the pool, never lost
            match received {
                Ok(0) => self.statistics.device_invalid += 1,
                Ok(_) => self.statistics.receive_length += 1,
                Err(_) => return, // nothing is left
            }
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        for packet in packets {
            if packet.len() > 0 && packet.complete_checksum() {
                match self.socket.send(packet.bytes()) {
                    // The lane drops and counts what the queue does not take.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => self.statistics.transmit_error += 1,
                    Ok(_) => {}
                }
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
            }
            sent.taken += 1;
            pool.release(packet);
        }
        sent
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Any // `send` copies, so packets of any port can leave here
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}

/// Returns a lane that sends every frame of the socket back.
fn lane(socket: UnixDatagram) -> Result<Lane<impl FnMut(&mut Packet) -> Verdict>, Box<dyn Error>> {
    let counters = Counters::create(1, 1)?; // one lane, one port
    let pool = Pool::new(SharedMemory::create("frames", 1024 * 2048)?, 2048, 192)?;
    let port = Port {
        queues: vec![Box::new(DatagramQueue::new(socket, PortId(0))?)],
        kernel: None,
        filter: None,
        counters: counters.port(0, 0),
    };
    let config = LaneConfig::new(pool, vec![port], counters.lane(0));
    let mut lane = Lane::new(|_: &mut Packet| Verdict::Reflect, config);
    let interrupts = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for interrupt in lane.interrupts().into_iter().flatten() {
        epoll::add(&interrupts, interrupt, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    lane.wait_on(interrupts, Idle::Adaptive); // without it, an idle lane sleeps for short periods
    Ok(lane)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, peer] = &arguments[..] else { return Err("usage: driver LISTEN PEER".into()) };
    let socket = UnixDatagram::bind(listen)?;
    while socket.connect(peer).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(100)); // the peer has not started
    }
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))?;
    lane(socket)?.run(&stop);
    Ok(std::fs::remove_file(listen)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_return_and_long_datagrams_are_counted() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let mut lane = lane(near).unwrap();
        for frame in [&[1; 60][..], &[2; 4000], &[3; 1500]] {
            far.send(frame).unwrap();
        }
        assert!(lane.turn() > 0);
        let mut frame = [0; 4096];
        for expected in [&[1; 60][..], &[3; 1500]] {
            let length = far.recv(&mut frame).unwrap();
            assert_eq!(&frame[..length], expected);
        }
        assert_eq!(lane.close(), 0, "every frame is back in the pool");
    }

    #[test]
    fn a_full_socket_leaves_packets_to_the_lane() {
        let (near, _far) = UnixDatagram::pair().unwrap();
        let mut queue = DatagramQueue::new(near, PortId(0)).unwrap();
        let memory = SharedMemory::create("frames", 1024 * 2048).unwrap();
        let mut pool = Pool::new(memory, 2048, 192).unwrap();
        let mut packets: Vec<Packet> =
            (0..1024).map(|_| pool.alloc_packet(60, PortId(0)).unwrap()).collect();
        let sent = queue.transmit(&mut packets, &mut pool);
        assert!(sent.taken < packets.len() && sent.packets == sent.taken, "{sent:?}");
        assert_eq!(pool.free(), sent.taken);
        packets.iter_mut().for_each(|packet| pool.release(packet));
    }
}
