//! Queue of a UDP socket.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics, TxMemory};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto, sockopt};
use rustix::thread::{MembarrierCommand, membarrier};

use super::frame;
use crate::ffi;
use crate::single_packet_io::{self, Full, Received};

/// Queue of one UDP socket. Each datagram costs one system call and one copy.
#[derive(Debug)]
pub struct UdpQueue {
    socket: Option<OwnedFd>,
    local: SocketAddr,
    port: PortId,
    /// Type of service set on the socket.
    class: u8,
    statistics: Statistics,
}

impl UdpQueue {
    pub(super) fn new(socket: OwnedFd, local: SocketAddr) -> Self {
        let statistics = Statistics::default();
        Self { socket: Some(socket), local, port: PortId(0), class: 0, statistics }
    }

    /// Sets the port of the queue, which is 0 otherwise.
    #[must_use]
    pub fn with_port(self, port: PortId) -> Self {
        Self { port, ..self }
    }

    /// Returns the bound address.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    fn receive_one(&mut self, pool: &mut Pool) -> Received {
        let Some(socket) = &self.socket else { return Received::Empty };
        // Without a frame the datagram stays with the kernel.
        let Some(mut packet) = pool.alloc_packet(pool.room(), self.port) else {
            return Received::Empty;
        };
        let headers = frame::headers(&self.local);
        let Some(payload) = packet.bytes_mut().get_mut(headers..) else {
            pool.release(&mut packet);
            return Received::Empty;
        };
        let room = payload.len();
        let result = recvfrom(socket, payload, RecvFlags::TRUNC);
        let step = match result {
            Ok((_, length, _)) if length > room => {
                self.statistics.receive_length += 1;
                Received::Skipped
            }
            Ok((_, length, Some(from))) => {
                let from = SocketAddr::try_from(from).ok();
                let local = self.local;
                let is_written = packet.truncate(headers + length)
                    && from
                        .and_then(|from| frame::write(packet.bytes_mut(), from, local))
                        .is_some();
                if is_written {
                    return Received::Packet(packet);
                }
                self.statistics.device_invalid += 1;
                Received::Skipped
            }
            Ok(_) | Err(Errno::AGAIN) => Received::Empty,
            // What the kernel has to say of datagrams sent before.
            Err(_) => Received::Skipped,
        };
        pool.release(&mut packet);
        step
    }

    /// Sends a packet. Returns false if it is not a datagram of this socket; counts other errors.
    /// `AGAIN` leaves the packet unsent.
    fn send(&mut self, packet: &Packet) -> Result<bool, Full> {
        let Some(socket) = &self.socket else { return Ok(false) };
        let Some(datagram) = frame::read(packet.bytes(), &self.local) else { return Ok(false) };
        if datagram.class != self.class {
            // A datagram with another class is worth more than none.
            let _ = if self.local.is_ipv4() {
                sockopt::set_ip_tos(socket, datagram.class)
            } else {
                sockopt::set_ipv6_tclass(socket, datagram.class.into())
            };
            self.class = datagram.class;
        }
        let send = || sendto(socket, datagram.payload, SendFlags::DONTWAIT, &datagram.to);
        match rustix::io::retry_on_intr(send) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Err(Full),
            Err(_) => {
                self.statistics.transmit_error += 1;
                Ok(true)
            }
        }
    }
}

impl Queue for UdpQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        single_packet_io::receive(burst, pool, |pool| self.receive_one(pool));
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        if self.socket.is_none() {
            return Sent::default();
        }
        single_packet_io::transmit(packets, pool, |packet| self.send(packet))
    }

    fn flush(&mut self, _: &mut Pool) -> bool {
        false
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Any
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn end_arrivals(&mut self) {
        let Some(socket) = &self.socket else { return };
        // What would be in the buffer when the socket is closed, nobody counts. The kernel counts
        // what a filter rejects (UdpInErrors).
        if ffi::refuse_all(socket.as_fd()).is_ok() {
            // Waits until datagrams that have passed before are in the buffer: it is a grace period
            // of RCU, under which the kernel delivers them.
            let _ = membarrier(MembarrierCommand::Global);
        }
    }

    fn close(&mut self, _: &mut Pool) {
        self.socket = None;
    }
}
