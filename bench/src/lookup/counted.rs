//! Lookups to be counted by their instructions: always the same ones, in a table of 10,000 entries.

use std::net::Ipv4Addr;
use std::sync::Arc;

use fastlane_table::{HashReader, HashWriter, Lpm4Reader, Lpm4Writer, Prefix, Readers, Spec};

use super::BULK;
use super::private::sum;
use super::workload::{exact, routes};
use crate::Result;
use crate::ffi::guard;

const ENTRIES: usize = 10_000;
/// Of the keyed hash: a random one would count other instructions each time.
const SEED: [u64; 2] = [0x5eed, 0x5eed_0001];

/// `Hash::get_many` of 32 keys that are there, 16 bytes to 64, until so many were looked up.
///
/// # Errors
/// When there is no memory.
pub fn hash(lookups: u64) -> Result<u64> {
    let workload = exact(ENTRIES);
    let spec = Spec::hash::<[u8; 16], [u64; 8]>("counted", ENTRIES).seeded(SEED);
    let memory = spec.create()?;
    let mut writer = HashWriter::attach(&memory, &Arc::new(Readers::none()))?;
    for (key, value) in workload.pairs() {
        writer.insert(&key, &value)?;
    }
    let reader = HashReader::<[u8; 16], [u64; 8]>::attach(&memory)?;
    let guard = guard(writer);
    let bulks = workload.sets[0].as_chunks::<16>().0.as_chunks::<BULK>().0;
    let mut total = 0_u64;
    for keys in bulks.iter().cycle().take(lookups as usize / BULK) {
        let mut found = [None; BULK];
        reader.get_many(&guard, keys, &mut found);
        for found in found.iter().flatten() {
            total = total.wrapping_add(sum(found.value));
        }
    }
    Ok(total)
}

/// `Lpm4::lookup_many` of 32 addresses, likewise.
///
/// # Errors
/// When there is no memory.
pub fn lpm4(lookups: u64) -> Result<u64> {
    let workload = routes(ENTRIES);
    let memory = Spec::lpm4("counted", ENTRIES).seeded(SEED).create()?;
    let mut writer = Lpm4Writer::attach(&memory, &Arc::new(Readers::none()))?;
    for (address, length, hop) in workload.routes() {
        let prefix = Prefix::new(Ipv4Addr::from_bits(address as u32), length as u8);
        writer.insert(prefix.ok_or("no prefix")?, hop)?;
    }
    let reader = Lpm4Reader::attach(&memory)?;
    let guard = guard(writer);
    let address = |bytes: &[u8; 4]| Ipv4Addr::from_bits(u32::from_ne_bytes(*bytes));
    let addresses: Vec<_> = workload.sets[2].as_chunks::<4>().0.iter().map(address).collect();
    let mut total = 0_u64;
    for addresses in addresses.as_chunks::<BULK>().0.iter().cycle().take(lookups as usize / BULK) {
        let mut values = [None; BULK];
        reader.lookup_many(&guard, addresses, &mut values);
        total = values.iter().flatten().fold(total, |total, hop| total.wrapping_add((*hop).into()));
    }
    Ok(total)
}
