//! Model of the protocol by which a slot is published, released and reused, in every order that
//! Rust's memory model allows (as far as loom models it).
//!
//! One lane, one writer, two slots: the smallest case with reuse. The orderings are those of
//! `slots.rs`, `array.rs`, `readers.rs` and `LaneCounters::publish`. A fence follows every second
//! turn here, not every sixteenth. Slots are loom cells: reading one while it is written, or
//! without synchronization with the write, is an error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

/// Step that is left out of the protocol, to check that the model notices.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// Fence of the lane after a turn number.
    LaneFence,
    /// Fence of the writer before it reads the turn number.
    WriterFence,
    /// Fence of the lane when it wakes.
    WakeFence,
    /// Release ordering when the slot reference is published.
    Release,
    /// Grace period.
    Grace,
}

const FENCE_TURNS: u64 = 2;

struct Shared {
    slots: [UnsafeCell<u32>; 2],
    place: AtomicU32,
    turn: AtomicU64,
    asleep: AtomicU64,
}

// SAFETY is loom's: it fails the test when two threads use a cell at once.
#[allow(unsafe_code, reason = "loom's cells check what they are used for")]
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Self {
        Self {
            slots: [UnsafeCell::new(10), UnsafeCell::new(0)],
            place: AtomicU32::new(1),
            turn: AtomicU64::new(FENCE_TURNS - 1),
            asleep: AtomicU64::new(0),
        }
    }

    #[allow(unsafe_code, reason = "loom's cells check what they are used for")]
    fn write(&self, slot: usize, value: u32) {
        // SAFETY: loom fails the test if another thread reads it.
        self.slots[slot].with_mut(|cell| unsafe { *cell = value });
    }

    /// Reads as `ArrayReader::get` does. The value is read twice, as an application may in its
    /// turn.
    #[allow(unsafe_code, reason = "loom's cells check what they are used for")]
    fn read(&self) -> u32 {
        let place = self.place.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let cell = &self.slots[place as usize - 1];
        // SAFETY: loom fails the test if another thread writes it.
        cell.with(|cell| unsafe { *cell })
    }

    /// Publishes the turn as `LaneCounters::publish` does.
    fn pass(&self, turn: u64, without: Without) {
        self.turn.store(turn, Ordering::Release);
        if turn.is_multiple_of(FENCE_TURNS) && without != Without::LaneFence {
            fence(Ordering::SeqCst);
        }
    }

    /// Returns true if the lane has passed, as `Readers::laggard` decides for one lane.
    fn has_passed(&self, then: u64) -> bool {
        fence(Ordering::SeqCst);
        let turn = self.turn.load(Ordering::Relaxed);
        let asleep = self.asleep.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        turn / FENCE_TURNS > then / FENCE_TURNS || asleep == 1
    }

    /// Writes twice, as `ArrayWriter::set` does. The second write reuses the first slot if the lane
    /// has passed.
    fn set_twice(&self, without: Without) {
        self.write(1, 20);
        let release =
            if without == Without::Release { Ordering::Relaxed } else { Ordering::Release };
        self.place.store(2, release);
        if without != Without::WriterFence {
            fence(Ordering::SeqCst);
        }
        let then = self.turn.load(Ordering::Acquire);
        if without == Without::Grace || self.has_passed(then) {
            self.write(0, 30);
            self.place.store(1, Ordering::Release);
        }
    }
}

/// Runs a lane of three turns that reads in each of them.
fn turns(without: Without) {
    loom::model(move || {
        let shared = Arc::new(Shared::new());
        let lane = Arc::clone(&shared);
        let lane = thread::spawn(move || {
            let mut last = 0;
            for turn in FENCE_TURNS..FENCE_TURNS + 3 {
                let value = lane.read();
                assert!([10, 20, 30].contains(&value) && value >= last, "{value} after {last}");
                last = value;
                lane.pass(turn, without);
            }
        });
        shared.set_twice(without);
        lane.join().unwrap();
    });
}

/// Runs a lane that reads, sleeps, wakes and reads.
fn sleep(without: Without) {
    loom::model(move || {
        let shared = Arc::new(Shared::new());
        let lane = Arc::clone(&shared);
        let lane = thread::spawn(move || {
            let before = lane.read();
            lane.asleep.store(1, Ordering::Release);
            lane.asleep.store(0, Ordering::Release);
            if without != Without::WakeFence {
                fence(Ordering::SeqCst);
            }
            assert!(lane.read() >= before);
        });
        shared.set_twice(without);
        lane.join().unwrap();
    });
}

fn fails(model: fn(Without), without: Without) -> bool {
    catch_unwind(AssertUnwindSafe(|| model(without))).is_err()
}

#[test]
fn a_slot_is_used_again_when_no_lane_has_it() {
    turns(Without::Nothing);
    sleep(Without::Nothing);
}

#[test]
fn the_model_notices_what_is_left_out() {
    assert!(fails(turns, Without::Release), "publishing without release");
    assert!(fails(turns, Without::Grace), "using a slot again at once");
    assert!(fails(turns, Without::WriterFence), "a writer that does not fence");
    assert!(fails(turns, Without::LaneFence), "a lane that does not fence");
    assert!(fails(sleep, Without::WakeFence), "a lane that wakes and does not fence");
}
