//! A collector and its queue.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum size of a queue in octets, beyond what the kernel buffers.
pub(super) const QUEUE: usize = 1 << 20;

/// Connection to a collector, with the lines that it has not taken yet.
#[derive(Debug)]
pub(super) struct Collector {
    stream: UnixStream,
    queue: Vec<u8>,
    /// Octets of the queue that were sent.
    sent: usize,
    /// True if it has closed its direction, which carries nothing anyway.
    is_silent: bool,
}

impl Collector {
    /// Creates the collector of a connection with its first line.
    pub(super) fn new(stream: UnixStream, hello: Vec<u8>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, queue: hello, sent: 0, is_silent: false })
    }

    /// Appends a line. Returns false if it has no room for it.
    pub(super) fn append(&mut self, line: &[u8]) -> bool {
        if self.backlog() + line.len() > QUEUE {
            return false;
        }
        self.queue.extend_from_slice(line);
        true
    }

    /// Returns the descriptor with the events of interest.
    pub(super) fn poll(&self) -> PollFd<'_> {
        let input = if self.is_silent { PollFlags::empty() } else { PollFlags::IN };
        let output = if self.has_lines() { PollFlags::OUT } else { PollFlags::empty() };
        PollFd::new(&self.stream, input | output)
    }

    const fn has_lines(&self) -> bool {
        self.backlog() > 0
    }

    /// Returns the octets that it has not taken.
    pub(super) const fn backlog(&self) -> usize {
        self.queue.len() - self.sent
    }

    /// Returns true unless the collector has closed the connection. What it sends is discarded.
    pub(super) fn is_connected(&mut self) -> bool {
        let mut events = [PollFd::new(&self.stream, PollFlags::IN)];
        let _ = poll(&mut events, Some(&Timespec::default()));
        let events = events[0].revents();
        if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            return false;
        }
        if !self.is_silent && events.contains(PollFlags::IN) {
            self.is_silent = matches!(self.stream.read(&mut [0; 4096]), Ok(0));
        }
        true
    }

    /// Sends what the connection takes without waiting.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn send(&mut self) -> io::Result<()> {
        while self.has_lines() {
            match self.stream.write(&self.queue[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if !self.has_lines() {
            self.queue.clear();
            self.sent = 0;
        } else if self.sent > QUEUE / 2 {
            self.queue.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}
