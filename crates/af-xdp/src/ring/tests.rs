use std::cell::RefCell;
use std::rc::Rc;

use super::*;

/// A ring in plain memory, seen from both ends.
#[derive(Clone)]
struct Plain(Rc<State>);

struct State {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    entries: RefCell<Vec<u64>>,
}

impl Plain {
    /// Creates a ring whose indices both begin at `count`.
    fn new(size: usize, count: u32) -> Self {
        Self(Rc::new(State {
            producer: AtomicU32::new(count),
            consumer: AtomicU32::new(count),
            flags: AtomicU32::new(0),
            entries: RefCell::new(vec![u64::MAX; size]),
        }))
    }
}

impl Memory for Plain {
    type Entry = u64;
    fn size(&self) -> u32 {
        self.0.entries.borrow().len() as u32
    }
    fn producer(&self) -> &AtomicU32 {
        &self.0.producer
    }
    fn consumer(&self) -> &AtomicU32 {
        &self.0.consumer
    }
    fn flags(&self) -> &AtomicU32 {
        &self.0.flags
    }
    fn read(&self, index: u32) -> u64 {
        self.0.entries.borrow()[(index & (self.size() - 1)) as usize]
    }
    fn write(&mut self, index: u32, entry: u64) {
        let slot = (index & (self.size() - 1)) as usize;
        self.0.entries.borrow_mut()[slot] = entry;
    }
}

fn ends(size: usize, count: u32) -> (Producer<Plain>, Consumer<Plain>, Plain) {
    let ring = Plain::new(size, count);
    (Producer::new(ring.clone()), Consumer::new(ring.clone()), ring)
}

#[test]
fn what_goes_in_comes_out_in_order_across_the_wrap() {
    let (mut producer, mut consumer, _) = ends(8, u32::MAX - 3);
    let mut next = 0;
    for round in 0..40 {
        let count = 1 + round % 8;
        assert!(producer.free(count) >= count);
        for entry in next..next + u64::from(count) {
            assert!(producer.push(entry));
        }
        producer.submit();
        assert_eq!(producer.pending(), count);
        assert_eq!(consumer.available(8), count);
        for entry in next..next + u64::from(count) {
            assert_eq!(consumer.pop(), Some(entry));
        }
        assert_eq!(consumer.pop(), None);
        consumer.release();
        assert_eq!(producer.pending(), 0);
        next += u64::from(count);
    }
}

#[test]
fn a_full_ring_takes_no_more_until_entries_are_released() {
    let (mut producer, mut consumer, _) = ends(4, 0);
    (0..4).for_each(|entry| assert!(producer.push(entry)));
    assert!(!producer.push(4));
    assert_eq!(producer.free(1), 0);
    producer.submit();
    assert_eq!(consumer.pop(), Some(0));
    assert!(!producer.push(4), "read, but its slot not released");
    consumer.release();
    assert!(producer.push(4));
    assert!(!producer.push(5));
}

#[test]
fn entries_are_seen_only_when_submitted() {
    let (mut producer, mut consumer, _) = ends(4, 7);
    assert!(producer.push(1));
    assert_eq!(consumer.available(1), 0);
    producer.submit();
    assert_eq!((consumer.available(1), consumer.pop()), (1, Some(1)));
}

#[test]
fn a_count_beyond_the_ring_yields_nothing() {
    let (_, mut consumer, ring) = ends(4, 100);
    for hostile in [105, 100 + (1 << 31), 99, 0, u32::MAX] {
        ring.0.producer.store(hostile, Ordering::Relaxed);
        assert_eq!((consumer.available(4), consumer.pop()), (0, None), "producer {hostile}");
    }
    ring.0.producer.store(104, Ordering::Relaxed);
    assert_eq!(consumer.available(4), 4);
}

#[test]
fn a_consumer_ahead_of_its_producer_makes_no_space() {
    let (mut producer, _, ring) = ends(4, 100);
    (0..4).for_each(|entry| assert!(producer.push(entry)));
    for hostile in [105, 99, 0, u32::MAX, 100 + (1 << 31)] {
        ring.0.consumer.store(hostile, Ordering::Relaxed);
        assert_eq!(producer.free(4), 0, "consumer {hostile}");
        assert!(!producer.push(9));
    }
    ring.0.consumer.store(104, Ordering::Relaxed);
    assert_eq!(producer.free(4), 4);
}

#[test]
fn the_kernel_asks_to_be_called() {
    let (producer, _, ring) = ends(4, 0);
    assert!(!producer.needs_wakeup());
    ring.0.flags.store(NEED_WAKEUP, Ordering::Relaxed);
    assert!(producer.needs_wakeup());
}

#[test]
fn a_successor_sees_what_was_submitted_and_not_taken() {
    let (mut producer, mut consumer, ring) = ends(8, u32::MAX - 2);
    (0..6).for_each(|entry| assert!(producer.push(entry)));
    producer.submit();
    assert_eq!((consumer.pop(), consumer.pop()), (Some(0), Some(1)));
    consumer.release();
    // Both die with work half done.
    assert!(producer.push(6));
    assert_eq!(consumer.pop(), Some(2));
    let (mut producer, mut consumer) = (Producer::new(ring.clone()), Consumer::new(ring.clone()));
    assert_eq!(producer.waiting(), Some(vec![2, 3, 4, 5]));
    assert_eq!(consumer.waiting(), Some(vec![2, 3, 4, 5]));
    assert_eq!((producer.consumed(), consumer.produced()), (u32::MAX, 3));
    assert_eq!(consumer.pop(), Some(2));
    assert_eq!(consumer.skip(), Some(3));
    assert_eq!((consumer.pop(), producer.pending()), (None, 0));
}

#[test]
fn a_successor_does_not_believe_a_count_beyond_the_ring() {
    let (_, _, ring) = ends(4, 100);
    for hostile in [105, 99, 0, u32::MAX, 100 + (1 << 31)] {
        ring.0.producer.store(hostile, Ordering::Relaxed);
        let (mut producer, mut consumer) =
            (Producer::new(ring.clone()), Consumer::new(ring.clone()));
        assert_eq!((producer.waiting(), consumer.waiting()), (None, None), "{hostile}");
        assert_eq!(consumer.skip(), None, "{hostile}");
    }
    assert_eq!(ring.0.consumer.load(Ordering::Relaxed), 100);
}
