//! Writers of a slow path: tables and acknowledgements of pending events.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastlane_table::{EntryId, Pending};

use super::attachment::Attachment;

/// The only writer of a table, for as long as it lives. It dereferences to the writer itself, for
/// example [`HashWriter`](fastlane_table::HashWriter), and keeps the attachment open.
///
/// The capacity of a table is fixed when the application starts (`tables.NAME.capacity`). To change
/// it, edit the configuration and restart the application; the table is then empty. Methods that
/// would replace the memory take the writer by value and cannot be called here, since the lanes
/// would continue to read the old memory:
///
/// ```compile_fail,E0507
/// use fastlane::table::HashWriter;
///
/// fn grow(writer: &mut fastlane::slow::Writer<HashWriter<u64, u64>>) {
///     let _ = writer.resize(4096); // the lanes would still read the old table
/// }
/// ```
#[derive(Debug)]
pub struct Writer<W> {
    writer: W,
    table: String,
    attachment: Arc<Attachment>,
}

impl<W> Writer<W> {
    pub(super) fn new(writer: W, table: &str, attachment: Arc<Attachment>) -> Self {
        Self { writer, table: table.to_owned(), attachment }
    }
}

impl<W> Deref for Writer<W> {
    type Target = W;

    fn deref(&self) -> &W {
        &self.writer
    }
}

impl<W> DerefMut for Writer<W> {
    fn deref_mut(&mut self) -> &mut W {
        &mut self.writer
    }
}

impl<W> Drop for Writer<W> {
    fn drop(&mut self) {
        self.attachment.release(&self.table);
    }
}

/// Pending events of a table's entries: raised by lanes, acknowledged by this program.
#[derive(Clone, Debug)]
pub struct PendingEvents {
    pending: Pending,
    /// Holds the lease of the table.
    _attachment: Arc<Attachment>,
}

impl PendingEvents {
    pub(super) fn new(pending: Pending, attachment: Arc<Attachment>) -> Self {
        Self { pending, _attachment: attachment }
    }

    /// Calls `visit` for each pending entry, with the number to pass to [`done`](Self::done) once
    /// the events are handled. Call it after attaching, after a message was lost, and periodically.
    pub fn scan(&self, visit: impl FnMut(EntryId, u64)) {
        self.pending.scan(visit);
    }

    /// Scans a range of entries, to split a scan of the whole table into steps.
    pub fn scan_range(&self, entries: std::ops::Range<usize>, visit: impl FnMut(EntryId, u64)) {
        self.pending.scan_range(entries, visit);
    }

    /// Acknowledges all events of an entry up to `seen`. An event raised since keeps the entry
    /// pending.
    pub fn done(&self, entry: EntryId, seen: u64) {
        self.pending.done(entry, seen);
    }
}
