//! Lanes write no cache line in common: not in their counters, not in the tables that they share,
//! and not where small things of both happen to lie side by side in the heap.
#![allow(unsafe_code, reason = "an allocator that notes whose memory is where")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use fastlane_bench::scenarios::lanes::parallel::Built;
use fastlane_bench::scenarios::upf::user_plane::Direction;
use fastlane_bench::scenarios::upf_lanes::user_plane_lanes::Shared;
use fastlane_core::{App, Lane, LaneConfig, Messages};
use fastlane_table::messages::{Channel, Doorbells, size};
use fastlane_table::{Doorbell, SharedMemory};

const LINE: usize = 64;
/// Memory that is noted at most; more is an error of the test.
const NOTES: usize = 1 << 14;

/// Who owns what: address, size, owner. An address of 0 is no note any more.
static NOTED: [[AtomicUsize; 3]; NOTES] = [const { [const { AtomicUsize::new(0) }; 3] }; NOTES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// For whom this thread allocates: each lane of each test has a number, 0 is nobody.
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

/// Lines of the heap in which something of each of two owners lies, with what they hold.
fn shared_lines(owners: [usize; 2]) -> BTreeMap<usize, [u8; LINE]> {
    assert!(NEXT.load(Ordering::Relaxed) < NOTES, "more memory than can be noted");
    let mut lines = [BTreeSet::new(), BTreeSet::new()];
    for note in &NOTED {
        let [start, size, owner] = [0, 1, 2].map(|field| note[field].load(Ordering::Acquire));
        let place = owners.iter().position(|one| *one == owner);
        if let (Some(place), true) = (place, start > 0 && size > 0) {
            lines[place].extend(start / LINE..=(start + size - 1) / LINE);
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
    fn start<A: App + Send + 'static>(owner: usize, (parts, app): (LaneConfig, A)) -> Self {
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

/// What a memory holds that several lanes share.
fn content(memory: &SharedMemory) -> Vec<u8> {
    let descriptor = memory.as_fd().as_raw_fd();
    std::fs::read(format!("/proc/self/fd/{descriptor}")).unwrap()
}

/// What each of two lanes writes when it turns: by memory, the lines that are others afterwards.
type Written = BTreeMap<&'static str, BTreeSet<usize>>;

/// Lets one lane turn after the other; neither may write where the other has memory in the heap,
/// nor, in the shared memories, a line that the other writes.
fn written(
    lanes: &[(usize, Turning); 2],
    memories: &BTreeMap<&'static str, Arc<SharedMemory>>,
) -> [Written; 2] {
    let owners = [lanes[0].0, lanes[1].0];
    // The first turns may do things that are done once.
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
        assert!(
            changed.is_empty(),
            "lane {number} writes where the other has memory: {changed:x?}"
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
        .map(|lane| {
            owner += 1;
            (owner, Turning::start(owner, lane))
        })
        .collect();
    let lanes = lanes.try_into().unwrap_or_else(|_| panic!("two lanes"));
    for written in written(&lanes, &BTreeMap::from([("counters", counters)])) {
        assert!(!written["counters"].is_empty(), "a lane counts nothing");
    }
}

/// Octets after which a session's URR reports: its lane raises an event and says so.
const THRESHOLD: u64 = 10_000;
/// Sessions of each lane.
const SESSIONS: u32 = 256;
/// Bytes of messages in each direction.
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
        (owner, Turning::start(owner, (parts, app)))
    });
    let mut memories = shared.memories().unwrap();
    let counters = shared.counters().memory().as_fd().try_clone_to_owned().unwrap();
    memories.insert("counters", Arc::new(SharedMemory::attach_read_only(counters).unwrap()));
    memories.insert("messages", rings);

    for (number, written) in written(&lanes, &memories).iter().enumerate() {
        // Tables are the slow half's; what a lane says is said.
        for (name, lines) in written {
            let is_lanes = ["counters", "state", "events", "causes", "messages"].contains(name);
            assert_eq!(!lines.is_empty(), is_lanes, "lane {number}: {lines:?} of {name}");
        }
        // Behind the page of the header: a line for each session, which its lane alone writes.
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
