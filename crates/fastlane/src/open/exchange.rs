//! Packet exchange between lanes: rings, shards and keys (`lane-by`, master-worker).

use std::sync::Arc;

use fastlane_core::{LaneConfig, Pool};
use fastlane_local::ring::{self, LaneDoorbell};
use fastlane_sharding::{
    ExchangeConfig, FrameShard, LaneBy, LaneRing, ShardClassifier, ShardMigration, Shards,
};
use fastlane_steer::LaneKey;
use fastlane_table::SharedMemory;

use crate::Error;
use crate::config::lane_roles;
use crate::config::plan::{Plan, PortPlan};

/// Capacity of a lane's migration buffer in packets: arrivals of a few turns.
const MIGRATION_BUFFER: usize = 1024;

/// Exchange of all lanes. Empty if packets stay in the lane in which they arrive.
pub(crate) struct LaneExchanges {
    /// Configuration of each lane's exchange.
    pub(crate) parts: Vec<Option<ExchangeConfig>>,
    pub(crate) migration: Option<ShardMigration>,
}

/// Connects the lanes of `plan` if its model or the `lane-by` of a port requires it.
///
/// # Errors
/// Fails if memory or descriptors are exhausted.
pub(crate) fn connect(plan: &Plan, lanes: &[LaneConfig]) -> Result<LaneExchanges, Error> {
    let none = || lanes.iter().map(|_| None).collect();
    let Some(ring) = plan.ring else { return Ok(LaneExchanges { parts: none(), migration: None }) };
    let refuse = |error: std::io::Error| {
        let reason = format!(
            "no memory or descriptors for the rings between lanes ({error}); reduce \
             `lanes.frames` or raise `ulimit -n`"
        );
        Error::Service { what: "lanes", reason }
    };
    let bells = ring::doorbells(lanes.len()).map_err(refuse)?;
    let memory = SharedMemory::create("fastlane-shards", Shards::bytes(lanes.len()));
    let memory = Arc::new(memory.map_err(refuse)?);
    memory.populate().map_err(refuse)?;
    let owners = &plan.lane_roles.applications;
    let shards = Shards::new(&memory, lanes.len(), owners)
        .map_err(|error| refuse(std::io::Error::other(error)))?;
    let rings = lane_rings(plan, &bells, ring);
    let parts = rings.into_iter().enumerate().map(|(lane, rings)| {
        let buffer = SharedMemory::create("fastlane-migration", MIGRATION_BUFFER * plan.frame_size);
        let buffer = buffer.map_err(refuse)?;
        buffer.populate().map_err(refuse)?;
        let buffer = Pool::new(buffer, plan.frame_size, plan.headroom)
            .map_err(|error| refuse(std::io::Error::other(error)))?;
        Ok(Some(ExchangeConfig {
            lane,
            rings,
            lane_by: plan.ports.iter().map(lane_by).collect(),
            carriers: (0..plan.ports.len()).map(|port| carrier(plan, lanes, lane, port)).collect(),
            has_application: owners.contains(&lane),
            shards: shards.clone(),
            migration_pool: buffer,
        }))
    });
    let parts = parts.collect::<Result<_, Error>>()?;
    plan.ports.iter().for_each(|port| report(plan, port, lanes, ring));
    let wake = Box::new(move |lane: usize| bells[lane].ring());
    let migration =
        ShardMigration::new(shards, plan.lane_roles.ports.clone(), owners.clone(), wake);
    Ok(LaneExchanges { parts, migration: Some(migration) })
}

/// Creates for each lane its ring to each other lane that needs one.
fn lane_rings(
    plan: &Plan,
    bells: &[Arc<LaneDoorbell>],
    ring: usize,
) -> Vec<Vec<Option<Box<dyn LaneRing>>>> {
    let count = bells.len();
    let mut rings: Vec<Vec<Option<Box<dyn LaneRing>>>> =
        (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
    let has_ports = |lane: usize| plan.lane_roles.ports.contains(&lane);
    for one in 0..count {
        for other in one + 1..count {
            if plan.lane_roles.is_split() && has_ports(one) == has_ports(other) {
                continue;
            }
            let bells = [&bells[one], &bells[other]];
            let [here, there] = ring::lane_ring(bells, ring, plan.frame_size);
            rings[one][other] = Some(Box::new(here));
            rings[other][one] = Some(Box::new(there));
        }
    }
    rings
}

fn lane_by(port: &PortPlan) -> LaneBy {
    match port.lane_by {
        lane_roles::LaneBy::Rss => LaneBy::Arrival,
        lane_roles::LaneBy::Key(key) => LaneBy::Key(Box::new(ReferenceKeys(key))),
        lane_roles::LaneBy::Application => LaneBy::Application,
    }
}

/// Returns the lane that transmits to a port for a lane without a queue of it. It is always the
/// same one, so packets stay in order.
fn carrier(plan: &Plan, lanes: &[LaneConfig], lane: usize, port: usize) -> Option<usize> {
    let port = usize::from(plan.carrier_of(&plan.ports[port]).0);
    let has_queue = |lane: &usize| !lanes[*lane].ports[port].queues.is_empty();
    let index = plan.lane_roles.applications.iter().position(|other| *other == lane)?;
    let candidates: Vec<usize> =
        plan.lane_roles.ports.iter().copied().filter(|lane| has_queue(lane)).collect();
    if candidates.is_empty() || candidates.contains(&lane) {
        return None;
    }
    Some(candidates[index % candidates.len()])
}

/// Shards determined by the reference implementation of the keys in `steer`.
struct ReferenceKeys(LaneKey);

impl ShardClassifier for ReferenceKeys {
    #[inline]
    fn classify(&mut self, frame: &[u8]) -> FrameShard {
        match self.0.of(frame) {
            fastlane_steer::Keyed::Shard(shard) => FrameShard::Shard(shard),
            fastlane_steer::Keyed::None => FrameShard::None,
            fastlane_steer::Keyed::Fragment => FrameShard::Fragment,
        }
    }
}

/// Logs how packets of a port find their lane.
fn report(plan: &Plan, port: &PortPlan, lanes: &[LaneConfig], ring: usize) {
    let number = usize::from(plan.carrier_of(port).0);
    let queues: usize = lanes.iter().map(|lane| lane.ports[number].queues.len()).sum();
    let (name, by) = (&port.name, port.lane_by.name());
    let workers = plan.lane_roles.applications.len();
    match port.lane_by {
        lane_roles::LaneBy::Rss => {
            tracing::info!("port `{name}`: lane by {by}: the device chooses the queue");
        }
        _ if plan.lane_roles.is_split() => tracing::info!(
            "port `{name}`: lane by {by}: packets of {queues} queue(s) are passed to {workers} \
             worker(s), at most {ring} in flight to each"
        ),
        _ => tracing::info!(
            "port `{name}`: lane by {by}: packets of another lane's key are passed to it, at most \
             {ring} in flight to each"
        ),
    }
}
