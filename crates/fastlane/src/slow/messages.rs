//! Messages between a slow path and the lanes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_table::Doorbell;
use fastlane_table::messages::{Channel, Doorbells, PUNT, Punted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::SlowError;
use super::attachment::Attachment;
use super::granted_rings::{GrantedRings, failed};

/// Messages between this program and the lanes. They travel in bounded rings and may be lost when a
/// ring is full; use [pending events](super::PendingEvents) for what must not be lost.
///
/// # Examples
/// A slow path that prints the messages of all lanes until the application ends:
/// ```no_run
/// use std::time::Duration;
///
/// # fn main() -> Result<(), fastlane::slow::SlowError> {
/// let slow = fastlane::slow::attach("firewall")?;
/// let mut messages = slow.messages()?;
/// while let Some(message) = messages.receive(Duration::from_secs(1))? {
///     println!("lane {}: kind {}, {} bytes", message.lane, message.kind, message.body.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Messages {
    channels: Vec<Channel>,
    /// Doorbell that any lane rings.
    bell: Doorbell,
    /// Lane to be read next.
    next: usize,
    body: Vec<u8>,
    attachment: Arc<Attachment>,
}

/// Message of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Number of the lane that sent it.
    pub lane: usize,
    /// Kind, defined by the application.
    pub kind: u32,
    /// Bytes of the message.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns the punted packet if the message is one (`Turn::punt`).
    #[must_use]
    pub fn punted(&self) -> Option<Punted<'a>> {
        if self.kind == PUNT { Punted::read(self.body) } else { None }
    }

    /// Returns the body as a value if it has the length of `M` (`Turn::send_value`).
    #[must_use]
    pub fn value<M: FromBytes>(&self) -> Option<M> {
        M::read_from_bytes(self.body).ok()
    }
}

impl Messages {
    pub(super) fn attach(attachment: Arc<Attachment>) -> Result<Self, SlowError> {
        let mut rings = attachment.rings();
        let granted = match rings.take() {
            Some(granted) => granted,
            None => GrantedRings::request(&attachment.client)?,
        };
        let granted = rings.insert(granted);
        if granted.is_used {
            return Err(SlowError::MessagesInUse);
        }
        let share = |bell: &Doorbell| bell.try_clone().map_err(failed);
        let channels = granted.lanes.iter().enumerate().map(|(number, lane)| {
            let bells = Doorbells { lane: share(lane)?, slow: share(&granted.slow)? };
            let channel = Channel::attach_slow(&granted.memory, number, bells);
            channel.map_err(|_| SlowError::Damaged { lane: number })
        });
        let channels = channels.collect::<Result<_, SlowError>>()?;
        let bell = share(&granted.slow)?;
        granted.is_used = true;
        drop(rings);
        Ok(Self { channels, bell, next: 0, body: Vec::new(), attachment })
    }

    /// Returns the next message of any lane, or `None` after `timeout`. Lanes are read in turn.
    ///
    /// # Errors
    /// Fails if a ring is damaged, or if the application has ended and all messages were read.
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<Message<'_>>, SlowError> {
        let end = Instant::now().checked_add(timeout);
        loop {
            if let Some((lane, kind)) = self.take()? {
                return Ok(Some(Message { lane, kind, body: &self.body }));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let is_alive = self.attachment.client.is_alive();
            if left == Some(Duration::ZERO) || !is_alive {
                // A lane may have sent and ended since the last read.
                return match self.take()? {
                    Some((lane, kind)) => Ok(Some(Message { lane, kind, body: &self.body })),
                    None if is_alive => Ok(None),
                    None => Err(SlowError::Ended),
                };
            }
            self.wait(left)?;
        }
    }

    /// Takes the next message of any lane, starting with the lane after the last one.
    fn take(&mut self) -> Result<Option<(usize, u32)>, SlowError> {
        let count = self.channels.len();
        for _ in 0..count {
            let lane = self.next;
            self.next = (lane + 1) % count;
            let message = self.channels[lane].receiver.receive();
            if let Some(message) = message.map_err(|_| SlowError::Damaged { lane })? {
                self.body.clear();
                self.body.extend_from_slice(message.body);
                return Ok(Some((lane, message.kind)));
            }
        }
        Ok(None)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), SlowError> {
        if self.arm() {
            let stream = self.attachment.client.as_fd();
            let mut events =
                [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&stream, PollFlags::RDHUP)];
            let timeout = timeout.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            });
            match poll(&mut events, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(SlowError::Wait(error.into())),
            }
        }
        self.disarm();
        Ok(())
    }

    /// Prepares to wait in an event loop: until [`disarm`](Self::disarm), the descriptor of this
    /// value ([`AsFd`]) becomes readable when a lane sends. Returns false if messages are waiting
    /// already; then call [`receive`](Self::receive) instead of waiting.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        let mut may_wait = true;
        for channel in &mut self.channels {
            may_wait &= channel.receiver.begin_wait();
        }
        may_wait
    }

    /// Ends the wait that [`arm`](Self::arm) prepared.
    pub fn disarm(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.receiver.end_wait());
    }

    /// Sends a message to a lane and wakes it if it sleeps. Returns false if the ring is full, the
    /// message is too long, or the lane does not exist.
    pub fn send(&mut self, lane: usize, kind: u32, body: &[u8]) -> bool {
        let Some(channel) = self.channels.get_mut(lane) else { return false };
        let sent = channel.sender.send(kind, body);
        channel.sender.publish();
        sent
    }

    /// Sends the bytes of `value` to a lane, like [`send`](Self::send).
    pub fn send_value<M: IntoBytes + Immutable + ?Sized>(
        &mut self,
        lane: usize,
        kind: u32,
        value: &M,
    ) -> bool {
        self.send(lane, kind, value.as_bytes())
    }

    /// Returns the number of messages that lanes lost to full rings since the application started.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let lost = self.channels.iter().map(|channel| channel.receiver.lost());
        lost.fold(0, u64::wrapping_add)
    }

    /// Returns the number of lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.channels.len()
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.disarm();
        if let Some(granted) = &mut *self.attachment.rings() {
            granted.is_used = false;
        }
    }
}

/// The descriptor becomes readable when a lane sends while this is [armed](Messages::arm).
impl AsFd for Messages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Returns the descriptor of [`AsFd`].
impl AsRawFd for Messages {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
