//! Tables that are private to a process: the fastest crates.

use prefix_trie::PrefixMap;

use crate::Result;
use crate::loops::lookup::server::{Server, Start};
use crate::loops::lookup::workload::Workload;

/// Serves hashbrown with its default hash function.
pub(super) fn hashbrown(workload: &Workload) -> Result<()> {
    let start = Start::now()?;
    let mut table = hashbrown::HashMap::with_capacity(workload.count);
    table.extend(workload.pairs());
    Server::new(workload, start, |key: [u8; 16]| key)?.serve::<u64>(
        |keys, results| {
            for (key, result) in keys.iter().zip(results) {
                *result = table.get(key).map_or(0, sum);
            }
        },
        u64::from,
    )
}

/// Returns the sum of the words of a value, which forces the value to be read.
#[inline]
pub(super) fn sum(value: &[u64; 8]) -> u64 {
    value.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word))
}

/// Serves prefix-trie for IPv4.
pub(super) fn prefix_trie(workload: &Workload) -> Result<()> {
    let start = Start::now()?;
    let mut table: PrefixMap<(u32, u8), u32> = PrefixMap::new();
    for (address, length, hop) in workload.routes() {
        table.insert((address as u32, length as u8), hop);
    }
    Server::new(workload, start, u32::from_ne_bytes)?.serve::<u64>(
        |addresses, results| {
            for (address, result) in addresses.iter().zip(results) {
                *result = table.get_lpm(&(*address, 32)).map_or(0, |(_, hop)| (*hop).into());
            }
        },
        u64::from,
    )
}

/// Serves prefix-trie for IPv6.
pub(super) fn prefix_trie6(workload: &Workload) -> Result<()> {
    let start = Start::now()?;
    let mut table: PrefixMap<(u128, u8), u32> = PrefixMap::new();
    for (address, length, hop) in workload.routes() {
        table.insert((address, length as u8), hop);
    }
    Server::new(workload, start, u128::from_be_bytes)?.serve::<u64>(
        |addresses, results| {
            for (address, result) in addresses.iter().zip(results) {
                *result = table.get_lpm(&(*address, 128)).map_or(0, |(_, hop)| (*hop).into());
            }
        },
        u64::from,
    )
}
