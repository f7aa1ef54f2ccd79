//! Messages from and to the lanes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_table::messages::{Channel, Doorbells, PUNT, Punted};
use fastlane_table::{Doorbell, SharedMemory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::attachment::Attachment;
use super::{SlowError, alone};
use crate::session::{Kind, MessageRings};

/// The messages between this program and the lanes: bounded, and hints. What must not be lost lies
/// in [pending events](super::PendingEvents).
#[derive(Debug)]
pub struct Messages {
    channels: Vec<Channel>,
    /// Rung by any lane.
    bell: Doorbell,
    /// The lane to be asked next.
    next: usize,
    body: Vec<u8>,
    attachment: Arc<Attachment>,
}

/// What the application has granted; [`Messages`] may come and go.
#[derive(Debug)]
pub(super) struct Rings {
    memory: Arc<SharedMemory>,
    /// The slow path's bell.
    slow: Doorbell,
    /// The lanes' bells.
    lanes: Vec<Doorbell>,
    /// Whether there are [`Messages`].
    is_used: bool,
}

/// A message of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Whose it is.
    pub lane: usize,
    /// What it is, as the application says.
    pub kind: u32,
    /// What it says.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The packet that a lane shows, if it is one (`Turn::punt`).
    #[must_use]
    pub fn punted(&self) -> Option<Punted<'a>> {
        if self.kind == PUNT { Punted::read(self.body) } else { None }
    }

    /// The value whose bytes the body is, if it has that length (`Turn::send_value`).
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
            None => Rings::ask(&attachment)?,
        };
        let granted = rings.insert(granted);
        if granted.is_used {
            return Err(SlowError::Listening);
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

    /// The next message of any lane; `None` when none comes within this time. Each lane has its
    /// turn.
    ///
    /// # Errors
    /// When the application has ended and nothing of it is left, or a ring is damaged.
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<Message<'_>>, SlowError> {
        let end = Instant::now().checked_add(timeout);
        loop {
            if let Some((lane, kind)) = self.take()? {
                return Ok(Some(Message { lane, kind, body: &self.body }));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let is_alive = self.attachment.client.is_alive();
            if left == Some(Duration::ZERO) || !is_alive {
                // It may have spoken and ended since it was asked.
                return match self.take()? {
                    Some((lane, kind)) => Ok(Some(Message { lane, kind, body: &self.body })),
                    None if is_alive => Ok(None),
                    None => Err(SlowError::Ended),
                };
            }
            self.wait(left)?;
        }
    }

    /// Asks the lanes, each in its turn.
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

    /// For a program that waits for other things too: lets the descriptor of this value
    /// ([`AsFd`]) become readable when a lane speaks, until the next
    /// [`disarm`](Self::disarm). False when one has spoken already: then nothing will wake, and it
    /// is time to [`receive`](Self::receive).
    #[must_use]
    pub fn arm(&mut self) -> bool {
        let mut may_wait = true;
        for channel in &mut self.channels {
            may_wait &= channel.receiver.begin_wait();
        }
        may_wait
    }

    /// Ends what [`arm`](Self::arm) has begun.
    pub fn disarm(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.receiver.end_wait());
    }

    /// Sends a message to a lane, and wakes it if it sleeps. False when there is no room, the
    /// message is too long, or there is no such lane.
    pub fn send(&mut self, lane: usize, kind: u32, body: &[u8]) -> bool {
        let Some(channel) = self.channels.get_mut(lane) else { return false };
        let sent = channel.sender.send(kind, body);
        channel.sender.publish();
        sent
    }

    /// As [`send`](Self::send): a message with the bytes of `value`.
    pub fn send_value<M: IntoBytes + Immutable + ?Sized>(
        &mut self,
        lane: usize,
        kind: u32,
        value: &M,
    ) -> bool {
        self.send(lane, kind, value.as_bytes())
    }

    /// How many messages of the lanes found no room since the application began.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let lost = self.channels.iter().map(|channel| channel.receiver.lost());
        lost.fold(0, u64::wrapping_add)
    }

    /// How many lanes there are.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.channels.len()
    }
}

impl Rings {
    fn ask(attachment: &Attachment) -> Result<Self, SlowError> {
        let (rings, descriptors): (MessageRings, _) = attachment.client.ask(Kind::Messages, &())?;
        let mut descriptors = descriptors.into_iter();
        let nothing = || failed(std::io::ErrorKind::UnexpectedEof.into());
        let mut next = || descriptors.next().ok_or_else(nothing);
        let memory = alone::attach(next()?).map_err(|source| match alone::writer(&source) {
            Some(process) => SlowError::StillWritten { what: WHAT.to_owned(), process },
            None => failed(source),
        })?;
        let slow = Doorbell::attach(next()?).map_err(failed)?;
        let lanes = rings.lanes.min(attachment.client.application.lanes.len());
        let lanes = (0..lanes).map(|_| Doorbell::attach(next()?).map_err(failed));
        let lanes = lanes.collect::<Result<_, SlowError>>()?;
        Ok(Self { memory: Arc::new(memory), slow, lanes, is_used: false })
    }
}

/// In errors.
const WHAT: &str = "the right to its messages";

fn failed(source: std::io::Error) -> SlowError {
    SlowError::Map { what: "the messages".to_owned(), source }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.disarm();
        if let Some(granted) = &mut *self.attachment.rings() {
            granted.is_used = false;
        }
    }
}

/// Readable when a lane speaks while this is [armed](Messages::arm).
impl AsFd for Messages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// As [`AsFd`].
impl AsRawFd for Messages {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
