//! Lanes write no cache line in common: not in their counters, not in the tables that they share,
//! and not where small allocations of both are neighbours in the heap.
#![allow(unsafe_code, reason = "an allocator that records the owner of each allocation")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use fastlane_bench::loops::user_plane::Direction;
use fastlane_bench::scenarios::lanes::parallel::Built;
use fastlane_bench::scenarios::upf_lanes::user_plane_lanes::Shared;
use fastlane_core::{App, Lane, LaneConfig, Messages};
use fastlane_table::messages::{Channel, Doorbells, size};
use fastlane_table::{Doorbell, SharedMemory};

const LINE: usize = 64;
/// Maximum number of recorded allocations; more fail the test.
const NOTES: usize = 1 << 14;

/// Recorded allocations: address, size, owner. An address of 0 marks a freed one.
static NOTED: [[AtomicUsize; 3]; NOTES] = [const { [const { AtomicUsize::new(0) }; 3] }; NOTES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Owner of this thread's allocations: each lane of each test has a number, 0 means none.
    static OWNER: Cell<usize> = const { Cell::new(0) };
}

struct Notes;

#[global_allocator]
static ALLOCATOR: Notes = Notes;

// SAFETY: the system allocator allocates and frees all memory, with the same layout.
unsafe impl GlobalAlloc for Notes {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees are passed on.
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
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Returns the heap cache lines that contain allocations of both owners, with their content.
fn shared_lines(owners: [usize; 2]) -> BTreeMap<usize, [u8; LINE]> {
    assert!(NEXT.load(Ordering::Relaxed) < NOTES, "too many allocations");
    let mut lines = [BTreeSet::new(), BTreeSet::new()];
    for note in &NOTED {
        let [start, size, owner] = [0, 1, 2].map(|field| note[field].load(Ordering::Acquire));
        let place = owners.iter().position(|one| *one == owner);
        if let (Some(place), true) = (place, start > 0 && size > 0) {
            lines[place].extend(start / LINE..=(start + size - 1) / LINE);
        }
    }
    let shared = lines[0].intersection(&lines[1]);
    // SAFETY: each line lies in mapped pages of the heap and contains live allocations. The lanes
    // are paused, so no thread writes.
    let content = |line: usize| unsafe { std::ptr::read((line * LINE) as *const [u8; LINE]) };
    shared.map(|&line| (line * LINE, content(line))).collect()
}

/// Returns the allocations in a cache line: owner, address and size.
fn allocations_in(line: usize) -> Vec<[usize; 3]> {
    let of = |note: &[AtomicUsize; 3]| {
        let [start, size, owner] = [0, 1, 2].map(|field| note[field].load(Ordering::Acquire));
        (start < line + LINE && start + size > line && start > 0).then_some([owner, start, size])
    };
    NOTED.iter().filter_map(of).collect()
}

/// Lane in its own thread that runs turns on request.
struct Turning {
    orders: Sender<u64>,
    done: Receiver<usize>,
}

impl Turning {
    fn start<A: App + Send + 'static>(owner: usize, parts: LaneConfig, app: A) -> Self {
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

/// Returns the content of shared memory.
fn content(memory: &SharedMemory) -> Vec<u8> {
    let descriptor = memory.as_fd().as_raw_fd();
    std::fs::read(format!("/proc/self/fd/{descriptor}")).unwrap()
}

/// Cache lines that a lane writes during its turns, by name of the memory.
type Written = BTreeMap<&'static str, BTreeSet<usize>>;

/// Runs the turns of one lane after the other and returns the written lines. Checks that neither
/// lane writes heap lines with allocations of the other, nor shared lines that the other writes.
fn written(
    lanes: &[(usize, Turning); 2],
    memories: &BTreeMap<&'static str, Arc<SharedMemory>>,
) -> [Written; 2] {
    let owners = [lanes[0].0, lanes[1].0];
    // The first turns may do work that is done only once.
    for (_, lane) in lanes {
        assert!(lane.turn(100) > 0);
    }
    let written = [0, 1].map(|number| {
        let heap = shared_lines(owners);
        let before: Vec<_> = memories.values().map(|memory| content(memory)).collect();
        assert!(lanes[number].1.turn(10_000) > 0, "lane {number} has nothing to do");
        let heap_now = shared_lines(owners);
        let changed: Vec<_> =
            heap.iter().filter(|(at, was)| heap_now.get(at) != Some(was)).collect();
        let there: Vec<_> = changed.iter().map(|(at, _)| allocations_in(**at)).collect();
        assert!(
            changed.is_empty(),
            "lane {number} writes where the other has memory: {changed:x?}, with {there:x?}"
        );
        let changed = |((name, memory), before): ((&&'static str, &Arc<SharedMemory>), Vec<u8>)| {
            let now = content(memory);
            if before == now {
                return (*name, BTreeSet::new());
            }
            let lines = before.chunks(LINE).zip(now.chunks(LINE)).enumerate();
            (*name, lines.filter(|(_, (was, is))| was != is).map(|(line, _)| line).collect())
        };
        memories.iter().zip(before).map(changed).collect::<Written>()
    });
    for (name, lines) in &written[0] {
        let both: Vec<_> = lines.intersection(&written[1][name]).collect();
        assert!(both.is_empty(), "lines of {name} that both lanes write: {both:?}");
    }
    written
}

#[test]
fn lanes_write_no_line_in_common() {
    let mut built = Built::begin(2).unwrap();
    for owner in [1, 2] {
        OWNER.set(owner);
        built.memory().unwrap();
        OWNER.set(0);
    }
    let counters = built.counters.memory().as_fd().try_clone_to_owned().unwrap();
    let counters = Arc::new(SharedMemory::attach_read_only(counters).unwrap());
    let mut owner = 0;
    let lanes: Vec<_> = built
        .lanes
        .drain(..)
        .map(|(parts, app)| {
            owner += 1;
            (owner, Turning::start(owner, parts, app))
        })
        .collect();
    let lanes = lanes.try_into().unwrap_or_else(|_| panic!("two lanes"));
    for written in written(&lanes, &BTreeMap::from([("counters", counters)])) {
        assert!(!written["counters"].is_empty(), "a lane counts nothing");
    }
}

/// Octets after which the URR of a session reports: the lane raises an event and sends a message.
const THRESHOLD: u64 = 10_000;
/// Number of sessions of each lane.
const SESSIONS: u32 = 256;
/// Size of the message ring in each direction, in bytes.
const RING: usize = 1 << 18;

fn user_planes_write_no_line_in_common(direction: Direction, first_owner: usize) {
    let shared = Shared::new(2, SESSIONS, THRESHOLD).unwrap();
    let rings = Arc::new(SharedMemory::create("cache-lines", size(2, RING)).unwrap());
    let slow = Doorbell::create().unwrap();
    let lanes = [0, 1].map(|number| {
        let packets = Box::leak(Box::new(shared.packets(number, direction)));
        let owner = first_owner + number;
        OWNER.set(owner);
        let (mut parts, app) = shared.forwarding(packets).unwrap();
        let bells =
            Doorbells { lane: Doorbell::create().unwrap(), slow: slow.try_clone().unwrap() };
        let channel = Channel::create(&rings, number, RING, bells).unwrap();
        parts.messages = Some(Messages::new(channel, number as u16));
        OWNER.set(0);
        (owner, Turning::start(owner, parts, app))
    });
    let mut memories = shared.memories().unwrap();
    let counters = shared.counters().memory().as_fd().try_clone_to_owned().unwrap();
    memories.insert("counters", Arc::new(SharedMemory::attach_read_only(counters).unwrap()));
    memories.insert("messages", rings);

    for (number, written) in written(&lanes, &memories).iter().enumerate() {
        // Only the control plane writes tables; lanes write counters, state and messages.
        for (name, lines) in written {
            let is_lanes = ["counters", "state", "events", "causes", "messages"].contains(name);
            assert_eq!(!lines.is_empty(), is_lanes, "lane {number}: {lines:?} of {name}");
        }
        // After the header page there is one cache line per session, written only by its lane.
        let sessions = written["state"].iter().map(|line| (line - 4096 / LINE) as u32);
        let sessions: Vec<u32> = sessions.collect();
        assert_eq!(sessions.len(), SESSIONS as usize, "lane {number}");
        assert!(sessions.iter().all(|session| shared.owner(*session) == number), "{sessions:?}");
    }
    shared.all_forwarded().unwrap();
}

#[test]
fn user_planes_write_no_line_in_common_from_users() {
    user_planes_write_no_line_in_common(Direction::Uplink, 3);
}

#[test]
fn user_planes_write_no_line_in_common_to_users() {
    user_planes_write_no_line_in_common(Direction::Downlink, 5);
}
