//! Client side of a capture: merges the rings of all lanes in the order of time.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fastlane_capture::Record;
use fastlane_core::now;
use fastlane_table::SharedMemory;
use fastlane_table::journal::JournalReader;

/// Time that a packet waits for earlier ones of other lanes, in nanoseconds: longer than a turn.
const DELAY: u64 = 20_000_000;
/// Maximum number of records read from a ring before the next ring.
const SHARE: usize = 4096;
/// Maximum number of records read from a ring at the end of a capture.
const LAST_SHARE: usize = 1 << 24;

/// Stream of captured packets.
#[derive(Debug)]
pub struct CaptureStream {
    lanes: Vec<LaneCopies>,
    waiting: Vec<Waiting>,
    /// Bytes of the waiting records.
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct LaneCopies {
    lane: usize,
    ring: JournalReader,
}

/// Record that waits for earlier ones of other lanes.
#[derive(Debug)]
struct Waiting {
    time: u64,
    lane: usize,
    /// Its range in the bytes.
    place: Range<usize>,
}

/// Captured packet and its lane.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPacket<'a> {
    /// Number of the lane.
    pub lane: usize,
    /// Record of the packet.
    pub record: Record<'a>,
}

/// Error of a ring that violates the record format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring of lane {lane} is damaged; use programs of one release")]
pub struct Damaged {
    /// Number of the lane.
    pub lane: usize,
}

impl CaptureStream {
    /// Maps the rings of these lanes.
    pub(crate) fn attach(memory: OwnedFd, lanes: &[usize]) -> Result<Self, String> {
        let memory = SharedMemory::attach_writable(memory).map_err(|error| error.to_string())?;
        let memory = Arc::new(memory);
        let rings = lanes.iter().enumerate().map(|(number, lane)| {
            let ring = JournalReader::attach(&memory, number);
            let ring = ring.map_err(|error| format!("lane {lane}: {error}"))?;
            Ok(LaneCopies { lane: *lane, ring })
        });
        let lanes = rings.collect::<Result<_, String>>()?;
        Ok(Self { lanes, waiting: Vec::new(), bytes: Vec::new() })
    }

    /// Returns true if all lanes capture. A sleeping lane starts when it wakes, at most 100 ms
    /// later.
    #[must_use]
    pub fn have_started(&self) -> bool {
        self.lanes.iter().all(|lane| lane.ring.has_started())
    }

    /// Returns the number of packets lost because a ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ring.lost()).fold(0, u64::wrapping_add)
    }

    /// Reads new records and passes those that need not wait any longer to `show`, in the order of
    /// time. With `end` all remaining ones are passed. Returns the number of records read; 0 means
    /// that the caller may sleep.
    ///
    /// # Errors
    /// The error of `show`, or a damaged ring.
    pub fn read<E: From<Damaged>>(
        &mut self,
        end: bool,
        mut show: impl FnMut(CapturedPacket<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let now = now();
        let mut limit = if end || self.lanes.len() == 1 { now } else { now - DELAY };
        let share = if end { LAST_SHARE } else { SHARE };
        let (mut count, mut record) = (0, Vec::new());
        for LaneCopies { lane, ring } in &mut self.lanes {
            let damaged = || Damaged { lane: *lane };
            let (mut read, mut time) = (0, 0);
            // Records newer than this call could keep the loop running forever.
            while read < share && time < now && ring.next(&mut record).map_err(|_| damaged())? {
                time = Record::read(&record).ok_or_else(damaged)?.time.min(now);
                let place = self.bytes.len()..self.bytes.len() + record.len();
                self.bytes.extend_from_slice(&record);
                self.waiting.push(Waiting { time, lane: *lane, place });
                read += 1;
            }
            ring.release();
            count += read;
            if read == share {
                limit = limit.min(time); // later records must wait for those still in this ring
            }
        }
        // The sort is stable, so each lane's order is preserved.
        self.waiting.sort_by_key(|waiting| waiting.time);
        let ready = self.waiting.partition_point(|waiting| waiting.time <= limit);
        for Waiting { lane, place, .. } in self.waiting.drain(..ready) {
            if let Some(record) = self.bytes.get(place).and_then(Record::read) {
                show(CapturedPacket { lane, record })?;
            }
        }
        self.compact();
        Ok(count)
    }

    /// Removes the bytes of records that were passed on.
    fn compact(&mut self) {
        let mut left = Vec::new();
        for waiting in &mut self.waiting {
            let start = left.len();
            left.extend_from_slice(&self.bytes[waiting.place.clone()]);
            waiting.place = start..left.len();
        }
        if left.is_empty() {
            self.bytes.clear();
        } else {
            self.bytes = left;
        }
    }
}
