//! Queue of a TAP device.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fastlane_core::{Burst, LossReader, Packet, Pool, PortId, Queue, Sent, Statistics, TxMemory};
use rustix::io::Errno;

use super::drop_counter::DropCounter;
use crate::single_packet_io::{self, Full, Received};
use crate::virtio;

/// Queue of a TAP device: receives what Linux sends on the interface; what is transmitted arrives
/// on it. Each frame costs one system call and one copy.
pub struct TapQueue {
    file: Option<OwnedFd>,
    port: PortId,
    statistics: Statistics,
    /// Reader of the frames that Linux could not put into the device.
    losses: Option<LossReader>,
}

impl TapQueue {
    /// Creates a queue. The first queue of a device also reports its drops.
    pub(super) fn new(file: OwnedFd, drops: Option<DropCounter>) -> Self {
        let (port, statistics) = (PortId(0), Statistics::default());
        let losses = drops.map(|mut drops| {
            LossReader::new(move || {
                Some(Statistics { device_full: drops.read(), ..Statistics::default() })
            })
        });
        Self { file: Some(file), port, statistics, losses }
    }

    /// Sets the port of the queue, which is 0 otherwise.
    #[must_use]
    pub fn with_port(self, port: PortId) -> Self {
        Self { port, ..self }
    }

    /// Makes the queue part of a re-entry device. Nobody reads from it, so its drops are not
    /// counted.
    pub(crate) fn for_reentry(self) -> Self {
        Self { losses: None, ..self }
    }

    /// Returns the descriptor to duplicate for hot restart, so that a successor can [take
    /// over](super::adopt) the device; `None` after closing.
    #[must_use]
    pub fn kept(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Returns the carrier control of the TAP device, for use in another thread.
    ///
    /// # Errors
    /// `NotConnected` when the queue is closed; the kernel's answer.
    pub fn carrier(&self) -> io::Result<Carrier> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Carrier(file.try_clone()?))
    }

    /// Returns a watch on the existence of the TAP device, for use in another thread.
    ///
    /// # Errors
    /// `NotConnected` when the queue is closed; the kernel's answer.
    pub fn watch(&self) -> io::Result<TapWatch> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let (_, name) = crate::ffi::tun_attached(file.as_fd())?;
        Ok(TapWatch { name, file: file.try_clone()? })
    }

    /// Receives one packet into a pool frame; the frame is released if none is pending.
    fn receive_one(&mut self, pool: &mut Pool) -> Received {
        let Some(file) = &self.file else { return Received::Empty };
        // Without a frame the packet stays in the device, which counts those that it cannot keep.
        let Some(mut packet) = pool.alloc_packet(pool.room(), self.port) else {
            return Received::Empty;
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
                return Received::Packet(packet);
            }
            _ => pool.release(&mut packet),
        }
        match length {
            Ok(_) => {
                self.statistics.receive_length += 1;
                Received::Skipped
            }
            Err(Errno::INTR) => Received::Skipped,
            Err(_) => Received::Empty, // most often AGAIN: nothing has arrived
        }
    }
}

/// Carrier control of a TAP device. The device exists at least as long.
#[derive(Debug)]
pub struct Carrier(OwnedFd);

impl Carrier {
    /// Sets the carrier, which mirrors the link state of the port that the device represents.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn set(&self, on: bool) -> io::Result<()> {
        crate::ffi::tun_set_carrier(self.0.as_fd(), on)
    }
}

/// Watch on the existence of a TAP device. The device exists at least as long, unless someone
/// removes it.
#[derive(Debug)]
pub struct TapWatch {
    name: String,
    file: OwnedFd,
}

impl TapWatch {
    /// Returns the name that the interface had.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the device was removed: its queues receive and send nothing for ever. A
    /// device in another network namespace exists.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let attached = crate::ffi::tun_attached(self.file.as_fd());
        attached.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BADFD))
    }
}

impl Queue for TapQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        single_packet_io::receive(burst, pool, |pool| self.receive_one(pool));
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let Some(file) = &self.file else { return Sent::default() };
        let errors = &mut self.statistics.transmit_error;
        single_packet_io::transmit(packets, pool, |packet| {
            let Some(header) = virtio::header_of(packet) else { return Ok(false) };
            let parts = [IoSlice::new(&header), IoSlice::new(packet.bytes())];
            match rustix::io::retry_on_intr(|| rustix::io::writev(file, &parts)) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Err(Full),
                // The interface is down (EIO), or Linux has no memory.
                Err(_) => *errors += 1,
            }
            Ok(true)
        })
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

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn loss_reader(&self) -> Option<LossReader> {
        self.losses.clone()
    }

    fn close(&mut self, _: &mut Pool) {
        if let Some(losses) = &self.losses {
            losses.end(); // before the device goes with its file
        }
        self.file = None;
    }
}

impl std::fmt::Debug for TapQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TapQueue").field("file", &self.file).finish_non_exhaustive()
    }
}
