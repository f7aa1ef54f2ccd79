//! The tables of Fastlane.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fastlane_table::{
    HashReader, HashWriter, Lpm4Reader, Lpm4Writer, Lpm6Reader, Lpm6Writer, Prefix, Readers, Spec,
};

use crate::Result;
use crate::loops::lookup::BULK;
use crate::loops::lookup::crate_tables::sum;
use crate::loops::lookup::server::{Server, Start};
use crate::loops::lookup::workload::Workload;
use crate::rivals::ffi::guard;

type Key = [u8; 16];
type Value = [u64; 8];

/// Serves the exact-match table.
pub(super) fn hash(workload: &Workload) -> Result<()> {
    let start = Start::now()?;
    let memory = Spec::hash::<Key, Value>("lookup", workload.count).create()?;
    let mut writer = HashWriter::<Key, Value>::attach(&memory, &Arc::new(Readers::unknown()))?;
    for (key, value) in workload.pairs() {
        writer.insert(&key, &value)?;
    }
    let reader = HashReader::<Key, Value>::attach(&memory)?;
    let guard = guard(writer);
    Server::new(workload, start, |key: Key| key)?.serve(|keys, results| {
        let mut found = [None; BULK];
        reader.get_many(&guard, keys, &mut found);
        for (found, result) in found.iter().zip(results) {
            *result = found.as_ref().map_or(0, |found| sum(found.value));
        }
    })
}

/// Serves the IPv4 longest-prefix-match table, by single lookups or in bulks.
pub(super) fn lpm4(workload: &Workload, many: bool) -> Result<()> {
    let start = Start::now()?;
    let memory = Spec::lpm4("lookup", workload.count).with_groups(1 << 15).create()?;
    let mut writer = Lpm4Writer::attach(&memory, &Arc::new(Readers::unknown()))?;
    for (address, length, hop) in workload.routes() {
        let prefix = Prefix::new(Ipv4Addr::from_bits(address as u32), length as u8);
        writer.insert(prefix.ok_or("no prefix")?, hop)?;
    }
    writer.collapse();
    let reader = Lpm4Reader::attach(&memory)?;
    let guard = guard(writer);
    let address = |bytes| Ipv4Addr::from_bits(u32::from_ne_bytes(bytes));
    Server::new(workload, start, address)?.serve(|addresses, results| {
        if many {
            let mut values = [None; BULK];
            reader.lookup_many(&guard, addresses, &mut values);
            numbers(&values, results);
        } else {
            for (address, result) in addresses.iter().zip(results) {
                *result = reader.lookup(&guard, *address).unwrap_or(0).into();
            }
        }
    })
}

/// Serves the IPv6 longest-prefix-match table, by single lookups or in bulks.
pub(super) fn lpm6(workload: &Workload, many: bool) -> Result<()> {
    let start = Start::now()?;
    let memory = Spec::lpm6("lookup", workload.count).create()?;
    let mut writer = Lpm6Writer::attach(&memory, &Arc::new(Readers::unknown()))?;
    for (address, length, hop) in workload.routes() {
        let prefix = Prefix::new(Ipv6Addr::from_bits(address), length as u8);
        writer.insert(prefix.ok_or("no prefix")?, hop)?;
    }
    writer.collapse();
    let reader = Lpm6Reader::attach(&memory)?;
    let guard = guard(writer);
    Server::new(workload, start, |bytes: [u8; 16]| Ipv6Addr::from(bytes))?.serve(
        |addresses, results| {
            if many {
                let mut values = [None; BULK];
                reader.lookup_many(&guard, addresses, &mut values);
                numbers(&values, results);
            } else {
                for (address, result) in addresses.iter().zip(results) {
                    *result = reader.lookup(&guard, *address).unwrap_or(0).into();
                }
            }
        },
    )
}

#[inline(always)]
fn numbers(values: &[Option<u32>; BULK], results: &mut [u64; BULK]) {
    for (value, result) in values.iter().zip(results) {
        *result = value.unwrap_or(0).into();
    }
}
