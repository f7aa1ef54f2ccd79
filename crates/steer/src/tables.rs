//! Tables of the eBPF programs, by descriptors that another process may have created, and the
//! encoding of rules and settings for them: `struct steering` in `bpf/steer.bpf.c`.
//!
//! The encoded value is a plain array of words, so it is passed to the kernel without unsafe code.
//! Words are in the machine's byte order, addresses in network byte order.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::{
    Ebpf,
    maps::{Array, ArrayOfMaps, Map, MapData, MapError, PerCpuArray, XskMap},
};

use crate::{
    error::{self, ProgramError},
    rules::{MAX_RULES, Rule, Rules},
    settings::Settings,
};

/// Names in `bpf/steer.bpf.c` of the tables that a handover includes.
const NAMES: [&str; 3] = ["steering", "sockets", "counts"];

/// Number of words of `struct rule`.
const RULE_WORDS: usize = 21;
/// Number of words of `struct steering` before its rules.
const HEAD_WORDS: usize = 4;

/// `struct steering` as words.
type EncodedSteering = [u32; HEAD_WORDS + MAX_RULES * RULE_WORDS];

/// Flag of rules with a prefix. The others skip the comparison of addresses.
const HAS_PREFIX: u32 = 1 << 16;
/// Fields of both IP versions, which no frame has.
const NEEDS_MORE_THAN_EXISTS: u32 = 0b11;
/// Marker for any IP protocol.
const ANY_PROTOCOL: u32 = 0x100;

/// Tables of a port's programs.
pub(crate) struct Tables {
    steering: ArrayOfMaps<MapData, Array<MapData, EncodedSteering>>,
    /// Current value of `steering`, if this process knows it.
    current: Option<Array<MapData, EncodedSteering>>,
    pub(crate) sockets: XskMap<MapData>,
    pub(crate) counts: PerCpuArray<MapData, u64>,
    /// Descriptors in the order of `NAMES`.
    descriptors: [OwnedFd; 3],
}

impl Tables {
    /// Returns the tables that the loader created for a program. The loader keeps its own
    /// descriptors.
    pub(crate) fn of(programs: &Ebpf) -> Result<Self, ProgramError> {
        let mut descriptors = Vec::with_capacity(NAMES.len());
        for name in NAMES {
            let (Map::ArrayOfMaps(table) | Map::XskMap(table) | Map::PerCpuArray(table)) =
                programs.map(name).ok_or_else(|| error::absent(name))?
            else {
                return Err(error::absent(name));
            };
            descriptors.push(duplicate(table.fd().as_fd())?);
        }
        let descriptors = descriptors.try_into().map_err(|_| error::absent("a table"))?;
        Self::open(descriptors)
    }

    /// Opens the tables by their descriptors: steering, sockets, counts.
    pub(crate) fn open(descriptors: [OwnedFd; 3]) -> Result<Self, ProgramError> {
        let [steering, sockets, counts] = &descriptors;
        let steering: ArrayOfMaps<MapData, _> = table(steering, ArrayOfMaps::try_from)?;
        let sockets = table(sockets, XskMap::try_from)?;
        let counts = table(counts, PerCpuArray::try_from)?;
        // Requires CAP_SYS_ADMIN, which may be missing: see `replace`.
        let current = steering.get(&0, 0).ok();
        Ok(Self { steering, current, sockets, counts, descriptors })
    }

    /// Returns the descriptors in the order of `NAMES`.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        self.descriptors.each_ref().map(OwnedFd::as_fd)
    }

    /// Puts rules and settings in force, from one frame to the next.
    pub(crate) fn replace(
        &mut self,
        rules: &Rules,
        settings: &Settings,
    ) -> Result<(), ProgramError> {
        self.store(encode(rules, settings))
    }

    /// Claims nothing, from one frame to the next.
    pub(crate) fn claim_nothing(&mut self, settings: &Settings) -> Result<(), ProgramError> {
        // An empty list claims everything; this one has a rule for frames that do not exist.
        let mut words = encode(&Rules::default(), settings);
        words[0] = 1;
        words[HEAD_WORDS] = NEEDS_MORE_THAN_EXISTS;
        self.store(words)
    }

    fn store(&mut self, words: EncodedSteering) -> Result<(), ProgramError> {
        let action = "writing the steering rules";
        let refused = |error| error::table_error(action, error);
        let mut table = Array::create(1, 0).map_err(refused)?;
        table.set(0, words, 0).map_err(refused)?;
        self.steering.set(0, &table, 0).map_err(refused)?;
        // Dropped only now, when no program uses the old table any more. Kernels without the fix
        // for CVE-2023-52447 would free a table under a running program if its last descriptor were
        // closed earlier.
        self.current = Some(table);
        Ok(())
    }
}

/// Encodes `rules` and `settings` for the map.
fn encode(rules: &Rules, settings: &Settings) -> EncodedSteering {
    let mut words = [0; _];
    let rules = rules.as_slice();
    // At most MAX_RULES, checked by Rules::new.
    let count = rules.len() as u32;
    let head = [count, settings.max_length, settings.mark, settings.reenter_ifindex];
    words[..HEAD_WORDS].copy_from_slice(&head);
    for (encoded, rule) in words[HEAD_WORDS..].chunks_exact_mut(RULE_WORDS).zip(rules) {
        encoded.copy_from_slice(&encode_rule(rule));
    }
    words
}

/// `struct rule` as words.
type EncodedRule = [u32; RULE_WORDS];

fn encode_rule(rule: &Rule) -> EncodedRule {
    let mut words = [0; RULE_WORDS];
    let ports = rule.ports();
    words[0] = rule.needs() | if rule.has_prefix() { HAS_PREFIX } else { 0 };
    // No EtherType is 0, so 0 means any.
    words[1] = rule.ethertype.map_or(0, u32::from);
    words[2] = rule.protocol.map_or(ANY_PROTOCOL, u32::from);
    words[3] = u32::from(ports.first);
    words[4] = u32::from(ports.last);
    for (offset, prefix) in [(5, rule.source), (13, rule.destination)] {
        let Some(prefix) = prefix else { continue };
        copy_octets(&mut words[offset..offset + 4], prefix.octets());
        copy_octets(&mut words[offset + 4..offset + 8], prefix.mask());
    }
    words
}

fn copy_octets(words: &mut [u32], octets: [u8; 16]) {
    let (chunks, _) = octets.as_chunks::<4>();
    for (word, octets) in words.iter_mut().zip(chunks) {
        *word = u32::from_ne_bytes(*octets);
    }
}

fn duplicate(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, ProgramError> {
    descriptor
        .try_clone_to_owned()
        .map_err(|source| ProgramError::system("duplicating a steering table", source))
}

fn table<T>(
    descriptor: &OwnedFd,
    convert: impl FnOnce(Map) -> Result<T, MapError>,
) -> Result<T, ProgramError> {
    let descriptor = duplicate(descriptor.as_fd())?;
    MapData::from_fd(descriptor)
        .and_then(Map::from_map_data)
        .and_then(convert)
        .map_err(|error| error::table_error("opening a table of the steering program", error))
}
