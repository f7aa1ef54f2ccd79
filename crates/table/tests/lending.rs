//! Values are lent to a lane while a writer replaces them and reuses their slots. Small enough for
//! Miri (`make miri`), which sees every access that races with a borrow.
#![allow(unsafe_code, reason = "guards: the lane of this test publishes its turns")]

use std::sync::{Arc, mpsc};

use fastlane_table::counters::{Counters, FENCE_TURNS, LaneCounter};
use fastlane_table::{
    ArrayReader, ArrayWriter, Guard, HashReader, HashWriter, Readers, RecordReader, RecordWriter,
    Spec, TableError,
};

type Value = [u64; 3];

const CAPACITY: usize = 4;
/// More than a table has slots.
const MANY: u64 = 200;

/// Writes until the lane holds up the reuse of slots.
fn write_all(mut write: impl FnMut(&Value) -> Result<(), TableError>) {
    let refused = (1000..1000 + MANY).find_map(|number| write(&[number; 3]).err());
    assert!(matches!(refused, Some(TableError::Stalled { .. })), "{refused:?}");
}

#[test]
fn what_a_lane_has_borrowed_is_not_written() {
    let memories = [
        Spec::hash::<u32, Value>("hash", CAPACITY).create().unwrap(),
        Spec::array::<Value>("array", CAPACITY).create().unwrap(),
        Spec::record::<Value>("record").create().unwrap(),
    ];
    let counters = Counters::create(1, 0).unwrap();
    let hash = HashReader::<u32, Value>::attach(&memories[0]).unwrap();
    let array = ArrayReader::<Value>::attach(&memories[1]).unwrap();
    let record = RecordReader::<Value>::attach(&memories[2]).unwrap();
    let turns = counters.lane(0);
    let ((borrowed, is_borrowed), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
    let lane = std::thread::spawn(move || {
        // SAFETY: the turn is published when nothing is borrowed.
        let guard = unsafe { Guard::new() };
        goes_on.recv().unwrap();
        let found = hash.get(&guard, &1).map(|found| found.value);
        let all = [found, array.get(&guard, 1), record.get(&guard)];
        borrowed.send(()).unwrap();
        goes_on.recv().unwrap();
        assert_eq!(all, [Some(&[7, 8, 9]); 3]);
        turns.publish(LaneCounter::Turn, FENCE_TURNS);
        turns.publish(LaneCounter::Ended, 1);
    });

    // SAFETY: the lanes of this test publish their turns there.
    let readers = Arc::new(unsafe { Readers::lanes(&counters) });
    let mut hash = HashWriter::<u32, Value>::attach(&memories[0], &readers).unwrap();
    let mut array = ArrayWriter::<Value>::attach(&memories[1], &readers).unwrap();
    let mut record = RecordWriter::<Value>::attach(&memories[2], &readers).unwrap();
    hash.insert(&1, &[7, 8, 9]).unwrap();
    array.set(1, &[7, 8, 9]).unwrap();
    record.set(&[7, 8, 9]).unwrap();
    go_on.send(()).unwrap();
    is_borrowed.recv().unwrap();
    write_all(|value| hash.insert(&1, value).map(drop));
    write_all(|value| array.set(1, value));
    write_all(|value| record.set(value));
    go_on.send(()).unwrap();
    lane.join().unwrap();
    for number in 0..MANY {
        hash.insert(&1, &[number; 3]).unwrap();
        array.set(1, &[number; 3]).unwrap();
        record.set(&[number; 3]).unwrap();
    }
}
