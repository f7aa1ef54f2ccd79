//! The client's side: the packets of all lanes in the order of their times.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fastlane_capture::Record;
use fastlane_core::now;
use fastlane_table::SharedMemory;
use fastlane_table::journal::JournalReader;

/// How long a packet waits for earlier ones of other lanes, in nanoseconds: longer than turns take.
const DELAY: u64 = 20_000_000;
/// The most records that are read from a ring before another ring's turn.
const SHARE: usize = 4096;
/// The most that are read from a ring at the end.
const LAST_SHARE: usize = 1 << 24;

/// The packets that an application copies.
#[derive(Debug)]
pub struct CaptureStream {
    lanes: Vec<LaneCopies>,
    waiting: Vec<Waiting>,
    /// The bytes of what waits.
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct LaneCopies {
    lane: usize,
    ring: JournalReader,
}

/// A record that waits for its time.
#[derive(Debug)]
struct Waiting {
    time: u64,
    lane: usize,
    /// Where it lies in the bytes.
    place: Range<usize>,
}

/// A captured packet and its lane.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPacket<'a> {
    /// The lane.
    pub lane: usize,
    /// The packet.
    pub record: Record<'a>,
}

/// A ring that does not hold what a lane writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring of lane {lane} is damaged; use programs of one release")]
pub struct Damaged {
    /// Whose it is.
    pub lane: usize,
}

impl CaptureStream {
    /// Attaches to the rings of these lanes.
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

    /// Whether all lanes have begun: one that sleeps does so when it wakes, at most 100 ms later.
    #[must_use]
    pub fn have_started(&self) -> bool {
        self.lanes.iter().all(|lane| lane.ring.has_started())
    }

    /// How many packets were not captured so far, because a ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ring.lost()).fold(0, u64::wrapping_add)
    }

    /// Reads what there is, and shows what need not wait any longer to `show`, in the order of
    /// time; at the `end` all of it. Returns how many records were read: with 0 there is time to
    /// rest.
    ///
    /// # Errors
    /// What `show` says; and when a ring is damaged.
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
            // What is newer than this call could go on for ever.
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
                limit = limit.min(time); // what is later must wait for what it still holds
            }
        }
        self.waiting.sort_by_key(|waiting| waiting.time); // stable: a lane's own order stays
        let ready = self.waiting.partition_point(|waiting| waiting.time <= limit);
        for Waiting { lane, place, .. } in self.waiting.drain(..ready) {
            if let Some(record) = self.bytes.get(place).and_then(Record::read) {
                show(CapturedPacket { lane, record })?;
            }
        }
        self.compact();
        Ok(count)
    }

    /// Forgets the bytes of what no longer waits.
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
