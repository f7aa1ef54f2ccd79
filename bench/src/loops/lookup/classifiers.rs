//! Classifiers: that of Fastlane, and the algorithms that were measured beside it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use fastlane_table::{
    ClassifierReader, ClassifierWriter, FlowKey, FlowMatch, Prefix, Readers, RuleList, Spec,
};

use crate::Result;
use crate::loops::lookup::BULK;
use crate::loops::lookup::bit_vectors::BitVectors;
use crate::loops::lookup::rule_sets::{Flow, FlowRule};
use crate::loops::lookup::server::{Server, Start};
use crate::loops::lookup::tuple_space::TupleSpace;
use crate::loops::lookup::workload::Workload;
use crate::rivals::ffi::guard;

/// Memory of a compiled list, in KiB: for the lists of 10,000 rules.
const GROUPS: usize = 16 << 10;

/// Returns the rules of a workload.
fn rules(workload: &Workload) -> Vec<FlowRule> {
    workload.entries.as_chunks().0.iter().map(FlowRule::read).collect()
}

/// Serves the classifier of Fastlane.
pub(super) fn fastlane(workload: &Workload) -> Result<()> {
    let start = Start::now()?;
    let spec = Spec::classifier::<u64>("lookup", workload.count).with_groups(GROUPS);
    let memory = spec.create()?;
    let mut writer = ClassifierWriter::<u64>::attach(&memory, &Arc::new(Readers::unknown()))?;
    let prefix = |rule: &FlowRule, side: usize| {
        let address = Ipv4Addr::from_bits(rule.addresses[side]);
        Prefix::new(address, rule.lengths[side] as u8).ok_or("no prefix")
    };
    let all = rules(workload);
    let list = all.iter().zip(1..).map(|(rule, number)| {
        let conditions = FlowMatch {
            source: prefix(rule, 0)?,
            destination: prefix(rule, 1)?,
            source_ports: rule.ports[0],
            destination_ports: rule.ports[1],
            protocols: rule.protocols,
            tags: [0, u8::MAX],
        };
        Ok((conditions, number))
    });
    let list: Vec<(FlowMatch<Ipv4Addr>, u64)> = list.collect::<Result<_>>()?;
    writer.replace(&RuleList { ipv4: &list, ipv6: &[], source: &[] })?;
    let reader = ClassifierReader::<u64>::attach(&memory)?;
    let guard = guard(writer);
    let key = |query| {
        let Flow { addresses, ports, protocol } = Flow::read(query);
        let [source, destination] = addresses.map(Ipv4Addr::from_bits);
        let [source_port, destination_port] = ports;
        FlowKey { source, destination, source_port, destination_port, protocol, tag: 0 }
    };
    Server::new(workload, start, key)?.serve::<u64>(
        |keys, results| {
            let mut found = [None; BULK];
            reader.lookup_many(&guard, keys, &mut found);
            for (found, result) in found.iter().zip(results) {
                *result = found.copied().unwrap_or(0);
            }
        },
        u64::from,
    )
}

/// Serves bit vectors.
pub(super) fn bit_vectors(workload: &Workload) -> Result<()> {
    let start = Start::now()?;
    let vectors = BitVectors::new(&rules(workload));
    Server::new(workload, start, Flow::read)?
        .serve::<u32>(|flows, results| vectors.find(flows, results), u64::from)
}

/// Serves tuple space search.
pub(super) fn tuple_space(workload: &Workload) -> Result<()> {
    let start = Start::now()?;
    let space = TupleSpace::new(&rules(workload));
    let find = |flows: &[Flow; BULK], results: &mut [u32; BULK]| {
        for (flow, result) in flows.iter().zip(results) {
            *result = space.find(flow);
        }
    };
    Server::new(workload, start, Flow::read)?.serve::<u32>(find, u64::from)
}
