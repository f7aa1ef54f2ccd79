//! The same program in a pod without privilege and on the host.
//!
//! Both have ports on AF_XDP in the network namespace of a node of Kubernetes: the agent has opened
//! those of the pod, the program on the host its own. Program, configuration and kind of interface
//! are the same.

pub mod station;
pub mod subject;

use fastlane_tests::Cluster;
use fastlane_tests::cluster::pod::Pods;
use fastlane_tests::cluster::release::Release;

use crate::Result;
use crate::report::{Comparison, Kind, Report};
use crate::scenarios::Options;
use crate::slices::{Pairs, pair};
use station::{Site, Station};
use subject::Subject;

/// Upper bound of the ratio: a container costs nothing.
const BOUND: f64 = 1.02;
/// Number of pairs after which programs and interfaces are made anew.
const BLOCK: usize = 8;

/// Compares macswap and the UPF in a pod with the same on the host, and macswap on the host with
/// itself.
///
/// # Errors
/// Returns an error if the programs of the cluster are not built or a frame is lost.
///
/// # Panics
/// When the cluster does not do what it should.
pub fn pod(report: &mut Report, options: &Options) -> Result<()> {
    let cluster = Cluster::get().ok_or("no cluster; `make k8s` builds its programs")?;
    let rows = [
        (Subject::Macswap, true, Some(BOUND)),
        (Subject::Upf, true, Some(BOUND)),
        (Subject::Macswap, false, None),
    ];
    for (subject, is_pod, bound) in rows {
        let _release = Release::install(&cluster, "device-plugin", &subject.pool());
        let pods = Pods::new(&cluster, &subject.configuration(&subject.variables()));
        let site = if is_pod { Site::Pod(&pods) } else { Site::Host };
        let pairs = cluster.node().enter(|| compare(&cluster, subject, site, options))?;
        let (ours, work) = match is_pod {
            true => ("pod", format!("{subject} on AF_XDP, veth")),
            false => ("host", format!("control: {subject} on the host twice")),
        };
        let names = [work, ours.to_owned(), "host".to_owned()];
        report.comparisons.push(Comparison::new(names, pairs, Kind::Ratio, bound));
    }
    Ok(())
}

/// Compares a program at `site` with one on the host. The caller is in the network namespace of the
/// node.
fn compare(
    cluster: &Cluster,
    subject: Subject,
    site: Site<'_>,
    options: &Options,
) -> Result<Pairs> {
    let ours = || Station::start(cluster, subject, site, 1);
    let on_host = || Station::start(cluster, subject, Site::Host, 2);
    let mut pairs = Pairs::default();
    while pairs.ours.len() < options.effort.pairs {
        // In alternating order, so that no result depends on the order of creation or on page
        // placement.
        let is_swapped = pairs.ours.len() / BLOCK % 2 == 1;
        let rival = is_swapped.then(on_host).transpose()?;
        let mut ours = ours()?;
        let mut rival = rival.map_or_else(on_host, Ok)?;
        for _ in 0..BLOCK.min(options.effort.pairs - pairs.ours.len()) {
            options.tell(&format!("{subject}, {site} and host"), pairs.ours.len());
            pair(&mut pairs, options.effort.slice, &mut ours, &mut rival)?;
        }
    }
    Ok(pairs)
}
