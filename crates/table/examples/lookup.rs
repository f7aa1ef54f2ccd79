//! Duration of lookups in nanoseconds, best and median of 31 rounds. A report without a bound.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use fastlane_table::{HashWriter, Lpm4Writer, Prefix, Readers, Spec};

const BATCH: usize = 32;
const LOOKUPS: usize = 1 << 20;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
}

fn key(number: u64) -> [u8; 16] {
    let mut state = number;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&random(&mut state).to_ne_bytes());
    key[8..].copy_from_slice(&random(&mut state).to_ne_bytes());
    key
}

fn time(name: &str, count: usize, mut round: impl FnMut()) {
    let mut times: Vec<f64> = (0..31)
        .map(|_| {
            let begun = Instant::now();
            round();
            begun.elapsed().as_nanos() as f64 / count as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:40} {:6.1} {:6.1}", times[0], times[15]);
}

fn hash(entries: usize) {
    let memory = Spec::hash::<[u8; 16], [u64; 8]>("lookup", entries).create().unwrap();
    let readers = Arc::new(Readers::unknown());
    let mut writer = HashWriter::<[u8; 16], [u64; 8]>::attach(&memory, &readers).unwrap();
    for number in 0..entries as u64 {
        writer.insert(&key(number), &[number; 8]).unwrap();
    }
    let mut state = 7;
    let mut keys = |first: u64| -> Vec<[u8; 16]> {
        (0..LOOKUPS).map(|_| key(first + random(&mut state) % entries as u64)).collect()
    };
    for (what, keys) in [("hits", keys(0)), ("misses", keys(1 << 40))] {
        time(&format!("hash {entries}, {what}, batch {BATCH}"), LOOKUPS, || {
            for keys in keys.chunks(BATCH) {
                let mut found = [None; BATCH];
                writer.get_many(keys, &mut found);
                for found in found.iter().flatten() {
                    black_box(found.value[0]);
                }
            }
        });
        time(&format!("hash {entries}, {what}, one by one"), LOOKUPS, || {
            for key in &keys {
                black_box(writer.get(key).map(|found| found.value[0]));
            }
        });
    }
}

fn lpm(prefixes: usize) {
    let memory = Spec::lpm4("lookup", prefixes).create().unwrap();
    let readers = Arc::new(Readers::unknown());
    let mut writer = Lpm4Writer::attach(&memory, &readers).unwrap();
    let mut state = 3;
    let begun = Instant::now();
    while writer.len() < prefixes {
        // As in a full routing table: 60 % of /24, the others shorter, a few longer.
        let length = match random(&mut state) % 100 {
            0..60 => 24,
            60..98 => 16 + random(&mut state) % 8,
            _ => 25 + random(&mut state) % 8,
        };
        let address = Ipv4Addr::from_bits(random(&mut state) as u32);
        let prefix = Prefix::new(address, length as u8).unwrap();
        writer.insert(prefix, random(&mut state) as u32 & 0xFFFF).unwrap();
    }
    println!("{prefixes} prefixes inserted in {:?}", begun.elapsed());
    let addresses: Vec<Ipv4Addr> =
        (0..LOOKUPS).map(|_| Ipv4Addr::from_bits(random(&mut state) as u32)).collect();
    time(&format!("lpm4 {prefixes}, batch {BATCH}"), LOOKUPS, || {
        for addresses in addresses.chunks(BATCH) {
            let mut values = [None; BATCH];
            writer.lookup_many(addresses, &mut values);
            black_box(values);
        }
    });
    time(&format!("lpm4 {prefixes}, one by one"), LOOKUPS, || {
        for address in &addresses {
            black_box(writer.lookup(*address));
        }
    });
    let begun = Instant::now();
    drop(writer);
    let writer = Lpm4Writer::attach(&memory, &readers).unwrap();
    println!("attached in {:?}, {} words put right", begun.elapsed(), writer.repaired());
}

fn main() {
    println!("{:40} {:>6} {:>6}", "nanoseconds", "best", "median");
    hash(10_000);
    hash(1_000_000);
    lpm(1_000_000);
}
