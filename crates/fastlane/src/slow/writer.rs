//! What a slow path writes.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastlane_table::{EntryId, Pending};

use super::attachment::Attachment;

/// The one writer of a table, for as long as it lives: a
/// [`HashWriter`](fastlane_table::HashWriter), for example, which it derefs to. It holds the
/// attachment.
///
/// A table keeps the capacity that the application was started with (`tables.NAME.capacity`). To
/// change it, write the new one and start the application again: the table then begins empty, and
/// its writer fills it. The lanes read the memory that they began with, so the writer is only lent
/// here, and what would give the table other memory takes the writer itself:
///
/// ```compile_fail,E0507
/// use fastlane::table::HashWriter;
///
/// fn grow(writer: &mut fastlane::slow::Writer<HashWriter<u64, u64>>) {
///     let _ = writer.resize(4096); // the lanes would go on with the old table
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
        self.attachment.unuse(&self.table);
    }
}

/// Events of a table's entries that lanes have raised and this program deals with.
#[derive(Clone, Debug)]
pub struct PendingEvents {
    pending: Pending,
    /// Whoever deals with events has the lease.
    _attachment: Arc<Attachment>,
}

impl PendingEvents {
    pub(super) fn new(pending: Pending, attachment: Arc<Attachment>) -> Self {
        Self { pending, _attachment: attachment }
    }

    /// Calls `visit` for each entry that is pending, with what to give to [`done`](Self::done) once
    /// its events have been dealt with. To be called after an attachment, after a message was lost,
    /// and now and then.
    pub fn scan(&self, visit: impl FnMut(EntryId, u64)) {
        self.pending.scan(visit);
    }

    /// The same for some of the entries: a scan of all, a bit at a time.
    pub fn scan_range(&self, entries: std::ops::Range<usize>, visit: impl FnMut(EntryId, u64)) {
        self.pending.scan_range(entries, visit);
    }

    /// Says that all events of an entry up to `seen` have been dealt with. One that was raised
    /// since keeps it pending.
    pub fn done(&self, entry: EntryId, seen: u64) {
        self.pending.done(entry, seen);
    }
}
