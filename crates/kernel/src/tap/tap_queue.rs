//! One queue of a TAP device.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics, TxMemory};
use fastlane_steer::Program;
use rustix::io::Errno;

use super::drop_counter::DropCounter;
use crate::single_packet_io::{self, Step};
use crate::virtio;

/// One queue of a TAP device: what Linux sends on the interface is received, what is transmitted
/// arrives on it. Each frame is one system call and one copy.
pub struct TapQueue {
    file: Option<OwnedFd>,
    port: PortId,
    statistics: Statistics,
    drops: Option<DropCounter>,
    /// The program that redirects what is transmitted here: it works as long as somebody has it.
    redirect: Option<Arc<Program>>,
}

impl TapQueue {
    /// The first queue of a device also tells what the device lost.
    pub(super) fn new(file: OwnedFd, drops: Option<DropCounter>) -> Self {
        let (port, statistics) = (PortId(0), Statistics::default());
        Self { file: Some(file), port, statistics, drops, redirect: None }
    }

    /// The same queue as one of the port `port`, which is otherwise 0.
    #[must_use]
    pub fn with_port(self, port: PortId) -> Self {
        Self { port, ..self }
    }

    /// The same queue as part of a way back into an interface, keeping the program that redirects
    /// it, if there is one. Nobody reads from it, so what Linux says there is no loss.
    pub(crate) fn for_reentry(self, redirect: Option<Arc<Program>>) -> Self {
        Self { redirect, drops: None, ..self }
    }

    /// What must be kept for a successor to [take over](super::adopt) the device: a duplicate of
    /// this descriptor of each of its queues. `None` once it is closed.
    #[must_use]
    pub fn kept(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// The carrier of the TAP device, for another thread than the queue's.
    ///
    /// # Errors
    /// `NotConnected` when the queue is closed; the kernel's answer.
    pub fn carrier(&self) -> io::Result<Carrier> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Carrier(file.try_clone()?))
    }

    /// Receives one packet into a frame; the frame comes back when there is none to be had.
    fn receive_one(&mut self, pool: &mut Pool) -> Step {
        let Some(file) = &self.file else { return Step::Nothing };
        // Without a frame the packet stays in the device, which counts those that it cannot keep.
        let Some(mut packet) = pool.alloc_packet(pool.room(), self.port) else {
            return Step::Nothing;
        };
        let (mut header, mut beyond) = ([0; virtio::LENGTH], [0]);
        let mut parts = [
            IoSliceMut::new(&mut header),
            IoSliceMut::new(packet.bytes_mut()),
            IoSliceMut::new(&mut beyond),
        ];
        let result = rustix::io::readv(file, &mut parts);
        // A frame that reaches the octet beyond did not fit.
        let length = result.map(|octets| octets.saturating_sub(virtio::LENGTH));
        match length {
            Ok(length) if length > 0 && packet.truncate(length) => {
                packet.set_partial_checksum(virtio::partial_checksum(&header));
                return Step::Packet(packet);
            }
            _ => pool.release(&mut packet),
        }
        match length {
            Ok(_) => {
                self.statistics.receive_length += 1;
                Step::Again
            }
            Err(Errno::INTR) => Step::Again,
            Err(_) => Step::Nothing, // most often AGAIN: nothing has arrived
        }
    }
}

/// The carrier of a TAP device. The device lives at least as long.
#[derive(Debug)]
pub struct Carrier(OwnedFd);

impl Carrier {
    /// Sets it: the link state of the port that the device stands for.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn set(&self, on: bool) -> io::Result<()> {
        crate::ffi::tun_set_carrier(self.0.as_fd(), on)
    }
}

impl Queue for TapQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        single_packet_io::receive(burst, pool, |pool| self.receive_one(pool));
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        let Some(file) = &self.file else { return sent };
        for packet in packets {
            if let Some(header) = virtio::header_of(packet) {
                let parts = [IoSlice::new(&header), IoSlice::new(packet.bytes())];
                match rustix::io::retry_on_intr(|| rustix::io::writev(file, &parts)) {
                    Ok(_) => {}
                    Err(Errno::AGAIN) => break,
                    // The interface is down (EIO), or Linux has no memory.
                    Err(_) => self.statistics.transmit_error += 1,
                }
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
            }
            pool.release(packet);
            sent.taken += 1;
        }
        sent
    }

    fn flush(&mut self, _: &mut Pool) -> bool {
        false
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Any
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    fn statistics(&mut self) -> Statistics {
        if let Some(drops) = &mut self.drops {
            self.statistics.device_full = drops.read();
        }
        self.statistics
    }

    fn close(&mut self, _: &mut Pool) {
        self.file = None;
        self.drops = None;
        self.redirect = None;
    }
}

impl std::fmt::Debug for TapQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TapQueue").field("file", &self.file).finish_non_exhaustive()
    }
}
