use proptest::prelude::*;

use super::*;

const CAPACITY_BYTES: usize = 4096;

fn ring() -> (Arc<SharedMemory>, JournalWriter, JournalReader) {
    let memory = Arc::new(SharedMemory::create("records", 2 * size(CAPACITY_BYTES)).unwrap());
    assert!(JournalWriter::create(&memory, 0, CAPACITY_BYTES).is_ok());
    let writer = JournalWriter::create(&memory, 1, CAPACITY_BYTES).unwrap();
    let reader = JournalReader::attach(&memory, 1).unwrap();
    (memory, writer, reader)
}

#[test]
fn rings_stay_inside_their_memory() {
    let (memory, ..) = ring();
    assert!(JournalWriter::create(&memory, 2, CAPACITY_BYTES).is_err());
    assert!(JournalReader::attach(&memory, 2).is_err());
    for capacity in [0, 8, 5000, 8192, 1 << 40, usize::MAX] {
        assert!(JournalWriter::create(&memory, 1, capacity).is_err(), "{capacity}");
    }
    let empty = Arc::new(SharedMemory::create("records", size(CAPACITY_BYTES)).unwrap());
    assert!(JournalReader::attach(&empty, 0).is_err());
}

#[test]
fn a_record_longer_than_the_ring_finds_no_room() {
    let (_memory, writer, _) = ring();
    let mut cursor = Cursor::default();
    assert_eq!(writer.reserve(&mut cursor, CAPACITY_BYTES / 8), None);
    assert!(writer.reserve(&mut cursor, CAPACITY_BYTES / 8 - 1).is_some());
    assert_eq!(writer.reserve(&mut cursor, 0), None);
}

#[test]
fn a_tail_that_lies_loses_records_and_no_more() {
    let (memory, writer, mut reader) = ring();
    let tail = SharedWords::new(&memory, HEADER + CAPACITY_BYTES / 8 + TAIL, 1).unwrap();
    let mut cursor = Cursor::default();
    for lie in [0, 1, 511, 512, 513, u64::MAX, u64::MAX / 2, 1 << 32] {
        tail.store(0, lie);
        for _ in 0..1000 {
            if let Some(record) = writer.reserve(&mut cursor, 9) {
                writer.write_bytes(record, 1, &[7; 64]);
                writer.seal(record);
            }
        }
        writer.publish(&cursor);
        let mut record = vec![];
        while reader.next(&mut record) == Ok(true) {
            assert_eq!(record.len(), 72);
        }
    }
}

#[test]
fn whatever_the_ring_holds_the_reader_ends() {
    proptest!(|(words in proptest::collection::vec(any::<u64>(), 512), head in any::<u64>())| {
        let (memory, _, mut reader) = ring();
        let base = HEADER + CAPACITY_BYTES / 8;
        let data = SharedWords::new(&memory, base + HEADER, 512).unwrap();
        for (index, word) in words.iter().enumerate() {
            // Small lengths are frequent, so that the reader gets far.
            data.store(index, if word % 3 == 0 { *word } else { (word % 9) | (word & SEALED) });
        }
        let header = SharedWords::new(&memory, base, HEADER).unwrap();
        header.store(HEAD, head);
        let mut record = vec![];
        while reader.next(&mut record) == Ok(true) {
            prop_assert!(record.len() <= CAPACITY_BYTES);
        }
    });
}

/// Operation on a ring.
#[derive(Clone, Debug)]
enum Step {
    Write { bytes: Vec<u8>, seal: bool },
    Undo(Vec<u8>),
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..1200);
    prop_oneof![
        (bytes(), any::<bool>()).prop_map(|(bytes, seal)| Step::Write { bytes, seal }),
        bytes().prop_map(Step::Undo),
        (0..9_usize).prop_map(Step::Read),
    ]
}

proptest! {
    #[test]
    fn what_was_sealed_is_read_once_in_order(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let (_memory, writer, mut reader) = ring();
        let (mut cursor, mut lost) = (Cursor::default(), 0);
        let mut expected = std::collections::VecDeque::new();
        let mut record = vec![];
        for step in steps {
            match step {
                Step::Write { bytes, seal } => {
                    match writer.reserve(&mut cursor, bytes.len().div_ceil(8)) {
                        Some(record) => {
                            writer.write_bytes(record, 0, &bytes);
                            if seal {
                                writer.seal(record);
                                expected.push_back(bytes);
                            }
                        }
                        None => {
                            writer.count_lost();
                            lost += 1;
                        }
                    }
                    writer.publish(&cursor);
                }
                Step::Undo(bytes) => {
                    let before = cursor;
                    if let Some(record) = writer.reserve(&mut cursor, bytes.len().div_ceil(8)) {
                        writer.write_bytes(record, 0, &bytes);
                        writer.seal(record);
                    }
                    cursor = before;
                }
                Step::Read(count) => {
                    for _ in 0..count {
                        let found = reader.next(&mut record).unwrap();
                        match expected.pop_front() {
                            Some(bytes) => {
                                prop_assert!(found && record.starts_with(&bytes));
                                prop_assert_eq!(record.len(), bytes.len().next_multiple_of(8));
                            }
                            None => prop_assert!(!found),
                        }
                    }
                    reader.release();
                }
            }
        }
        while reader.next(&mut record).unwrap() {
            prop_assert!(record.starts_with(&expected.pop_front().unwrap()));
        }
        prop_assert!(expected.is_empty());
        prop_assert_eq!(reader.lost(), lost);
    }
}

#[test]
fn two_threads_lose_nothing_uncounted() {
    const COUNT: u64 = 200_000;
    let (memory, writer, mut reader) = ring();
    let _memory = memory;
    let lane = std::thread::spawn(move || {
        let (mut cursor, mut lost) = (Cursor::default(), 0);
        for number in 0..COUNT {
            let words = 1 + number as usize % 40;
            if let Some(record) = writer.reserve(&mut cursor, words) {
                (0..words).for_each(|index| writer.write_word(record, index, number));
                writer.seal(record);
                writer.publish(&cursor);
            } else {
                writer.count_lost();
                lost += 1;
            }
        }
        lost
    });
    let (mut record, mut read, mut next) = (vec![], 0, 0);
    loop {
        let ended = lane.is_finished();
        while reader.next(&mut record).unwrap() {
            let (words, _) = record.as_chunks::<8>();
            let number = u64::from_ne_bytes(words[0]);
            assert!(number >= next && words.len() as u64 == 1 + number % 40);
            assert!(words.iter().all(|word| *word == words[0]));
            (read, next) = (read + 1, number + 1);
        }
        reader.release();
        if ended {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(lane.join().unwrap(), reader.lost());
    assert_eq!(read + reader.lost(), COUNT);
    assert!(read > 0);
}
