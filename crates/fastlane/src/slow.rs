//! The other half: what a slow path does with a running application.
//!
//! A slow path is an ordinary program, or a thread of the application's own process. It
//! [`attach`]es by name, writes tables that the lanes read, reads the words that the lanes write,
//! and exchanges messages with them. The lanes never wait for it. It may be killed at any
//! instruction and started again: it attaches again, and what it finds is what it had committed.
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
//! Everything here may go to another thread. Calls that ask the application ([`attach`], those that
//! give writers, readers and messages) wait for its answer, at most five seconds; a write waits
//! for at most a second, when a lane holds all free memory back. Nothing else waits, but for
//! [`Messages::receive`]. So an asynchronous program makes its attachment before its loop or in a
//! thread for what blocks (tokio: `spawn_blocking`), and may write from its tasks.
//!
//! A program with a loop of its own waits for two descriptors more: [`Messages`], which becomes
//! readable when a lane speaks while it is [armed](Messages::arm), and [`Slow`], which does when
//! the application has ended. Both do for poll(2) and epoll(7), also edge-triggered, so for
//! `AsyncFd` of tokio:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use fastlane::slow::{Messages, Slow, SlowError};
//! # fn wait_for_them_and_for_ours(messages: &Messages, slow: &Slow) {}
//! # fn serve(slow: &Slow, messages: &mut Messages) -> Result<(), SlowError> {
//! loop {
//!     if messages.arm() {
//!         wait_for_them_and_for_ours(messages, slow); // poll(2), `AsyncFd::readable`, ..
//!     }
//!     messages.disarm();
//!     while let Some(message) = messages.receive(Duration::ZERO)? {
//!         println!("lane {} says {:?}", message.lane, message.body);
//!     }
//! }
//! # }
//! ```
//!
//! # One writer
//! Any number of programs may read; a table has one writer at a time, and a second one is told who
//! that is. What a program was granted ends with its attachment, however it ends.
//!
//! When the application has ended, memory that its lanes might have used is not used again by a
//! writer that goes on: drop it and attach to the application's successor, which may have
//! [kept](Keeper) the tables. Until it is dropped, nobody gets the right to write the same table
//! from the successor, nor the messages ([`SlowError::StillWritten`]).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_table::counters::Counters;
use fastlane_table::{
    ArrayReader, ArrayWriter, HashReader, HashWriter, Key, Lpm4Writer, Lpm6Writer, Pending,
    Readers, RecordReader, RecordWriter, State, TableError, Value,
};

use crate::describe::Application;
use crate::session::{self, Client, Replaced, Role, SessionError};

mod alone;
mod attachment;
mod keeper;
mod messages;
mod writer;

use attachment::Attachment;
pub use keeper::Keeper;
pub use messages::{Message, Messages};
pub use writer::{PendingEvents, Writer};

/// A table, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    /// Its name.
    pub name: String,
    /// What it is: `hash`, `array`, `lpm4` or `lpm6`; empty when only lanes write there.
    pub kind: &'static str,
    /// How many entries it has.
    pub entries: usize,
    /// The most.
    pub capacity: usize,
    /// Whether lanes write words for each entry.
    pub has_state: bool,
    /// Whether lanes raise events that must not be lost.
    pub has_pending: bool,
    /// Who writes it.
    pub writer: Option<String>,
}

/// How often it is looked whether an application has come.
const STEP: Duration = Duration::from_millis(20);

/// Why a slow path does not get what it wants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlowError {
    /// There is no such application, or it refuses.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The table is not what this program expects, or it is full.
    #[error(transparent)]
    Table(#[from] TableError),
    /// There is no such table, or no such part of it.
    #[error("table `{table}`: the application has no {what} of this name; {there}")]
    NoTable {
        /// Its name.
        table: String,
        /// What was asked for.
        what: &'static str,
        /// What there is.
        there: String,
    },
    /// There is one writer, and this attachment has it.
    #[error("table `{table}`: this program writes it already; use that writer, or drop it first")]
    Written {
        /// Its name.
        table: String,
    },
    /// There is one who exchanges messages, and this attachment has it.
    #[error("this program has the messages already; use them, or drop them first")]
    Listening,
    /// A program that was granted it by an application before this one goes on with it.
    #[error(
        "{what} is still with {}, which got it from an application before this one; end that, or \
         let it drop what it got", who(*process)
    )]
    StillWritten {
        /// Which.
        what: String,
        /// The process, if it is known; 0 when it is not.
        process: u32,
    },
    /// The memory could not be mapped.
    #[error("{what} of the application cannot be mapped: {source}")]
    Map {
        /// Which.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The rules are none.
    #[error("the rules cannot be read: {0}; write them as the configuration has them")]
    Rules(String),
    /// A ring does not hold what a lane writes. Nothing more comes from that lane.
    #[error("the messages of lane {lane} are damaged; use programs of one release")]
    Damaged {
        /// Whose they are.
        lane: usize,
    },
    /// The application has ended.
    #[error("the application has ended; attach to its successor")]
    Ended,
    /// It could not be waited.
    #[error("cannot wait: {0}")]
    Wait(io::Error),
}

fn who(process: u32) -> String {
    match process {
        0 => "another process".to_owned(),
        _ if process == std::process::id() => "this process".to_owned(),
        _ => format!("process {process}"),
    }
}

/// An attachment to a running application. It can be cloned and shared; what it was granted ends
/// when the last clone, writer and messages are dropped.
#[derive(Clone, Debug)]
pub struct Slow {
    attachment: Arc<Attachment>,
}

/// Attaches to a running application by its name, or by the path of its session (anything with a
/// `/`). It is given five seconds to answer.
///
/// # Errors
/// When none runs there, it belongs to another user, or it is of another release.
pub fn attach(application: &str) -> Result<Slow, SlowError> {
    let client = session::connect(&path(application))?;
    Ok(Slow { attachment: Arc::new(Attachment::new(client)) })
}

/// As [`attach`], but waits until the application is there and answers.
///
/// # Errors
/// As [`attach`]; that none runs there, or does not answer, only after this time (and what one
/// attempt takes).
pub fn attach_wait(application: &str, timeout: Duration) -> Result<Slow, SlowError> {
    let end = Instant::now().checked_add(timeout);
    loop {
        match attach(application) {
            // It listens before it is ready to answer.
            Err(SlowError::Session(SessionError::Absent { .. } | SessionError::Silent { .. }))
                if end.is_none_or(|end| Instant::now() < end) =>
            {
                std::thread::sleep(STEP);
            }
            other => return other,
        }
    }
}

fn path(application: &str) -> PathBuf {
    if application.contains('/') { application.into() } else { session::path(application) }
}

/// Readable when the application has ended; [`is_alive`](Slow::is_alive) says whether it has.
impl AsFd for Slow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client().as_fd()
    }
}

/// As [`AsFd`].
impl AsRawFd for Slow {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Slow {
    fn client(&self) -> &Client {
        &self.attachment.client
    }

    /// What runs there.
    #[must_use]
    pub fn application(&self) -> &Application {
        &self.client().application
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.client().counters
    }

    /// Whether the application still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.client().is_alive()
    }

    /// The tables of the application, for people.
    ///
    /// # Errors
    /// When it does not answer, or a table is unsound.
    pub fn tables(&self) -> Result<Vec<TableSummary>, SlowError> {
        self.attachment.tables()
    }

    /// Becomes the writer of an exact-match table. What a writer before left unfinished is put in
    /// order. Lane state and pending events of an entry that is removed are zeroed before another
    /// key gets them.
    ///
    /// # Errors
    /// When another program writes it, or it is a table of other types; so with all writers.
    pub fn hash_writer<K: Key, V: Value>(
        &self,
        table: &str,
    ) -> Result<Writer<HashWriter<K, V>>, SlowError> {
        self.attachment.write(table, |part, readers, resets| {
            let mut writer = HashWriter::attach(part, readers)?;
            resets.into_iter().for_each(|reset| writer.with_state(reset));
            Ok(writer)
        })
    }

    /// Becomes the writer of an array.
    ///
    /// # Errors
    /// As [`hash_writer`](Self::hash_writer).
    pub fn array_writer<V: Value>(&self, table: &str) -> Result<Writer<ArrayWriter<V>>, SlowError> {
        self.attachment.write(table, |part, readers, _| ArrayWriter::attach(part, readers))
    }

    /// Becomes the writer of a record.
    ///
    /// # Errors
    /// As [`hash_writer`](Self::hash_writer).
    pub fn record_writer<V: Value>(
        &self,
        table: &str,
    ) -> Result<Writer<RecordWriter<V>>, SlowError> {
        self.attachment.write(table, |part, readers, _| RecordWriter::attach(part, readers))
    }

    /// Becomes the writer of a table of IPv4 prefixes.
    ///
    /// # Errors
    /// As [`hash_writer`](Self::hash_writer).
    pub fn lpm4_writer(&self, table: &str) -> Result<Writer<Lpm4Writer>, SlowError> {
        self.attachment.write(table, |part, readers, _| Lpm4Writer::attach(part, readers))
    }

    /// Becomes the writer of a table of IPv6 prefixes.
    ///
    /// # Errors
    /// As [`hash_writer`](Self::hash_writer).
    pub fn lpm6_writer(&self, table: &str) -> Result<Writer<Lpm6Writer>, SlowError> {
        self.attachment.write(table, |part, readers, _| Lpm6Writer::attach(part, readers))
    }

    /// An exact-match table to read, for a program that is not its writer. Who reads it needs a
    /// [`Guard`](fastlane_table::Guard), and makes its promise: that no writer reuses what it has
    /// found.
    ///
    /// # Errors
    /// When there is none of this name and these types; so with all readers.
    pub fn hash<K: Key, V: Value>(&self, table: &str) -> Result<HashReader<K, V>, SlowError> {
        Ok(HashReader::attach(&self.attachment.readable(table, Role::Table)?)?)
    }

    /// An array to read, as [`hash`](Self::hash).
    ///
    /// # Errors
    /// As [`hash`](Self::hash).
    pub fn array<V: Value>(&self, table: &str) -> Result<ArrayReader<V>, SlowError> {
        Ok(ArrayReader::attach(&self.attachment.readable(table, Role::Table)?)?)
    }

    /// A record to read, as [`hash`](Self::hash).
    ///
    /// # Errors
    /// As [`hash`](Self::hash).
    pub fn record<V: Value>(&self, table: &str) -> Result<RecordReader<V>, SlowError> {
        Ok(RecordReader::attach(&self.attachment.readable(table, Role::Table)?)?)
    }

    /// The words that the lanes write for each entry of a table, to read.
    ///
    /// # Errors
    /// When the application has none for this table, or others.
    pub fn state<const W: usize>(&self, table: &str) -> Result<State<W>, SlowError> {
        Ok(State::attach(&self.attachment.readable(table, Role::State)?)?)
    }

    /// The events of a table's entries that must not be lost. Who deals with them is the one who
    /// writes the table.
    ///
    /// # Errors
    /// When the application has none for this table, or another program writes it.
    pub fn pending(&self, table: &str) -> Result<PendingEvents, SlowError> {
        let part = self.attachment.writable(table, Role::Pending)?;
        Ok(PendingEvents::new(Pending::attach(&part)?, Arc::clone(&self.attachment)))
    }

    /// The lanes that must have passed a turn before what a slow path has taken out of its tables
    /// is used for something else, beyond what the writers themselves see to: numbers of its own
    /// that values contain, for example.
    #[must_use]
    pub fn readers(&self) -> Arc<Readers> {
        self.attachment.readers()
    }

    /// Becomes the one who exchanges messages with the lanes. What the one before left unread is
    /// read now.
    ///
    /// # Errors
    /// When the application has no messages, another program has them, or another part of this one
    /// (until it drops them).
    pub fn messages(&self) -> Result<Messages, SlowError> {
        Messages::attach(Arc::clone(&self.attachment))
    }

    /// Replaces the steering rules of a port while it runs; `rules` is a list as the configuration
    /// has it (`[{"udp-port": 2152}]`). Each frame is judged by the old ones or by the new ones.
    ///
    /// # Errors
    /// When they are wrong, or cannot be replaced; then the old ones stay in force.
    pub fn replace_rules(&self, port: &str, rules: &str) -> Result<Replaced, SlowError> {
        let rules =
            serde_json::from_str(rules).map_err(|error| SlowError::Rules(error.to_string()))?;
        Ok(self.client().replace_rules(port, rules)?)
    }
}

#[cfg(test)]
mod tests;
