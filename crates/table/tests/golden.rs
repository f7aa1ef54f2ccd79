//! The layout in memory: small tables of each kind, byte for byte as in `tests/golden`.
//!
//! When the layout is changed on purpose, its version or the number of the kind must change too;
//! `BLESS=1` rewrites the files.
#![allow(unsafe_code, reason = "readers: everything here is in one thread")]

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use fastlane_table::{
    ArrayWriter, ClassifierWriter, EntryId, FlowMatch, HashWriter, Lpm4Writer, Lpm6Writer, Pending,
    Prefix, Readers, RuleList, SharedMemory, SharedWords, Spec, State,
};

/// Word with the writer's process id, which differs in each run.
const WRITER: usize = 25;

/// Returns the words that are not zero, four per line, in the order of memory.
fn dump(memory: &Arc<SharedMemory>) -> String {
    let words = SharedWords::new(memory, 0, memory.len() / 8).unwrap();
    let mut text = String::new();
    let mut before = None;
    for line in 0..words.len() / 4 {
        let writer =
            |word: usize| word % 512 == WRITER && words.load(word - WRITER) == words.load(0);
        let word = |at: usize| if writer(at) { u64::MAX } else { words.load(at) };
        let line: [u64; 4] = std::array::from_fn(|at| word(line * 4 + at));
        let at = text.len();
        write!(text, "{:016x} {:016x} {:016x} {:016x}", line[0], line[1], line[2], line[3])
            .unwrap();
        let content = text.split_off(at);
        let number = words_before(&mut before, &content);
        if let Some(skipped) = number {
            writeln!(text, "{skipped}{content}").unwrap();
        }
    }
    text
}

/// Returns nothing for a line equal to the one before; otherwise the number of such lines.
fn words_before(before: &mut Option<(String, usize)>, line: &str) -> Option<String> {
    match before {
        Some((last, count)) if last == line => {
            *count += 1;
            None
        }
        _ => {
            let repeated = before.as_ref().map_or(0, |(_, count)| *count);
            *before = Some((line.to_owned(), 0));
            Some(if repeated > 0 { format!("  {repeated} more\n") } else { String::new() })
        }
    }
}

fn compare(name: &str, memory: &Arc<SharedMemory>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let text = dump(memory);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (is, was)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(is, was, "{name}, line {}", number + 1);
    }
    assert_eq!(text.len(), golden.len(), "{name}");
}

fn readers() -> Arc<Readers> {
    // SAFETY: what was found is not borrowed while the writer writes.
    Arc::new(unsafe { Readers::none() })
}

#[test]
fn a_hash() {
    let spec = Spec::hash::<[u8; 6], [u32; 3]>("golden hash", 12).seeded([0x0123, 0x4567]);
    let memory = spec.typed(0x89AB).create().unwrap();
    let mut writer = HashWriter::<[u8; 6], [u32; 3]>::attach(&memory, &readers()).unwrap();
    for number in 0..12 {
        writer.insert(&[number, 1, 2, 3, 4, 5], &[number.into(), 2, 3]).unwrap();
    }
    writer.remove(&[3, 1, 2, 3, 4, 5]);
    writer.insert(&[4, 1, 2, 3, 4, 5], &[400, 2, 3]).unwrap();
    compare("hash.txt", &memory);
}

#[test]
fn an_array() {
    let memory = Spec::array::<[u16; 4]>("golden array", 5).seeded([1, 2]).create().unwrap();
    let mut writer = ArrayWriter::<[u16; 4]>::attach(&memory, &readers()).unwrap();
    for index in [0, 1, 4, 1] {
        writer.set(index, &[index as u16, 1, 2, 3]).unwrap();
    }
    writer.clear(0);
    compare("array.txt", &memory);
}

#[test]
fn prefixes_of_ipv4() {
    let memory = Spec::lpm4("golden lpm4", 6).with_groups(2).seeded([1, 2]).create().unwrap();
    let mut writer = Lpm4Writer::attach(&memory, &readers()).unwrap();
    let prefix = |a, b, c, length| Prefix::new(Ipv4Addr::new(a, b, c, 0), length).unwrap();
    writer.insert(prefix(10, 0, 0, 12), 1).unwrap();
    writer.insert(prefix(10, 1, 0, 16), 2).unwrap();
    writer.insert(prefix(10, 1, 2, 26), 3).unwrap();
    compare("lpm4.txt", &memory);
}

#[test]
fn prefixes_of_ipv6() {
    let memory = Spec::lpm6("golden lpm6", 6).with_groups(6).seeded([1, 2]).create().unwrap();
    let mut writer = Lpm6Writer::attach(&memory, &readers()).unwrap();
    let prefix =
        |b, length| Prefix::new(Ipv6Addr::new(0x2001, b, 0, 0, 0, 0, 0, 0), length).unwrap();
    writer.insert(prefix(0, 12), 1).unwrap();
    writer.insert(prefix(0xDB8, 32), 2).unwrap();
    writer.insert(prefix(0xDB8, 46), 3).unwrap();
    writer.insert(prefix(0xDC8, 30), 4).unwrap(); // beside the first /32: a group
    compare("lpm6.txt", &memory);
}

#[test]
fn rules_of_a_classifier() {
    let spec = Spec::classifier::<[u16; 4]>("golden rules", 40).with_groups(16);
    let memory = spec.seeded([1, 2]).create().unwrap();
    let mut writer = ClassifierWriter::<[u16; 4]>::attach(&memory, &readers()).unwrap();
    // More than a leaf has, so that there are cuts.
    let four: Vec<_> = (0..40_u8)
        .map(|number| {
            let source = Prefix::new(Ipv4Addr::new(10, number, 0, 0), 16).unwrap();
            let ports = [1000 + u16::from(number), 2000];
            let rule = FlowMatch { source, destination_ports: ports, ..FlowMatch::any() };
            (FlowMatch { protocols: [17, 17], ..rule }, [number.into(), 1, 2, 3])
        })
        .collect();
    let net = Prefix::new(Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 0), 32).unwrap();
    let six = [
        (FlowMatch { destination: net, tags: [1, 2], ..FlowMatch::any() }, [4, 5, 6, 7]),
        (FlowMatch::any(), [8, 9, 10, 11]),
    ];
    writer.replace(&RuleList { ipv4: &four, ipv6: &six, source: b"golden" }).unwrap();
    compare("classifier.txt", &memory);
}

#[test]
fn lane_state_and_events() {
    for (name, lanes) in [("state-owner.txt", 0), ("state-lanes.txt", 2)] {
        let memory = Spec::state::<3>("golden state", 4, lanes).seeded([1, 2]).create().unwrap();
        let state = State::<3>::attach(&memory).unwrap();
        for lane in 0..lanes.max(1) {
            state.lane(lane).at(EntryId(2)).add(1, 7 + lane as u64);
        }
        compare(name, &memory);
    }
    let memory = Spec::pending("golden pending", 4, 2).seeded([1, 2]).create().unwrap();
    let pending = Pending::attach(&memory).unwrap();
    pending.lane(1).raise(EntryId(3));
    pending.lane(0).raise(EntryId(1));
    pending.done(EntryId(1), 1);
    compare("pending.txt", &memory);
}
