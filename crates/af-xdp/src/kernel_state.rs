//! State of a queue in the kernel: its drop counters and the longest frame of its interface.

use std::io;

use fastlane_core::{LossReader, Statistics};

use crate::mtu::TransmitLength;
use crate::socket::Socket;

/// State of a queue in the kernel. The main thread reads the losses by the [`LossReader`].
#[derive(Debug)]
pub(crate) struct KernelState {
    max_length: TransmitLength,
    losses: LossReader,
}

impl KernelState {
    /// Duplicates the descriptor of a bound socket.
    ///
    /// # Errors
    /// The kernel's answer if the process has too many descriptors.
    pub(crate) fn new(
        socket: &Socket,
        max_length: &TransmitLength,
        zero_copy: bool,
    ) -> io::Result<Self> {
        let (socket, max_length) = (socket.duplicate()?, max_length.clone());
        let losses = LossReader::new(move || losses(&socket, zero_copy));
        Ok(Self { max_length, losses })
    }

    /// Returns the maximum length of a frame that the interface transmits, with headers.
    #[inline]
    pub(crate) fn max_length(&self) -> usize {
        self.max_length.get()
    }

    /// Returns the reader of the kernel's drop counters.
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
