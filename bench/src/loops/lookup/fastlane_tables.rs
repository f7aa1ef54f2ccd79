//! The tables of Fastlane.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fastlane_table::{
    HashReader, HashWriter, Lpm4Reader, Lpm4Writer, Lpm6Reader, Lpm6Writer, Prefix, PrefixValue,
    Readers, Spec,
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
    Server::new(workload, start, |key: Key| key)?.serve::<u64>(
        |keys, results| {
            let mut found = [None; BULK];
            reader.get_many(&guard, keys, &mut found);
            for (found, result) in found.iter().zip(results) {
                *result = found.as_ref().map_or(0, |found| sum(found.value));
            }
        },
        u64::from,
    )
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
    let server = Server::new(workload, start, address)?;
    if many {
        let find = |addresses: &[_; BULK], values: &mut [_; BULK]| {
            reader.lookup_many(&guard, addresses, values);
        };
        return server.serve(find, number);
    }
    let find = |addresses: &[_; BULK], values: &mut [_; BULK]| {
        for (address, value) in addresses.iter().zip(values) {
            *value = reader.lookup(&guard, *address);
        }
    };
    server.serve(find, |value: Option<u32>| value.unwrap_or(0).into())
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
    let server = Server::new(workload, start, |bytes: [u8; 16]| Ipv6Addr::from(bytes))?;
    if many {
        let find = |addresses: &[_; BULK], values: &mut [_; BULK]| {
            reader.lookup_many(&guard, addresses, values);
        };
        return server.serve(find, number);
    }
    let find = |addresses: &[_; BULK], values: &mut [_; BULK]| {
        for (address, value) in addresses.iter().zip(values) {
            *value = reader.lookup(&guard, *address);
        }
    };
    server.serve(find, |value: Option<u32>| value.unwrap_or(0).into())
}

#[inline(always)]
fn number(value: Option<PrefixValue>) -> u64 {
    value.map_or(0, PrefixValue::get).into()
}
