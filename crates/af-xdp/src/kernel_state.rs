//! State of a queue that only system calls tell: the drop counters of the kernel and the MTU.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastlane_core::{LossReader, Statistics};

use crate::mtu::MtuQuery;
use crate::socket::Socket;

/// State of a queue in the kernel. The main thread reads it by the [`LossReader`]; the lane uses
/// the last values.
#[derive(Debug)]
pub(crate) struct KernelState {
    max_length: Arc<AtomicUsize>,
    losses: LossReader,
}

impl KernelState {
    /// Duplicates the descriptor of a bound socket, and reads the MTU of its interface.
    ///
    /// # Errors
    /// The kernel's answer if the process has too many descriptors.
    pub(crate) fn new(socket: &Socket, interface: u32, zero_copy: bool) -> io::Result<Self> {
        let mtu = MtuQuery::new(interface)?;
        let socket = socket.duplicate()?;
        let max_length = Arc::new(AtomicUsize::new(mtu.max_frame_length().unwrap_or(usize::MAX)));
        let shared = Arc::clone(&max_length);
        let losses = LossReader::new(move || {
            if let Some(length) = mtu.max_frame_length() {
                shared.store(length, Ordering::Relaxed);
            }
            losses(&socket, zero_copy)
        });
        Ok(Self { max_length, losses })
    }

    /// Returns the maximum length of a frame that the interface transmits, with headers.
    #[inline]
    pub(crate) fn max_length(&self) -> usize {
        self.max_length.load(Ordering::Relaxed)
    }

    /// Returns the reader of the kernel's drop counters, which also reads the MTU.
    pub(crate) fn losses(&self) -> &LossReader {
        &self.losses
    }
}

/// Returns the losses that the kernel has counted, or `None` if it does not tell them.
fn losses(socket: &Socket, zero_copy: bool) -> Option<Statistics> {
    let kernel = socket.statistics()?;
    let no_frames = kernel.rx_fill_ring_empty_descs.unwrap_or(0);
    // In copy mode the kernel loses the frame, and counts it in `rx_dropped` too.
    let no_frame = if zero_copy { 0 } else { no_frames };
    Some(Statistics {
        no_frame,
        receive_length: 0,
        device_full: kernel.rx_ring_full.unwrap_or(0),
        device_invalid: kernel.rx_dropped.saturating_sub(no_frame) + kernel.rx_invalid_descs,
        transmit_error: kernel.tx_invalid_descs,
        device_no_frames: no_frames,
    })
}
