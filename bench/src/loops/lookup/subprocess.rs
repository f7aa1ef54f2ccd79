//! A contender as a subprocess that runs lookups on request.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, PipeReader};
use std::time::Duration;

use fastlane_measure::program::Program;

use crate::Result;
use crate::loops::lookup::workload::File;
use crate::loops::lookup::{LOOKUPS, Programs};
use crate::rivals::eal::{CPU, Eal};
use crate::slices::{Contender, Slice};

/// Memory of EAL itself in megabytes; tables have a separate heap.
const MEMORY: u64 = 64;
/// Setting that makes the C library use huge pages for allocations of crates.
const TUNABLES: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";

/// Table implementation that runs the lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableContender {
    /// `Hash::get_many` of Fastlane.
    Hash,
    /// rte_hash with lock-free readers, `rte_hash_lookup_bulk_data`.
    RteHash,
    /// The crate hashbrown, which is private to its process.
    Hashbrown,
    /// `Lpm4::lookup` of Fastlane, one address at a time.
    Lpm4,
    /// `Lpm4::lookup_many` of Fastlane.
    Lpm4Many,
    /// rte_fib, DIR24_8 with next hops of 4 bytes, scalar lookup.
    RteFib,
    /// rte_fib with AVX-512 lookup.
    RteFibVector,
    /// rte_lpm, bulk lookup.
    RteLpm,
    /// The crate prefix-trie, IPv4.
    PrefixTrie,
    /// `Lpm6::lookup` of Fastlane.
    Lpm6,
    /// `Lpm6::lookup_many` of Fastlane.
    Lpm6Many,
    /// rte_fib6, a trie with next hops of 4 bytes, scalar lookup.
    RteFib6,
    /// rte_fib6 with AVX-512 lookup.
    RteFib6Vector,
    /// The crate prefix-trie, IPv6.
    PrefixTrie6,
    /// `ClassifierReader::lookup_many` of Fastlane.
    Classifier,
    /// Aggregated bit vectors, which Fastlane does not use.
    BitVectors,
    /// Tuple space search, which Fastlane does not use.
    TupleSpace,
    /// rte_acl with AVX2.
    RteAcl,
    /// rte_acl with AVX-512, 16 packets at once.
    RteAclVector16,
    /// rte_acl with AVX-512, 32 packets at once.
    RteAclVector32,
}

impl TableContender {
    /// Returns the name on the command line.
    fn kind(self) -> &'static str {
        match self {
            Self::Hash | Self::RteHash => "hash",
            Self::Hashbrown => "hashbrown",
            Self::Lpm4 => "lpm4",
            Self::Lpm4Many => "lpm4-many",
            Self::RteFib => "fib",
            Self::RteFibVector => "fib-vector",
            Self::RteLpm => "lpm",
            Self::PrefixTrie => "prefix-trie",
            Self::Lpm6 => "lpm6",
            Self::Lpm6Many => "lpm6-many",
            Self::RteFib6 => "fib6",
            Self::RteFib6Vector => "fib6-vector",
            Self::PrefixTrie6 => "prefix-trie6",
            Self::Classifier => "classifier",
            Self::BitVectors => "bit-vectors",
            Self::TupleSpace => "tuple-space",
            Self::RteAcl => "acl-avx2",
            Self::RteAclVector16 => "acl-x16",
            Self::RteAclVector32 => "acl-x32",
        }
    }

    fn is_dpdk(self) -> bool {
        matches!(
            self,
            Self::RteHash
                | Self::RteFib
                | Self::RteFibVector
                | Self::RteLpm
                | Self::RteFib6
                | Self::RteFib6Vector
                | Self::RteAcl
                | Self::RteAclVector16
                | Self::RteAclVector32
        )
    }

    /// Returns true if the table takes a minute to build.
    pub(super) fn is_slow_to_build(self) -> bool {
        self == Self::RteLpm
    }
}

impl std::fmt::Display for TableContender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Hash => "Hash::get_many",
            Self::RteHash => "rte_hash, lock-free, bulk",
            Self::Hashbrown => "hashbrown",
            Self::Lpm4 => "Lpm4::lookup",
            Self::Lpm4Many => "Lpm4::lookup_many",
            Self::RteFib => "rte_fib, scalar",
            Self::RteFibVector => "rte_fib, AVX-512",
            Self::RteLpm => "rte_lpm",
            Self::PrefixTrie | Self::PrefixTrie6 => "prefix-trie",
            Self::Lpm6 => "Lpm6::lookup",
            Self::Lpm6Many => "Lpm6::lookup_many",
            Self::RteFib6 => "rte_fib6, scalar",
            Self::RteFib6Vector => "rte_fib6, AVX-512",
            Self::Classifier => "ClassifierReader::lookup_many",
            Self::BitVectors => "bit vectors",
            Self::TupleSpace => "tuple space search",
            Self::RteAcl => "rte_acl, AVX2",
            Self::RteAclVector16 => "rte_acl, AVX-512, 16 at once",
            Self::RteAclVector32 => "rte_acl, AVX-512, 32 at once",
        })
    }
}

/// Page size of the tables, the same for all contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages of 4 KiB; huge pages are disabled for the process.
    Small,
    /// Transparent huge pages, where the kernel provides them.
    Huge,
}

impl Pages {
    /// Returns the name on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Huge => "huge",
        }
    }
}

/// Running contender.
pub(super) struct Subprocess {
    pub(super) who: TableContender,
    pub(super) build_ms: u64,
    pub(super) memory: [u64; 2],
    /// Results of a pass over each set, folded in order.
    pub(super) results: Vec<u64>,
    /// Index of the set to work on.
    pub(super) set: usize,
    program: Program,
    output: BufReader<PipeReader>,
    _eal: Option<Eal>,
}

impl Subprocess {
    /// Starts the contender and waits until it has built its table and looked up all queries once.
    pub(super) fn start(
        who: TableContender,
        pages: Pages,
        file: &File,
        programs: &Programs,
    ) -> Result<Self> {
        let eal = who.is_dpdk().then(Eal::new);
        let mut arguments: Vec<OsString> =
            [TUNABLES, "taskset", "-c", &CPU.to_string()].map(Into::into).to_vec();
        if let Some(eal) = &eal {
            arguments.push(programs.dpdk.path().into());
            // EAL uses AVX-512 only if it is permitted. EAL binds the thread itself.
            let words = format!(
                "-l {CPU} --no-pci --no-telemetry --no-huge -m {MEMORY} --file-prefix {} \
                 --force-max-simd-bitwidth=512 --",
                eal.prefix
            );
            arguments.extend(words.split_whitespace().map(Into::into));
        } else {
            arguments.extend([programs.own.as_os_str().to_owned(), LOOKUPS.into()]);
        }
        arguments.extend([who.kind(), pages.word()].map(Into::into));
        arguments.push(file.path().into());
        let (program, output) = Program::start_and_listen(&who.to_string(), "env", arguments)?;
        let (build_ms, memory, results, set) = (0, [0; 2], Vec::new(), 0);
        let mut talking = Self { who, build_ms, memory, results, set, program, output, _eal: eal };
        loop {
            let line = talking.line()?;
            // EAL prints other lines too.
            let Some(words) = line.strip_prefix("ready ") else { continue };
            let numbers = numbers(words)?;
            let [table, huge, build_ms, results @ ..] = &numbers[..] else {
                return Err(talking.program.failure("printed an incomplete `ready` line").into());
            };
            (talking.build_ms, talking.memory) = (*build_ms, [*table, *huge]);
            talking.results = results.to_vec();
            return Ok(talking);
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => {
                let _ = self.program.stop();
                Err(self.program.failure("has ended").into())
            }
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

fn numbers(words: &str) -> Result<Vec<u64>> {
    Ok(words.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?)
}

impl Contender for Subprocess {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        self.program.say(&format!("{} {}", self.set, length.as_micros()))?;
        let line = self.line()?;
        match numbers(&line)?[..] {
            [cpu, packets, _] => Ok(Slice { cpu, packets }),
            _ => Err(self.program.failure("printed no result of a slice").into()),
        }
    }
}
