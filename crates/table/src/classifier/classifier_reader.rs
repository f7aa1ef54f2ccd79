//! Reader of a classifier: lookups by lanes.
#![allow(unsafe_code, reason = "functions for processors with certain instructions")]

use std::marker::PhantomData;
use std::sync::Arc;

use super::flow_address::FlowAddress;
use super::generation::{Areas, FamilyHeader, Generation};
#[cfg(any(not(target_arch = "x86_64"), miri))]
use super::instructions::Portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::instructions::Sse2;
use super::packet_burst::{NONE, classify};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::packet_burst::{classify_avx2, classify_avx512};
use super::{BURST, FlowKey};
use crate::header::Header;
use crate::{Guard, SharedMemory, Spec, TableError, Value};

/// Reader of a classifier: returns the value of the first rule that matches a packet.
///
/// # Examples
/// ```
/// use std::net::Ipv4Addr;
/// use std::sync::Arc;
///
/// use fastlane_table::{
///     ClassifierReader, ClassifierWriter, FlowKey, FlowMatch, Guard, Readers, RuleList, Spec,
/// };
///
/// let memory = Spec::classifier::<u64>("rules", 100).create()?;
/// // SAFETY: no lane reads in this example.
/// let readers = Arc::new(unsafe { Readers::none() });
/// let mut writer = ClassifierWriter::<u64>::attach(&memory, &readers)?;
/// let web = FlowMatch { destination_ports: [80, 80], ..FlowMatch::<Ipv4Addr>::any() };
/// let ipv4 = [(web, 1), (FlowMatch::any(), 2)];
/// writer.replace(&RuleList { ipv4: &ipv4, ipv6: &[], source: b"web, then all else" })?;
/// assert_eq!(writer.source(), b"web, then all else");
///
/// let reader = ClassifierReader::<u64>::attach(&memory)?;
/// // In a lane the turn is the guard.
/// // SAFETY: the writer does not write while the guard is borrowed.
/// let guard = unsafe { Guard::new() };
/// let [source, destination] = [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host));
/// let [source_port, destination_port] = [40_000, 80];
/// let key = FlowKey { source, destination, source_port, destination_port, protocol: 6, tag: 0 };
/// assert_eq!(reader.lookup(&guard, &key), Some(&1));
/// assert_eq!(reader.lookup(&guard, &FlowKey { destination_port: 81, ..key }), Some(&2));
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClassifierReader<V> {
    pub(super) areas: Areas,
    pub(super) header: Arc<Header>,
    instructions: Available,
    value: PhantomData<fn() -> V>,
}

/// Fastest instructions of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Available {
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    Portable,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Sse2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
}

impl Available {
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    fn fastest() -> Self {
        Self::Portable
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn fastest() -> Self {
        if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("popcnt") {
            return Self::Sse2;
        }
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        if has_avx512 { Self::Avx512 } else { Self::Avx2 }
    }
}

impl<V: Value> ClassifierReader<V> {
    /// Attaches to a classifier.
    ///
    /// # Errors
    /// Returns an error if the memory holds no classifier, or one with other values.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Self::new(Header::expect(memory, 0, &Spec::classifier::<V>("", 1))?)
    }

    pub(super) fn new(header: Header) -> Result<Self, TableError> {
        let areas = Areas::new(&header)?;
        let instructions = Available::fastest();
        Ok(Self { areas, header: Arc::new(header), instructions, value: PhantomData })
    }

    /// Returns the current lists. All lookups in them see the same lists, even if the writer
    /// replaces them meanwhile.
    #[inline]
    pub fn current<'t, G>(&'t self, turn: &'t G) -> CurrentRules<'t, V>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let generation = self.areas.generation(turn.as_ref());
        CurrentRules { generation, instructions: self.instructions, value: PhantomData }
    }

    /// Returns the value of the first rule that matches a packet, or `None` without one.
    #[inline]
    pub fn lookup<'t, A, G>(&'t self, turn: &'t G, key: &FlowKey<A>) -> Option<&'t V>
    where
        A: FlowAddress,
        G: AsRef<Guard> + ?Sized,
    {
        self.current(turn).lookup(key)
    }

    /// Looks up many packets at once; see [`CurrentRules::lookup_many`].
    #[inline]
    pub fn lookup_many<'t, A, G>(
        &'t self,
        turn: &'t G,
        keys: &[FlowKey<A>],
        values: &mut [Option<&'t V>],
    ) where
        A: FlowAddress,
        G: AsRef<Guard> + ?Sized,
    {
        self.current(turn).lookup_many(keys, values);
    }
}

/// Lists of a classifier as they are at one time, for the rest of the turn.
#[derive(Clone, Copy, Debug)]
pub struct CurrentRules<'t, V> {
    generation: Option<Generation<'t>>,
    instructions: Available,
    value: PhantomData<fn() -> V>,
}

impl<'t, V: Value> CurrentRules<'t, V> {
    /// Returns the value of the first rule that matches a packet, or `None` without one.
    #[inline]
    #[must_use]
    pub fn lookup<A: FlowAddress>(&self, key: &FlowKey<A>) -> Option<&'t V> {
        let mut found = [None];
        self.lookup_many(std::slice::from_ref(key), &mut found);
        found[0]
    }

    /// Looks up many packets at once, so that their cache misses overlap. Writes the value of each
    /// packet's first matching rule to `values`, as far as it has room. Bursts of 32 are the
    /// fastest.
    #[inline]
    pub fn lookup_many<A: FlowAddress>(&self, keys: &[FlowKey<A>], values: &mut [Option<&'t V>]) {
        let count = keys.len().min(values.len());
        let (keys, values) = (&keys[..count], &mut values[..count]);
        let Some(generation) = &self.generation else {
            values.fill(None);
            return;
        };
        let family = &generation.header.families[A::NUMBER];
        let all: &[V] = generation.array(family.values);
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            let mut rules = [NONE; BURST];
            self.burst::<A>(generation, family, keys, &mut rules);
            let found = rules.iter().map(|rule| all.get(*rule as usize));
            values.iter_mut().zip(found).for_each(|(value, found)| *value = found);
        }
    }

    #[inline(always)]
    fn burst<A: FlowAddress>(
        &self,
        generation: &Generation<'_>,
        family: &FamilyHeader,
        keys: &[FlowKey<A>],
        rules: &mut [u32; BURST],
    ) {
        match self.instructions {
            #[cfg(any(not(target_arch = "x86_64"), miri))]
            Available::Portable => classify::<A, Portable>(generation, family, keys, rules),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Available::Sse2 => classify::<A, Sse2>(generation, family, keys, rules),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: the processor has these instructions (`Available::fastest`).
            Available::Avx2 => unsafe { classify_avx2(generation, family, keys, rules) },
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: as above.
            Available::Avx512 => unsafe { classify_avx512(generation, family, keys, rules) },
        }
    }
}
