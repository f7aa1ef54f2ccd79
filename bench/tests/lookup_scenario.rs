//! All measured tables return the same results: those of Fastlane, of DPDK and of crates.

use std::time::Duration;

use fastlane_bench::loops::lookup::rule_sets::{Flavour, rule_set};
use fastlane_bench::loops::lookup::workload::{CHUNK, Workload, exact, routes, routes6};
use fastlane_bench::loops::lookup::{Pages, Programs, Setting, TableContender, compare};
use fastlane_bench::rivals::dpdk_loop::Compiled;
use fastlane_bench::slices::Effort;
use fastlane_testing::skip;

fn agree(who: &[TableContender], mut workload: Workload) {
    let dpdk = match Compiled::lookups() {
        Ok(compiled) => compiled,
        Err(error) => return skip("bench-lookup", &error.to_string()),
    };
    let programs = Programs { dpdk, own: env!("CARGO_BIN_EXE_fastlane-bench").into() };
    let size = CHUNK * workload.query;
    workload.sets.iter_mut().for_each(|set| set.truncate(size));
    let effort = Effort { pairs: 1, slice: Duration::from_millis(20) };
    let setting = Setting { pages: Pages::Small, effort, restart: 1 };
    // `compare` fails if the results of the contenders differ.
    let found = compare(who, &workload, setting, &programs, |_| {}).unwrap();
    assert_eq!(found.len(), who.len());
    for found in found {
        assert_eq!(found.costs.len(), workload.sets.len());
        assert!(found.costs.iter().flatten().all(|cost| *cost > 0.1), "{found:?}");
    }
}

#[test]
fn exact_match() {
    agree(&[TableContender::Hash, TableContender::RteHash, TableContender::Hashbrown], exact(5000));
}

#[test]
fn longest_prefix_of_ipv4() {
    let who = [
        TableContender::Lpm4,
        TableContender::Lpm4Many,
        TableContender::RteFib,
        TableContender::RteLpm,
        TableContender::PrefixTrie,
    ];
    agree(&who, routes(5000));
}

#[test]
fn longest_prefix_of_ipv6() {
    agree(
        &[
            TableContender::Lpm6,
            TableContender::Lpm6Many,
            TableContender::RteFib6,
            TableContender::PrefixTrie6,
        ],
        routes6(2000),
    );
}

#[test]
fn first_rule_of_a_list() {
    let who = [
        TableContender::Classifier,
        TableContender::BitVectors,
        TableContender::TupleSpace,
        TableContender::RteAcl,
    ];
    for flavour in [Flavour::Acl, Flavour::Firewall, Flavour::IpChain] {
        agree(&who, rule_set(flavour, 700, CHUNK));
    }
}
