//! The server side of a contender, which runs lookups on request; `c/dpdk_lookup.c` does the same.

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use crate::loops::lookup::BULK;
use crate::loops::lookup::workload::{CHUNK, Workload};
use crate::rivals::ffi::in_huge_pages;
use crate::slices::thread_cpu;
use crate::{Error, Result};

/// Server of lookups on one table.
pub(super) struct Server<Q: 'static> {
    sets: Vec<&'static [Q]>,
    places: Vec<usize>,
    built: Duration,
    /// Memory of the table and the part of it in huge pages, in KiB.
    table: [u64; 2],
}

/// Time and memory before a table is built.
pub(super) struct Start(Instant, [u64; 2]);

impl Start {
    /// Takes the current time and memory.
    pub(super) fn now() -> Result<Self> {
        Ok(Self(Instant::now(), memory()?))
    }
}

impl<Q: Copy + 'static> Server<Q> {
    /// Creates a server for the queries of a workload, which lie in huge pages as the program on
    /// DPDK has them. `query` converts the bytes of a query; `start` was taken before the table was
    /// built.
    pub(super) fn new<const N: usize>(
        workload: &Workload,
        start: Start,
        query: impl Fn([u8; N]) -> Q,
    ) -> Result<Self> {
        let built = start.0.elapsed();
        let now = memory()?;
        let table = [0, 1].map(|part| now[part].saturating_sub(start.1[part]));
        let set = |bytes: &Vec<u8>| {
            let queries: Vec<Q> = bytes.as_chunks().0.iter().map(|one| query(*one)).collect();
            in_huge_pages(&queries)
        };
        let sets = workload.sets.iter().map(set).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { places: vec![0; sets.len()], sets, built, table })
    }

    /// Prints the results of a pass over all queries, then runs lookups on request until the input
    /// ends. `find` writes the result of each of [`BULK`] queries as the table has it, `number`
    /// turns a result into a number, 0 for no entry.
    ///
    /// # Errors
    /// Returns an error if a line is invalid.
    pub(super) fn serve<R: Copy + Default>(
        mut self,
        mut find: impl FnMut(&[Q; BULK], &mut [R; BULK]),
        number: impl Fn(R) -> u64,
    ) -> Result<()> {
        let mut results = [R::default(); BULK];
        let mut output = std::io::stdout().lock();
        let [table, huge] = self.table;
        write!(output, "ready {table} {huge} {}", self.built.as_millis())?;
        for set in &self.sets {
            let mut folded = 0_u64;
            for queries in set.as_chunks().0 {
                find(queries, &mut results);
                let fold = |folded: u64, result: &R| {
                    (folded ^ number(*result)).wrapping_mul(0x0100_0000_01b3)
                };
                folded = results.iter().fold(folded, fold);
            }
            write!(output, " {folded}")?;
        }
        writeln!(output)?;
        output.flush()?;
        let mut sum = 0_u64;
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            let numbers: Option<(&str, &str)> = line.split_once(' ');
            let (set, limit) = numbers.ok_or("SET MICROSECONDS")?;
            let (set, limit) = (set.parse::<usize>()?, Duration::from_micros(limit.parse()?));
            let [set, place] = [set, *self.places.get(set).ok_or("no such set")?];
            let queries = self.sets[set];
            let (end, start) = (Instant::now() + limit, thread_cpu());
            let (mut place, mut done) = (place, 0_u64);
            loop {
                for queries in queries[place..place + CHUNK].as_chunks().0 {
                    find(queries, &mut results);
                    sum = results.iter().fold(sum, |sum, result| sum.wrapping_add(number(*result)));
                }
                done += CHUNK as u64;
                place = (place + CHUNK) % queries.len();
                if Instant::now() >= end {
                    break;
                }
            }
            self.places[set] = place;
            writeln!(output, "{} {done} {sum}", thread_cpu() - start)?;
            output.flush()?;
        }
        Ok(())
    }
}

/// Returns the resident memory and the part of it in huge pages, in KiB.
fn memory() -> Result<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let number = |key: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or_else(|| Error::from(format!("no {key} in smaps_rollup")))?.parse()?)
    };
    Ok([number("Rss:")?, number("AnonHugePages:")? + number("ShmemPmdMapped:")?])
}
