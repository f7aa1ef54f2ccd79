//! Losses: those that a queue counts, and those that a device or the kernel counts below it.

use std::fmt;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastlane_table::counters::{PortCounter, PortCounters};

/// Losses since a queue was opened, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets lost at arrival because the pool had no free frame.
    pub no_frame: u64,
    /// Packets lost at arrival because they were longer than a frame.
    pub receive_length: u64,
    /// Packets lost below the queue because it was full.
    pub device_full: u64,
    /// Packets lost below the queue as invalid.
    pub device_invalid: u64,
    /// Packets that were handed over and that the device did not send.
    pub transmit_error: u64,
    /// Number of times that the device had no frame to receive into. It may have kept the packet.
    pub device_no_frames: u64,
}

impl Statistics {
    /// Writes the losses into the counters of a port.
    pub fn store(&self, counters: &PortCounters) {
        counters.store(PortCounter::DropNoFrame, self.no_frame);
        counters.store(PortCounter::DropReceiveLength, self.receive_length);
        counters.store(PortCounter::DropDeviceFull, self.device_full);
        counters.store(PortCounter::DropDeviceInvalid, self.device_invalid);
        counters.store(PortCounter::DropTransmitError, self.transmit_error);
        counters.store(PortCounter::DeviceNoFrames, self.device_no_frames);
    }
}

impl AddAssign for Statistics {
    fn add_assign(&mut self, other: Self) {
        self.no_frame += other.no_frame;
        self.receive_length += other.receive_length;
        self.device_full += other.device_full;
        self.device_invalid += other.device_invalid;
        self.transmit_error += other.transmit_error;
        self.device_no_frames += other.device_no_frames;
    }
}

impl Statistics {
    /// Returns the losses since `before`, an earlier state of the same queue.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let (now, then) = (self, before);
        Self {
            no_frame: now.no_frame.saturating_sub(then.no_frame),
            receive_length: now.receive_length.saturating_sub(then.receive_length),
            device_full: now.device_full.saturating_sub(then.device_full),
            device_invalid: now.device_invalid.saturating_sub(then.device_invalid),
            transmit_error: now.transmit_error.saturating_sub(then.transmit_error),
            device_no_frames: now.device_no_frames.saturating_sub(then.device_no_frames),
        }
    }
}

/// Reader of the losses below a queue. Asking for them may take a system call or a message to the
/// device, so a thread other than the lane's reads them.
///
/// The queue and the reading thread share it. The queue [ends](Self::end) it when it is closed.
///
/// # Examples
/// ```
/// use fastlane_core::{LossReader, Statistics};
///
/// let mut full = 0;
/// let losses = LossReader::new(move || {
///     full += 1;
///     Some(Statistics { device_full: full, ..Statistics::default() })
/// });
/// assert_eq!(losses.read().device_full, 1);
/// losses.end();
/// assert_eq!(losses.read().device_full, 2, "the last value stays");
/// ```
#[derive(Clone)]
pub struct LossReader(Arc<Mutex<LossSource>>);

/// Source of losses and its last value.
struct LossSource {
    /// `None` once the queue is closed.
    read: Option<Box<dyn FnMut() -> Option<Statistics> + Send>>,
    last: Statistics,
}

impl LossReader {
    /// Creates a reader. `read` returns the losses since the queue was opened, or `None` if they
    /// cannot be read now; the last value counts then. It owns what it reads from.
    pub fn new(read: impl FnMut() -> Option<Statistics> + Send + 'static) -> Self {
        let (read, last): (Option<Box<dyn FnMut() -> _ + Send>>, _) =
            (Some(Box::new(read)), Statistics::default());
        Self(Arc::new(Mutex::new(LossSource { read, last })))
    }

    /// Returns the losses so far. May wait for the kernel or the device.
    #[must_use]
    pub fn read(&self) -> Statistics {
        self.source().update()
    }

    /// Reads the losses for the last time and drops what they were read from. A queue calls it in
    /// [`close`](crate::Queue::close), as long as the device still exists.
    pub fn end(&self) {
        let mut source = self.source();
        source.update();
        source.read = None;
    }

    /// Returns true once the queue is closed: the losses stay as they are.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.source().read.is_none()
    }

    fn source(&self) -> MutexGuard<'_, LossSource> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LossSource {
    fn update(&mut self) -> Statistics {
        if let Some(losses) = self.read.as_mut().and_then(|read| read()) {
            self.last = losses;
        }
        self.last
    }
}

impl fmt::Debug for LossReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("LossReader").field(&self.source().last).finish()
    }
}
