//! The cost of a firewall with NAT in the kernel: the kernel tier beside Linux.

use crate::Result;
use crate::device::cpu_time::{pin, undisturbed};
use crate::device::nat_router::{CPU, NatRouter, Work};
use crate::device::veth_pair::in_namespace;
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::slices::{Pairs, pair};

/// Numbers of flows, and the bound of the cost in relation to masquerade of Linux.
const FLOWS: [(u32, f64); 2] = [(1_024, 1.0 / 4.0), (65_536, 1.0 / 3.0)];
/// Lengths of frames with the frame check sequence.
const LENGTHS: [usize; 4] = [64, 128, 256, 512];
const RIVALS: [Work; 3] = [Work::Masquerade, Work::Tracking, Work::Forwarding];

/// Compares the kernel tier with Linux, by the number of flows and the length of frames.
///
/// # Errors
/// Returns an error if the kernel refuses something, or packets are lost.
pub fn firewall(report: &mut Report, options: &Options) -> Result<()> {
    for (flows, bound) in FLOWS {
        report.comparisons.extend(in_namespace(|| {
            pin(CPU);
            undisturbed(|| compare(flows, bound, options))
        })?);
    }
    Ok(())
}

fn compare(flows: u32, bound: f64, options: &Options) -> Result<Vec<Comparison>> {
    let mut ours = NatRouter::new(Work::KernelTier, flows)?;
    let mut comparisons = Vec::new();
    for work in RIVALS {
        let mut rival = NatRouter::new(work, flows)?;
        for length in LENGTHS {
            ours.set_length(length)?;
            rival.set_length(length)?;
            let mut pairs = Pairs::default();
            for number in 0..options.effort.pairs {
                options.tell(&format!("firewall, {flows} flows, {length} B, {work:?}"), number);
                pair(&mut pairs, options.effort.slice / 2, &mut ours, &mut rival)?;
            }
            let name = format!("UDP of {length} B between veth pairs, {flows} flows");
            let names = [name, Work::KernelTier.name().to_owned(), work.name().to_owned()];
            let bound = (work == Work::Masquerade).then_some(bound);
            comparisons.push(Comparison::new(names, pairs, Kind::Ratio, bound));
        }
    }
    Ok(comparisons)
}
