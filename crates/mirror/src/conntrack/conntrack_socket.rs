//! Sockets of ctnetlink.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::connection::{Connection, ConnectionTuple};
use super::connection_reader::{ConntrackEvent, ConntrackEvents};
use super::conntrack_change::{self, ConntrackChange};
use crate::socket::{Received, Socket};

/// Maximum number of attempts of a dump that is interrupted by changes.
const ATTEMPTS: usize = 4;

/// Maximum length of changes that are sent at once, in bytes.
const WRITE_BATCH: usize = 16 << 10;

/// Selection of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// New connections. Changes and removals are always reported.
    pub new: bool,
    /// Changes of the nftables rule set.
    pub rules: bool,
}

/// Outcome of [`ConntrackListener::hear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All pending events were received.
    Everything,
    /// More events may be pending.
    More,
    /// Some events were lost or could not be parsed: everything must be read again.
    Lost,
}

/// Listener for events of connections, which also dumps them.
#[derive(Debug)]
pub struct ConntrackListener {
    events: Socket,
    dumps: Socket,
    sequence: u32,
}

impl ConntrackListener {
    /// Subscribes to events. The receive buffer has `receive_buffer` bytes as far as the privilege
    /// of the process allows; beyond it events are lost.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket, for example without CAP_NET_ADMIN.
    pub fn open(groups: Groups, receive_buffer: usize) -> io::Result<Self> {
        /// `NFNLGRP_*`: update and destroy; new; nftables.
        const ALWAYS: [u32; 2] = [2, 3];
        let optional = [groups.new.then_some(1), groups.rules.then_some(7)];
        let numbers: Vec<u32> = ALWAYS.into_iter().chain(optional.into_iter().flatten()).collect();
        let events = Socket::of_netfilter_events(&numbers, receive_buffer)?;
        Ok(Self { events, dumps: Socket::of_netfilter_requests()?, sequence: 0 })
    }

    /// Passes up to `most` datagrams of pending events to `take` without waiting.
    ///
    /// # Errors
    /// Returns an error if the socket fails.
    pub fn hear(&mut self, most: usize, mut take: impl FnMut(ConntrackEvent)) -> io::Result<Heard> {
        let mut lost = false;
        for _ in 0..most {
            match self.events.receive()? {
                Received::Messages(messages) => {
                    for event in ConntrackEvents::of(messages) {
                        match event {
                            Ok((_, event)) => take(event),
                            Err(_) => lost = true,
                        }
                    }
                }
                Received::Nothing if lost => return Ok(Heard::Lost),
                Received::Nothing => return Ok(Heard::Everything),
                Received::Lost => lost = true,
            }
        }
        Ok(if lost { Heard::Lost } else { Heard::More })
    }

    /// Dumps the connections whose mark has the bits `mark` within `mask` to `take` and waits for
    /// the end. A repeated dump repeats connections. Returns false if changes interrupted every
    /// attempt, so that some may be missing.
    ///
    /// # Errors
    /// Returns the error that the kernel reports, or that of reading its reply.
    pub fn dump(
        &mut self,
        mark: u32,
        mask: u32,
        mut take: impl FnMut(Connection),
    ) -> io::Result<bool> {
        for _ in 0..ATTEMPTS {
            self.sequence = self.sequence.wrapping_add(1).max(1);
            let request = conntrack_change::dump(mark, mask, self.sequence);
            let mut take = |event| {
                if let ConntrackEvent::Present(connection) = event {
                    take(*connection);
                }
            };
            if self.exchange(&request, self.sequence, &mut take)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the connection of a tuple of either direction, or `None` if Linux tracks none.
    ///
    /// # Errors
    /// Returns the error that the kernel reports, or that of reading its reply.
    pub fn look_up(
        &mut self,
        tuple: &ConnectionTuple,
        zone: u16,
    ) -> io::Result<Option<Connection>> {
        let mut found = None;
        let request = conntrack_change::look_up(tuple, zone);
        let mut take = |event| {
            if let ConntrackEvent::Present(connection) = event {
                found = Some(*connection);
            }
        };
        match self.exchange(&request, 0, &mut take) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => Ok(None),
            done => done.map(|_| found),
        }
    }

    /// Returns the generation of the nftables rules that is in force, or 0 if Linux has no
    /// nftables. Each transaction has a new one.
    ///
    /// # Errors
    /// Returns the error that the kernel reports, or that of reading its reply.
    pub fn rules_generation(&mut self) -> io::Result<u32> {
        let mut generation = 0;
        let mut take = |event| {
            if let ConntrackEvent::Rules(in_force) = event {
                generation = in_force;
            }
        };
        match self.exchange(&conntrack_change::rules_generation(), 0, &mut take) {
            // No module answers for nftables.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(0),
            done => done.map(|_| generation),
        }
    }

    /// Sends a request and passes the events of the replies to `take` until the end. Returns
    /// false if changes interrupted it.
    fn exchange(
        &mut self,
        request: &[u8],
        sequence: u32,
        take: &mut dyn FnMut(ConntrackEvent),
    ) -> io::Result<bool> {
        self.dumps.request_from_start(request)?;
        let mut is_whole = true;
        loop {
            let Received::Messages(messages) = self.dumps.receive()? else {
                return Err(Errno::NOBUFS.into());
            };
            for event in ConntrackEvents::of(messages) {
                let (header, event) =
                    event.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                if header.sequence() != sequence {
                    continue; // of an earlier request
                }
                is_whole &= !header.was_interrupted();
                match event {
                    ConntrackEvent::Result(0) => return Ok(is_whole),
                    ConntrackEvent::Result(code) => {
                        return Err(Errno::from_raw_os_error(code).into());
                    }
                    other => take(other),
                }
            }
        }
    }
}

impl AsFd for ConntrackListener {
    /// Returns the event socket; it is readable when events are pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Writer of changes of connections. Linux applies a change before the call returns. A connection
/// that no longer exists is skipped.
#[derive(Debug)]
pub struct ConntrackWriter {
    requests: Socket,
    batch: Vec<u8>,
}

impl ConntrackWriter {
    /// Opens a socket for changes.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn open() -> io::Result<Self> {
        let requests = Socket::of_netfilter_changes()?;
        Ok(Self { requests, batch: Vec::with_capacity(2 * WRITE_BATCH) })
    }

    /// Applies changes. Returns the number of those that Linux refused, for connections that ended
    /// and others.
    ///
    /// # Errors
    /// Returns an error if Linux does not take a request at all.
    pub fn apply(
        &mut self,
        changes: impl IntoIterator<Item = ConntrackChange>,
    ) -> io::Result<usize> {
        let mut refused = 0;
        for change in changes {
            change.write(&mut self.batch);
            if self.batch.len() >= WRITE_BATCH {
                refused += self.send()?;
            }
        }
        Ok(refused + self.send()?)
    }

    /// Removes a connection. Returns false if it does not exist.
    ///
    /// # Errors
    /// Returns an error if Linux does not take the request at all.
    pub fn remove(&mut self, connection: &Connection) -> io::Result<bool> {
        conntrack_change::write_removal(connection, &mut self.batch);
        Ok(self.send()? == 0)
    }

    /// Sends the batch and returns the number of refused requests.
    fn send(&mut self) -> io::Result<usize> {
        if self.batch.is_empty() {
            return Ok(0);
        }
        let sent = self.requests.send_all(&self.batch);
        self.batch.clear();
        sent?;
        let mut refused = 0;
        // Linux has replied to all of them before the system call returned.
        while let Received::Messages(messages) = self.requests.receive()? {
            let replies = ConntrackEvents::of(messages);
            refused += replies
                .filter(|it| matches!(it, Ok((_, ConntrackEvent::Result(code))) if *code != 0))
                .count();
        }
        Ok(refused)
    }
}
