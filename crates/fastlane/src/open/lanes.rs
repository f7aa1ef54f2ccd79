//! Lanes that change packets: who passes what to whom.

use std::sync::Arc;

use fastlane_core::{LaneConfig, Pool};
use fastlane_local::ring::{self, Doorbell};
use fastlane_sharding::{
    ExchangeConfig, FrameShard, LaneBy, LaneRing, ShardClassifier, ShardMigration, Shards,
};
use fastlane_steer::LaneKey;
use fastlane_table::SharedMemory;

use crate::Error;
use crate::config::plan::{Plan, PortPlan};
use crate::config::threads;

/// Packets that wait in a lane while their shard moves: what arrives in some turns.
const PARK: usize = 1024;

/// The part of each lane in the exchange, and who moves shards; nothing where packets stay in the
/// lane in which they arrive.
pub(crate) struct Exchanges {
    /// One for each lane.
    pub(crate) parts: Vec<Option<ExchangeConfig>>,
    pub(crate) mover: Option<ShardMigration>,
}

/// Connects the lanes of `plan`, as far as its model or the `lane-by` of a port wants it.
pub(crate) fn connect(plan: &Plan, lanes: &[LaneConfig]) -> Result<Exchanges, Error> {
    let none = || lanes.iter().map(|_| None).collect();
    let Some(ring) = plan.ring else { return Ok(Exchanges { parts: none(), mover: None }) };
    let refuse = |error: std::io::Error| {
        let reason = format!("no memory or descriptors for the ways between them ({error})");
        Error::Service { what: "lanes", reason }
    };
    let bells = ring::doorbells(lanes.len()).map_err(refuse)?;
    let memory = SharedMemory::create("fastlane-shards", Shards::bytes(lanes.len()));
    let memory = Arc::new(memory.map_err(refuse)?);
    let owners = &plan.threads.applications;
    let shards = Shards::new(&memory, lanes.len(), owners)
        .map_err(|error| refuse(std::io::Error::other(error)))?;
    let passages = passages(plan, &bells, ring);
    let parts = passages.into_iter().enumerate().map(|(lane, passages)| {
        let park = SharedMemory::create("fastlane-park", PARK * plan.frame_size);
        let park = Pool::new(park.map_err(refuse)?, plan.frame_size, plan.headroom)
            .map_err(|error| refuse(std::io::Error::other(error)))?;
        Ok(Some(ExchangeConfig {
            lane,
            rings: passages,
            lane_by: plan.ports.iter().map(lane_by).collect(),
            carriers: (0..plan.ports.len()).map(|port| carrier(plan, lanes, lane, port)).collect(),
            has_application: owners.contains(&lane),
            shards: shards.clone(),
            migration_pool: park,
        }))
    });
    let parts = parts.collect::<Result<_, Error>>()?;
    plan.ports.iter().for_each(|port| report(plan, port, lanes, ring));
    let wake = Box::new(move |lane: usize| bells[lane].ring());
    let mover = ShardMigration::new(shards, plan.threads.ports.clone(), owners.clone(), wake);
    Ok(Exchanges { parts, mover: Some(mover) })
}

/// For each lane its way to each other one that it needs.
fn passages(
    plan: &Plan,
    bells: &[Arc<Doorbell>],
    ring: usize,
) -> Vec<Vec<Option<Box<dyn LaneRing>>>> {
    let count = bells.len();
    let mut ways: Vec<Vec<Option<Box<dyn LaneRing>>>> =
        (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
    let has_ports = |lane: usize| plan.threads.ports.contains(&lane);
    for one in 0..count {
        for other in one + 1..count {
            if plan.threads.is_split() && has_ports(one) == has_ports(other) {
                continue;
            }
            let bells = [&bells[one], &bells[other]];
            let [here, there] = ring::lane_ring(bells, ring, plan.frame_size);
            ways[one][other] = Some(Box::new(here));
            ways[other][one] = Some(Box::new(there));
        }
    }
    ways
}

fn lane_by(port: &PortPlan) -> LaneBy {
    match port.lane_by {
        threads::LaneBy::Rss => LaneBy::Arrival,
        threads::LaneBy::Key(key) => LaneBy::Key(Box::new(Reference(key))),
        threads::LaneBy::Application => LaneBy::Application,
    }
}

/// The lane that sends by a port for one that has no queue of it. Always the same one, so that what
/// leaves stays in order.
fn carrier(plan: &Plan, lanes: &[LaneConfig], lane: usize, port: usize) -> Option<usize> {
    let has_queue = |lane: &usize| !lanes[*lane].ports[port].queues.is_empty();
    let place = plan.threads.applications.iter().position(|other| *other == lane)?;
    let candidates: Vec<usize> =
        plan.threads.ports.iter().copied().filter(|lane| has_queue(lane)).collect();
    if candidates.is_empty() || candidates.contains(&lane) {
        return None;
    }
    Some(candidates[place % candidates.len()])
}

/// Shards as the reference implementation of the keys determines them.
struct Reference(LaneKey);

impl ShardClassifier for Reference {
    #[inline]
    fn classify(&mut self, frame: &[u8]) -> FrameShard {
        match self.0.of(frame) {
            fastlane_steer::Keyed::Shard(shard) => FrameShard::Shard(shard),
            fastlane_steer::Keyed::None => FrameShard::None,
            fastlane_steer::Keyed::Fragment => FrameShard::Fragment,
        }
    }
}

/// Says who finds the lane of a packet.
fn report(plan: &Plan, port: &PortPlan, lanes: &[LaneConfig], ring: usize) {
    let number = usize::from(port.id.0);
    let queues: usize = lanes.iter().map(|lane| lane.ports[number].queues.len()).sum();
    let (name, by) = (&port.name, port.lane_by.words());
    let workers = plan.threads.applications.len();
    match port.lane_by {
        threads::LaneBy::Rss => {
            tracing::info!("port `{name}`: lane by {by}: the device chooses the queue");
        }
        _ if plan.threads.is_split() => tracing::info!(
            "port `{name}`: lane by {by}: what arrives by {queues} queue(s) is passed to {workers} \
             worker(s), at most {ring} under way to each"
        ),
        _ => tracing::info!(
            "port `{name}`: lane by {by}: what arrives at another lane's queue is passed on, at \
             most {ring} under way to each"
        ),
    }
}
