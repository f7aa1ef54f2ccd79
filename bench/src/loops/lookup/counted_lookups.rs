//! Lookups whose instructions are counted: fixed lookups in tables of 10,000 entries, and the rules
//! of steering.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;

use fastlane_steer::{Rule, Rules};
use fastlane_table::{HashReader, HashWriter, Lpm4Reader, Lpm4Writer, Prefix, Readers, Spec};

use crate::Result;
use crate::loops::lookup::BULK;
use crate::loops::lookup::crate_tables::sum;
use crate::loops::lookup::workload::{exact, routes};
use crate::rivals::ffi::guard;

const ENTRIES: usize = 10_000;
/// Seed of the keyed hash. A random seed would change the instruction count from run to run.
const SEED: [u64; 2] = [0x5eed, 0x5eed_0001];

/// Looks up existing keys with `Hash::get_many`, in bulks of 32, with 16-byte keys and 64-byte
/// values. Returns the sum of the values.
///
/// # Errors
/// Returns an error if there is not enough memory.
pub fn hash(lookups: u64) -> Result<u64> {
    let workload = exact(ENTRIES);
    let spec = Spec::hash::<[u8; 16], [u64; 8]>("counted", ENTRIES).seeded(SEED);
    let memory = spec.create()?;
    let mut writer = HashWriter::attach(&memory, &Arc::new(Readers::unknown()))?;
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

/// Looks up addresses with `Lpm4::lookup_many`, in bulks of 32. Returns the sum of the values.
///
/// # Errors
/// Returns an error if there is not enough memory.
pub fn lpm4(lookups: u64) -> Result<u64> {
    let workload = routes(ENTRIES);
    let memory = Spec::lpm4("counted", ENTRIES).seeded(SEED).create()?;
    let mut writer = Lpm4Writer::attach(&memory, &Arc::new(Readers::unknown()))?;
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
        let hops = values.iter().flatten().map(|hop| u64::from(hop.get()));
        total = hops.fold(total, u64::wrapping_add);
    }
    Ok(total)
}

/// Calls `Rules::matches` on a frame that both rules of `apps/upf` claim: GTP-U and UE addresses,
/// in turn. Returns the number of matches.
///
/// # Errors
/// Returns an error if the rules are refused.
pub fn steering(frames: u64) -> Result<u64> {
    let users = fastlane_steer::Prefix { address: Ipv4Addr::new(11, 0, 0, 0).into(), length: 8 };
    let gtp = Rules::new(vec![Rule { udp_port: Some(2152.into()), ..Rule::default() }])?;
    let users = Rules::new(vec![Rule { destination: Some(users), ..Rule::default() }])?;
    let mut frame = [0; 64];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[23] = 17;
    frame[30..34].copy_from_slice(&[11, 0, 0, 1]);
    frame[36..38].copy_from_slice(&2152_u16.to_be_bytes());
    let claims = |rules: &Rules| u64::from(rules.matches(black_box(&frame)));
    Ok((0..frames / 2).map(|_| claims(&gtp) + claims(&users)).sum())
}
