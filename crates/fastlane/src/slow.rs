//! The slow path: attaching to a running application, writing its tables, exchanging messages.
//!
//! A slow path is an ordinary program, or a thread of the application's own process. It
//! [`attach`]es by name, writes tables that the lanes read, reads the state that the lanes write,
//! and exchanges messages with them. The lanes never wait for it. It may be killed at any
//! instruction: after a restart it attaches again and finds every committed write.
//!
//! The main types are [`SlowPath`] (the attachment), [`Writer`], [`PendingEvents`], [`Messages`]
//! and [`HandoverHolder`].
//!
//! ```no_run
//! # fn main() -> Result<(), fastlane::slow::SlowError> {
//! use std::time::Duration;
//!
//! let slow = fastlane::slow::attach_wait("firewall", Duration::from_secs(10))?;
//! let mut blocked = slow.hash_writer::<[u8; 4], u64>("blocked")?;
//! let counts = slow.state::<1>("blocked")?;
//! blocked.insert(&[10, 0, 0, 7], &1)?;
//! while slow.is_alive() {
//!     for (address, found) in blocked.iter() {
//!         println!("{address:?}: {} packets", counts.read(found.entry)[0]);
//!     }
//!     std::thread::sleep(Duration::from_secs(1));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Threads and event loops
//! All types are `Send`. Calls that request something of the application ([`attach`], and those
//! that return writers, readers and messages) wait for its reply, at most five seconds. A write
//! waits at most one second, if all slots are in use and a lane has not passed a quiescent state;
//! while that lane still has not, writes that need a slot fail at once. Apart from these, only
//! [`Messages::receive`] blocks. An asynchronous program attaches before its event loop starts or
//! on a blocking thread (tokio: `spawn_blocking`), and may write from its tasks.
//!
//! An event loop waits for two more descriptors. [`Messages`] becomes readable when a lane sends
//! while it is [armed](Messages::arm). [`SlowPath`] becomes readable when the application ends.
//! Both work with poll(2) and epoll(7), also edge-triggered, and thus with tokio's `AsyncFd`:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use fastlane::slow::{Messages, SlowError, SlowPath};
//! # fn wait_for_events(messages: &Messages, slow: &SlowPath) {}
//! # fn serve(slow: &SlowPath, messages: &mut Messages) -> Result<(), SlowError> {
//! loop {
//!     if messages.arm() {
//!         wait_for_events(messages, slow); // poll(2), `AsyncFd::readable`, ..
//!     }
//!     messages.disarm();
//!     while let Some(message) = messages.receive(Duration::ZERO)? {
//!         println!("lane {}: {:?}", message.lane, message.body);
//!     }
//! }
//! # }
//! ```
//!
//! # One writer
//! Any number of programs may read a table, but it has one writer at a time; a second one gets an
//! error that names the first, after a second. All grants end with the attachment, even if the
//! process is killed.
//!
//! After the application has ended, a remaining writer does not reuse memory that lanes might have
//! read. Drop it and attach to the next process, which may have [inherited](HandoverHolder) the
//! tables. Until it is dropped, the next process grants neither the same table nor the messages to
//! anyone ([`SlowError::Written`]).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_table::counters::Counters;
use fastlane_table::{
    ArrayReader, ArrayWriter, ClassifierWriter, GracePeriods, HashReader, HashWriter, Key,
    Lpm4Writer, Lpm6Writer, Pending, Readers, RecordReader, RecordWriter, SharedMemory, State,
    TableError, Value,
};

use crate::describe::Application;
use crate::session::{self, Client, ReplacedRules, SessionError};
use crate::tables::Role;

mod attachment;
mod granted_rings;
mod handover_holder;
mod messages;
mod writer;

use attachment::{Attachment, Resets};
pub use handover_holder::HandoverHolder;
pub use messages::{Message, Messages};
pub use writer::{PendingEvents, Writer};

/// Summary of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    /// Name of the table.
    pub name: String,
    /// Kind: `hash`, `array`, `lpm4`, `lpm6` or `classifier`; empty if only lanes write to it.
    pub kind: &'static str,
    /// Number of entries in use.
    pub entries: usize,
    /// Maximum number of entries.
    pub capacity: usize,
    /// True if lanes write state for each entry.
    pub has_state: bool,
    /// True if lanes raise pending events.
    pub has_pending: bool,
    /// Program that writes it.
    pub writer: Option<String>,
}

/// Interval between attempts to attach.
const RETRY: Duration = Duration::from_millis(20);

/// Error of a slow path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlowError {
    /// No such application runs, or it refuses.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The table has another layout, or it is full.
    #[error(transparent)]
    Table(#[from] TableError),
    /// No such table, or no such part of it, exists.
    #[error("table `{table}`: the application has no {what} of this name; {remedy}")]
    NoTable {
        /// Name of the table.
        table: String,
        /// Part that was requested.
        what: &'static str,
        /// Tables that exist, or the remedy.
        remedy: String,
    },
    /// This attachment already has the writer of the table.
    #[error(
        "table `{table}`: this program is already its writer; use that writer or drop it first"
    )]
    AlreadyWriter {
        /// Name of the table.
        table: String,
    },
    /// This attachment already has the [`Messages`].
    #[error("this program already has the messages; use them or drop them first")]
    MessagesInUse,
    /// Another program writes it, or another part of this one.
    #[error(
        "{what}: {writer} writes it, and only one may; end that program, or let it drop its \
             writer"
    )]
    Written {
        /// Table or message rings.
        what: String,
        /// Program that writes it.
        writer: String,
    },
    /// The memory could not be mapped.
    #[error("{what}: the application's memory cannot be mapped ({source})")]
    Map {
        /// Table or message rings.
        what: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The steering rules cannot be parsed.
    #[error("the rules cannot be read: {0}; write them as in the key `steer` of a port")]
    Rules(String),
    /// A ring violates the message format. No more messages of that lane can be read.
    #[error("the messages of lane {lane} are damaged; install both programs from one release")]
    Damaged {
        /// Number of the lane.
        lane: usize,
    },
    /// The application has ended.
    #[error("the application has ended; attach to the next process")]
    Ended,
    /// Waiting failed.
    #[error("cannot wait: {0}")]
    Wait(io::Error),
}

/// Attachment to a running application. Clones share it. All grants end when the last clone, writer
/// and [`Messages`] are dropped.
///
/// # Examples
/// ```no_run
/// # fn main() -> Result<(), fastlane::slow::SlowError> {
/// let slow = fastlane::slow::attach("firewall")?;
/// let mut blocked = slow.hash_writer::<[u8; 4], u64>("blocked")?;
/// blocked.insert(&[192, 0, 2, 7], &1)?;
/// for table in slow.tables()? {
///     println!("{}: {} of {} entries", table.name, table.entries, table.capacity);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SlowPath {
    attachment: Arc<Attachment>,
}

/// Attaches to a running application by name, or by the path of its session (any argument with a
/// `/`). Waits at most five seconds for a reply.
///
/// # Errors
/// Fails if no application runs there, or it belongs to another user or another release.
pub fn attach(application: &str) -> Result<SlowPath, SlowError> {
    let client = session::connect(&path(application))?;
    Ok(SlowPath { attachment: Arc::new(Attachment::new(client)) })
}

/// Attaches like [`attach`], but waits up to `timeout` for the application to start.
///
/// # Errors
/// Fails like [`attach`]. An absent or silent application is an error only after `timeout`, plus
/// the time of one attempt.
pub fn attach_wait(application: &str, timeout: Duration) -> Result<SlowPath, SlowError> {
    let end = Instant::now().checked_add(timeout);
    loop {
        match attach(application) {
            // An application listens before it is ready to reply.
            Err(SlowError::Session(SessionError::Absent { .. } | SessionError::Silent { .. }))
                if end.is_none_or(|end| Instant::now() < end) =>
            {
                std::thread::sleep(RETRY);
            }
            other => return other,
        }
    }
}

fn path(application: &str) -> PathBuf {
    if application.contains('/') { application.into() } else { session::path(application) }
}

/// The descriptor becomes readable when the application ends; [`is_alive`](SlowPath::is_alive)
/// tells.
impl AsFd for SlowPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client().as_fd()
    }
}

/// Returns the descriptor of [`AsFd`].
impl AsRawFd for SlowPath {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl SlowPath {
    fn client(&self) -> &Client {
        &self.attachment.client
    }

    /// Returns the description of the application.
    #[must_use]
    pub fn application(&self) -> &Application {
        &self.client().application
    }

    /// Returns the counters of the application.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.client().counters
    }

    /// Returns true while the application runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.client().is_alive()
    }

    /// Returns a summary of all tables of the application.
    ///
    /// # Errors
    /// Fails if the application does not reply or a table is damaged.
    pub fn tables(&self) -> Result<Vec<TableSummary>, SlowError> {
        self.attachment.tables()
    }

    fn writer<W>(
        &self,
        table: &str,
        create: impl FnOnce(&Arc<SharedMemory>, &Arc<Readers>, Resets) -> Result<W, TableError>,
    ) -> Result<Writer<W>, SlowError> {
        let writer = self.attachment.write(table, create)?;
        Ok(Writer::new(writer, table, Arc::clone(&self.attachment)))
    }

    /// Becomes the writer of an exact-match table. Operations that a previous writer left
    /// unfinished are repaired. Lane state and pending events of a removed entry are zeroed before
    /// another key gets the entry.
    ///
    /// # Errors
    /// Fails if another program writes the table, or it has other types.
    pub fn hash_writer<K: Key, V: Value>(
        &self,
        table: &str,
    ) -> Result<Writer<HashWriter<K, V>>, SlowError> {
        self.writer(table, |part, readers, resets| {
            let mut writer = HashWriter::attach(part, readers)?;
            resets.into_iter().for_each(|reset| writer.with_state(reset));
            Ok(writer)
        })
    }

    /// Becomes the writer of an array.
    ///
    /// # Errors
    /// Fails like [`hash_writer`](Self::hash_writer).
    pub fn array_writer<V: Value>(&self, table: &str) -> Result<Writer<ArrayWriter<V>>, SlowError> {
        self.writer(table, |part, readers, _| ArrayWriter::attach(part, readers))
    }

    /// Becomes the writer of a record.
    ///
    /// # Errors
    /// Fails like [`hash_writer`](Self::hash_writer).
    pub fn record_writer<V: Value>(
        &self,
        table: &str,
    ) -> Result<Writer<RecordWriter<V>>, SlowError> {
        self.writer(table, |part, readers, _| RecordWriter::attach(part, readers))
    }

    /// Becomes the writer of a classifier.
    ///
    /// # Errors
    /// Fails like [`hash_writer`](Self::hash_writer).
    pub fn classifier_writer<V: Value>(
        &self,
        table: &str,
    ) -> Result<Writer<ClassifierWriter<V>>, SlowError> {
        self.writer(table, |part, readers, _| ClassifierWriter::attach(part, readers))
    }

    /// Becomes the writer of a table of IPv4 prefixes.
    ///
    /// # Errors
    /// Fails like [`hash_writer`](Self::hash_writer).
    pub fn lpm4_writer(&self, table: &str) -> Result<Writer<Lpm4Writer>, SlowError> {
        self.writer(table, |part, readers, _| Lpm4Writer::attach(part, readers))
    }

    /// Becomes the writer of a table of IPv6 prefixes.
    ///
    /// # Errors
    /// Fails like [`hash_writer`](Self::hash_writer).
    pub fn lpm6_writer(&self, table: &str) -> Result<Writer<Lpm6Writer>, SlowError> {
        self.writer(table, |part, readers, _| Lpm6Writer::attach(part, readers))
    }

    /// Returns a reader of an exact-match table, for a program that is not its writer. Reading
    /// needs a [`Guard`](fastlane_table::Guard), whose creator promises that no writer reuses what
    /// was found.
    ///
    /// # Errors
    /// Fails if no table of this name and these types exists.
    pub fn hash<K: Key, V: Value>(&self, table: &str) -> Result<HashReader<K, V>, SlowError> {
        Ok(HashReader::attach(&self.attachment.readable(table, Role::Table)?)?)
    }

    /// Returns a reader of an array; see [`hash`](Self::hash).
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn array<V: Value>(&self, table: &str) -> Result<ArrayReader<V>, SlowError> {
        Ok(ArrayReader::attach(&self.attachment.readable(table, Role::Table)?)?)
    }

    /// Returns a reader of a record; see [`hash`](Self::hash).
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn record<V: Value>(&self, table: &str) -> Result<RecordReader<V>, SlowError> {
        Ok(RecordReader::attach(&self.attachment.readable(table, Role::Table)?)?)
    }

    /// Returns a reader of the words that the lanes write for each entry of a table.
    ///
    /// # Errors
    /// Fails if the table has no lane state, or another number of words.
    pub fn state<const W: usize>(&self, table: &str) -> Result<State<W>, SlowError> {
        Ok(State::attach(&self.attachment.readable(table, Role::State)?)?)
    }

    /// Returns the pending events of a table's entries. They belong to the writer of the table.
    ///
    /// # Errors
    /// Fails if the table has no pending events, or another program writes it.
    pub fn pending(&self, table: &str) -> Result<PendingEvents, SlowError> {
        let part = self.attachment.writable(table, Role::Pending)?;
        Ok(PendingEvents::new(Pending::attach(&part)?, Arc::clone(&self.attachment)))
    }

    /// Returns the grace periods of the lanes, which must pass before the slow path reuses its own
    /// identifiers that it has removed from tables. The writers do this for table memory
    /// themselves.
    ///
    /// # Examples
    /// A table of the program's own cannot be paired with these lanes, which do not read it:
    /// ```compile_fail,E0308
    /// use std::sync::Arc;
    /// use fastlane_table::{HashWriter, SharedMemory};
    ///
    /// fn pair(own: &Arc<SharedMemory>, slow: &fastlane::slow::SlowPath) {
    ///     let _ = HashWriter::<u32, u64>::attach(own, &Arc::new(slow.grace_periods()));
    /// }
    /// ```
    /// The writers rely on their lanes, so there is no access to these:
    /// ```compile_fail,E0599
    /// fn lanes(slow: &fastlane::slow::SlowPath) {
    ///     slow.readers();
    /// }
    /// ```
    #[must_use]
    pub fn grace_periods(&self) -> GracePeriods {
        self.attachment.grace_periods()
    }

    /// Becomes the peer of the lanes' messages. Messages that the previous peer left are received.
    ///
    /// # Errors
    /// Fails if the application has no messages, or another program or another part of this one has
    /// them.
    pub fn messages(&self) -> Result<Messages, SlowError> {
        Messages::attach(Arc::clone(&self.attachment))
    }

    /// Replaces the steering rules of a port while it runs. `rules` is a JSON list as in the
    /// configuration (`[{"udp-port": 2152}]`). Each frame is matched against either the old or the
    /// new list.
    ///
    /// # Errors
    /// Fails if the rules are wrong or cannot be replaced; the old ones then stay in force.
    pub fn replace_rules(&self, port: &str, rules: &str) -> Result<ReplacedRules, SlowError> {
        let rules =
            serde_json::from_str(rules).map_err(|error| SlowError::Rules(error.to_string()))?;
        Ok(self.client().replace_rules(port, rules)?)
    }
}

#[cfg(test)]
mod tests;
