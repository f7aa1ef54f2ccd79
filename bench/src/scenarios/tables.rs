//! The cost of a table lookup.

use crate::Result;
use crate::loops::lookup::rule_sets::{Flavour, rule_set};
use crate::loops::lookup::workload::{exact, routes, routes6};
use crate::loops::lookup::{ContenderResult, Pages, Programs, Setting, TableContender, compare};
use crate::report::figure::{Figure, Style};
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::slices::{Effort, Pairs};

/// Upper bound of the ratio; see the README.
const HASH_BOUND: f64 = 1.2;
/// Upper bound of the ratio to the fastest rival for IPv4.
const PREFIX_BOUND: f64 = 1.05;
/// Upper bound of the ratio to the fastest rival for IPv6.
const PREFIX6_BOUND: f64 = 1.0;
/// Number of rounds after which the programs are restarted.
const RESTART: usize = 8;
/// Number of rounds after which programs are restarted that take seconds to build their tables.
const RESTART_ROUTES: usize = 16;

/// Compares exact-match tables: keys of 16 bytes, values of 64 bytes, bulks of 32.
///
/// # Errors
/// Returns an error if DPDK is not installed or a contender does not run.
pub fn hash(report: &mut Report, options: &Options) -> Result<()> {
    let programs = Programs::new()?;
    let who = [TableContender::Hash, TableContender::RteHash, TableContender::Hashbrown];
    let mut memory = tallies("hash", "Entries");
    for (count, entries) in [(10_000, "10k"), (1_000_000, "1M")] {
        let workload = exact(count);
        for pages in [Pages::Huge, Pages::Small] {
            let what = format!("exact match, {entries} entries, {} pages", pages.word());
            let setting = Setting { pages, effort: options.effort, restart: RESTART };
            let tell = |number| options.tell(&what, number);
            let found = compare(&who, &workload, setting, &programs, tell)?;
            let place = format!("{entries}, {}", pages.word());
            tally(&mut memory, &found, &place);
            let what = if pages == Pages::Huge && !found[0].is_huge() {
                format!("{what}, ours in small ones")
            } else {
                what
            };
            for (set, queries) in ["all hit", "half miss"].into_iter().enumerate() {
                let work = format!("{what}, {queries}");
                for (rival, bound) in [(1, Some(HASH_BOUND)), (2, None)] {
                    push(report, &work, [&found[0], &found[rival]], set, bound);
                }
            }
        }
    }
    report.figures.extend(memory);
    Ok(())
}

/// Compares longest-prefix-match tables, IPv4 and IPv6.
///
/// # Errors
/// Returns an error if DPDK is not installed or a contender does not run.
pub fn prefixes(report: &mut Report, options: &Options) -> Result<()> {
    let programs = Programs::new()?;
    let mut who = vec![
        TableContender::Lpm4Many,
        TableContender::Lpm4,
        TableContender::RteFib,
        TableContender::RteLpm,
        TableContender::PrefixTrie,
    ];
    let mut who6 = vec![
        TableContender::Lpm6Many,
        TableContender::Lpm6,
        TableContender::RteFib6,
        TableContender::PrefixTrie6,
    ];
    if avx512() {
        who.insert(3, TableContender::RteFibVector);
        who6.insert(3, TableContender::RteFib6Vector);
    } else {
        report.left_out.push("rte_fib and rte_fib6 by AVX-512: this processor has none".into());
    }
    let title = "CPU time per lookup of the longest prefix, ns";
    let mut costs = Figure::new("prefixes", title, "Prefixes, destinations", Style::Bars);
    let mut memory = tallies("prefixes", "Prefixes");
    let sets = ["uniform", "50k", "1k"];
    let four = [(100_000, "100k"), (1_000_000, "1M")];
    let four = four.map(|(count, name)| (routes(count), name.to_owned(), &who, &sets[..]));
    let six = (routes6(200_000), "IPv6 200k".to_owned(), &who6, &["of routes"][..]);
    let effort = Effort { slice: options.effort.slice / 2, ..options.effort };
    for (workload, name, who, sets) in four.into_iter().chain([six]) {
        let setting = Setting { pages: Pages::Huge, effort, restart: RESTART_ROUTES };
        let tell = |number| options.tell(&format!("{name} prefixes"), number);
        let found = compare(who, &workload, setting, &programs, tell)?;
        tally(&mut memory, &found, &name);
        for (set, queries) in sets.iter().enumerate() {
            let place = format!("{name}, {queries}");
            for one in &found {
                one.costs[set]
                    .iter()
                    .for_each(|cost| costs.add(&one.who.to_string(), &place, *cost));
            }
            let work = format!("longest prefix, {place}");
            let best = best(&found[2..], set);
            let bound = if name.starts_with("IPv6") { PREFIX6_BOUND } else { PREFIX_BOUND };
            push(report, &work, [&found[0], best], set, Some(bound));
        }
    }
    report.figures.push(costs);
    report.figures.extend(memory);
    Ok(())
}

/// Compares classifiers: lists of 10 to 10,000 rules in three flavours, bursts of 32, each packet
/// of another flow.
///
/// # Errors
/// Returns an error if DPDK is not installed or a contender does not run.
pub fn classifiers(report: &mut Report, options: &Options) -> Result<()> {
    let programs = Programs::new()?;
    let mut who = vec![
        TableContender::Classifier,
        TableContender::BitVectors,
        TableContender::TupleSpace,
        TableContender::RteAcl,
    ];
    if avx512() {
        who.extend([TableContender::RteAclVector16, TableContender::RteAclVector32]);
    } else {
        report.left_out.push("rte_acl by AVX-512: this processor has none".into());
    }
    let title = "CPU time to classify a packet, ns";
    let mut costs = Figure::new("classifiers", title, "Rules", Style::Bars);
    let mut memory = tallies("classifiers", "Rules");
    let flavours = [(Flavour::Acl, "ACL"), (Flavour::Firewall, "FW"), (Flavour::IpChain, "IPC")];
    for (count, goal) in [(10, Some(15.0)), (256, Some(40.0)), (1_000, None), (10_000, Some(100.0))]
    {
        for (flavour, name) in flavours {
            let workload = rule_set(flavour, count, 1 << 16);
            let setting =
                Setting { pages: Pages::Huge, effort: options.effort, restart: RESTART_ROUTES };
            let place = format!("{name} {count}");
            let tell = |number| options.tell(&format!("rules, {place}"), number);
            let found = compare(&who, &workload, setting, &programs, tell)?;
            tally(&mut memory, &found, &place);
            for one in &found {
                let name = one.who.to_string();
                one.costs[0].iter().for_each(|cost| costs.add(&name, &place, *cost));
            }
            let work = format!("classification, {place} rules");
            let rival = best(&found[3..], 0);
            push(report, &work, [&found[0], rival], 0, None);
            let [ours, rival_costs] = [&found[0], rival].map(|found| found.costs[0].clone());
            let names = [work, found[0].who.to_string(), rival.who.to_string()];
            let pairs = Pairs { ours, rival: rival_costs };
            report.comparisons.push(Comparison::new(names, pairs, Kind::Cost, goal));
        }
    }
    report.figures.push(costs);
    report.figures.extend(memory);
    Ok(())
}

/// Returns the rival that is fastest on a set.
fn best(rivals: &[ContenderResult], set: usize) -> &ContenderResult {
    let cost = |found: &&ContenderResult| crate::statistics::median(&found.costs[set]);
    rivals.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(&rivals[0])
}

fn push(
    report: &mut Report,
    work: &str,
    pair: [&ContenderResult; 2],
    set: usize,
    bound: Option<f64>,
) {
    let [ours, rival] = pair.map(|found| found.costs[set].clone());
    let names = [work.to_owned(), pair[0].who.to_string(), pair[1].who.to_string()];
    let pairs = Pairs { ours, rival };
    report.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, bound));
}

/// Creates the figures of build time and memory.
fn tallies(name: &str, along: &str) -> [Figure; 3] {
    let figure = |part, title| Figure::new(&format!("{name}-{part}"), title, along, Style::Bars);
    [
        figure("build", "Time to build, ms"),
        figure("memory", "Memory of the table, MiB"),
        figure("huge", "Memory of the table in huge pages, MiB"),
    ]
}

fn tally(figures: &mut [Figure; 3], found: &[ContenderResult], place: &str) {
    for one in found {
        let [resident, huge] = one.memory.map(|kib| kib as f64 / 1024.0);
        for (figure, value) in figures.iter_mut().zip([one.build_ms as f64, resident, huge]) {
            figure.add(&one.who.to_string(), place, value);
        }
    }
}

/// Returns true if the processor supports DPDK's vector lookups; only x86 has such flags.
fn avx512() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |name: &&str| flags.split(' ').any(|flag| flag == *name);
    ["avx512f", "avx512dq"].iter().all(has)
}
