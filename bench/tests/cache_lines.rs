//! Lanes write no cache line in common: not in their counters, and not where small things of both
//! happen to lie side by side in the heap.
#![allow(unsafe_code, reason = "an allocator that notes whose memory is where")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use fastlane_bench::application::Filled;
use fastlane_bench::lanes::Built;
use fastlane_core::{Lane, LaneParts};

const LINE: usize = 64;
/// Memory that is noted at most; more is an error of the test.
const NOTES: usize = 1 << 14;

/// Who owns what: address, size, owner. An address of 0 is no note any more.
static NOTED: [[AtomicUsize; 3]; NOTES] = [const { [const { AtomicUsize::new(0) }; 3] }; NOTES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// For whom this thread allocates: 1 and 2 are lanes, 0 is nobody.
    static OWNER: Cell<usize> = const { Cell::new(0) };
}

struct Notes;

#[global_allocator]
static ALLOCATOR: Notes = Notes;

// SAFETY: all memory comes from and goes to the system's allocator, with the same layout.
unsafe impl GlobalAlloc for Notes {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        let memory = unsafe { System.alloc(layout) };
        let owner = OWNER.try_with(Cell::get).unwrap_or(0);
        if owner > 0 {
            let place = NEXT.fetch_add(1, Ordering::Relaxed);
            if let Some(note) = NOTED.get(place) {
                note[1].store(layout.size(), Ordering::Relaxed);
                note[2].store(owner, Ordering::Relaxed);
                note[0].store(memory as usize, Ordering::Release);
            }
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let noted = NOTED.iter().take(NEXT.load(Ordering::Relaxed));
        for note in noted.filter(|note| note[0].load(Ordering::Relaxed) == memory as usize) {
            note[0].store(0, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Lines of the heap in which something of each lane lies, with what they hold.
fn shared_lines() -> BTreeMap<usize, [u8; LINE]> {
    assert!(NEXT.load(Ordering::Relaxed) < NOTES, "more memory than can be noted");
    let mut lines = [BTreeSet::new(), BTreeSet::new()];
    for note in &NOTED {
        let [start, size, owner] = [0, 1, 2].map(|field| note[field].load(Ordering::Acquire));
        if start > 0 && size > 0 {
            lines[owner - 1].extend(start / LINE..=(start + size - 1) / LINE);
        }
    }
    let shared = lines[0].intersection(&lines[1]);
    // SAFETY: each line holds live memory of the heap, whose pages are mapped whole; the lanes wait
    // meanwhile, so nobody writes.
    let content = |line: usize| unsafe { std::ptr::read((line * LINE) as *const [u8; LINE]) };
    shared.map(|&line| (line * LINE, content(line))).collect()
}

/// A lane in a thread of its own, which turns when it is told to.
struct Turning {
    orders: Sender<u64>,
    done: Receiver<usize>,
}

impl Turning {
    fn start(owner: usize, (parts, app): (LaneParts, Filled)) -> Self {
        let (orders, inbox) = channel();
        let (outbox, done) = channel();
        std::thread::spawn(move || {
            OWNER.set(owner);
            let mut lane = Lane::new(app, parts);
            OWNER.set(0);
            for turns in inbox {
                let work = (0..turns).map(|_| lane.turn()).sum();
                outbox.send(work).unwrap();
            }
            lane.close();
        });
        Self { orders, done }
    }

    fn turn(&self, turns: u64) -> usize {
        self.orders.send(turns).unwrap();
        self.done.recv().unwrap()
    }
}

#[test]
fn lanes_write_no_line_in_common() {
    let mut built = Built::begin(2).unwrap();
    for owner in [1, 2] {
        OWNER.set(owner);
        built.memory().unwrap();
        OWNER.set(0);
    }
    let counters = built.counters.memory().as_fd().as_raw_fd();
    let counters = || std::fs::read(format!("/proc/self/fd/{counters}")).unwrap();
    let lanes: Vec<Turning> = built
        .lanes
        .drain(..)
        .enumerate()
        .map(|(number, lane)| Turning::start(number + 1, lane))
        .collect();
    // The first turns may do things that are done once.
    for lane in &lanes {
        assert!(lane.turn(100) > 0);
    }

    let mut written = Vec::new();
    for (number, lane) in lanes.iter().enumerate() {
        let (heap, words) = (shared_lines(), counters());
        assert!(lane.turn(10_000) > 0, "lane {number} has nothing to do");
        let (heap_now, words_now) = (shared_lines(), counters());
        let changed: Vec<_> =
            heap.iter().filter(|(at, was)| heap_now.get(at) != Some(was)).collect();
        assert!(
            changed.is_empty(),
            "lane {number} writes where the other has memory: {changed:x?}"
        );
        let lines = words.chunks(LINE).zip(words_now.chunks(LINE)).enumerate();
        let changed: BTreeSet<usize> =
            lines.filter(|(_, (was, is))| was != is).map(|(line, _)| line).collect();
        assert!(!changed.is_empty(), "lane {number} counts nothing");
        written.push(changed);
    }
    let both: Vec<_> = written[0].intersection(&written[1]).collect();
    assert!(both.is_empty(), "lines of the counters that both lanes write: {both:?}");
}
