//! Memory of the lanes: created on their NUMA nodes, populated before the first packet, and locked
//! if the configuration asks for it. Then the page faults that lanes have nevertheless.

use std::sync::OnceLock;
use std::thread;

use fastlane_core::{LaneConfig, Pool};
use fastlane_hold::HoldArea;
use fastlane_table::counters::{Counters, LaneCounter};
use fastlane_table::{PageSize, ProcessMemory, SharedMemory};

use crate::Error;
use crate::config::plan::Plan;
use crate::memory_limit::{MemoryLeft, memory_left};
use crate::threads::{self, PageFaults};

/// Pool and hold area of a lane.
pub(crate) struct LaneMemory {
    pub(crate) pool: Pool,
    pub(crate) hold: HoldArea,
}

/// Creates the memory of all lanes, each in a thread on the lane's CPU: the kernel takes the pages
/// from that CPU's NUMA node. Pools stay without pages if `is_inherited` is true, because those of
/// the previous process usually replace them.
///
/// # Errors
/// Fails if a limit leaves less than is needed, or the kernel has no memory.
pub(crate) fn create(plan: &Plan, is_inherited: bool) -> Result<Vec<LaneMemory>, Error> {
    if !is_inherited {
        check_limit(plan, memory_left())?;
    }
    let create = |lane: usize| {
        let _ = threads::pin(plan.lanes[lane].cpu); // the lane's own thread says if it fails
        create_one(plan, lane, is_inherited)
    };
    thread::scope(|scope| {
        let threads = (0..plan.lanes.len()).map(|lane| {
            let thread = thread::Builder::new().name(format!("memory-{lane}"));
            let started = thread.spawn_scoped(scope, move || create(lane));
            let failed = |error| {
                let reason = format!("a thread cannot start ({error}); configure fewer lanes");
                Error::Lane { lane, reason }
            };
            started.map_err(failed).map(|thread| (lane, thread))
        });
        let threads: Vec<_> = threads.collect::<Result<_, _>>()?;
        let ended = |(lane, thread): (usize, thread::ScopedJoinHandle<'_, _>)| {
            let reason = "its memory could not be created".to_owned();
            thread.join().unwrap_or(Err(Error::Lane { lane, reason }))
        };
        threads.into_iter().map(ended).collect()
    })
}

fn create_one(plan: &Plan, lane: usize, is_inherited: bool) -> Result<LaneMemory, Error> {
    let refuse = |reason: String| Error::Lane { lane, reason };
    let bytes = plan.frames * plan.frame_size;
    let failed = |error: std::io::Error| {
        refuse(format!(
            "no memory for a pool of {} MiB ({error}); reduce `lanes.frames`",
            bytes >> 20
        ))
    };
    let memory = SharedMemory::create("fastlane-pool", bytes).map_err(failed)?;
    if !is_inherited {
        memory.populate().map_err(failed)?;
    }
    let pool = Pool::new(memory, plan.frame_size, plan.headroom)
        .map_err(|error| refuse(format!("the lane's frame pool: {error}")))?;
    Ok(LaneMemory { pool, hold: HoldArea::new(plan.hold, plan.frame_size) })
}

/// Compares the need of all lanes with what is left.
fn check_limit(plan: &Plan, left: Option<MemoryLeft>) -> Result<(), Error> {
    let lanes = plan.lanes.len();
    let need = lanes * (plan.frames + plan.hold.packets) * plan.frame_size;
    let Some(left) = left.filter(|left| left.bytes < need as u64) else { return Ok(()) };
    let reason = format!(
        "the pools and hold areas of {lanes} lane(s) need {} MiB, and {} has {} MiB left; reduce \
         `lanes.frames` or `lanes.hold.packets`, or raise the limit",
        need.div_ceil(1 << 20),
        left.limit,
        left.bytes >> 20
    );
    Err(Error::Service { what: "memory", reason })
}

/// Populates what the lanes have and what the process has: the first packet finds all pages.
/// Locks it if the plan says so. Called when the lanes have been created and do not run yet, and
/// for the memory of each reopened port before running lanes get it.
///
/// # Errors
/// Fails if /proc cannot be read or the memory cannot be locked. What cannot be populated is
/// logged: a lane then takes page faults, which are counted.
pub(crate) fn prepare(plan: &Plan) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        let reason = format!("the memory of the process is not known ({error}); mount /proc");
        Error::Service { what: "memory", reason }
    };
    let memory = ProcessMemory::read().map_err(failed)?;
    let missing = memory.missing() as u64;
    match memory_left().filter(|left| left.bytes / 2 < missing) {
        Some(left) => tracing::warn!(
            "lanes can take page faults: the process has reserved {} MiB that it has not used, \
             and {} has {} MiB left; reserve less, or raise the limit",
            missing >> 20,
            left.limit,
            left.bytes >> 20
        ),
        None => {
            if let Err(error) = memory.populate() {
                tracing::warn!(
                    "lanes can take page faults: the kernel does not populate memory ({error}); \
                     run Linux 6.1 or later"
                );
            }
        }
    }
    if plan.lock_memory { lock(&memory) } else { Ok(()) }
}

/// Locks the memory of the process.
fn lock(memory: &ProcessMemory) -> Result<(), Error> {
    let mebibytes = memory.length().div_ceil(1 << 20);
    let Err(error) = memory.lock() else {
        tracing::info!("{mebibytes} MiB of the process are locked into memory");
        return Ok(());
    };
    let limit = match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes >> 10),
        None => "unlimited".to_owned(),
    };
    let reason = format!(
        "lanes.lock-memory: {mebibytes} MiB cannot be locked ({error}); RLIMIT_MEMLOCK is \
         {limit}: raise it (`LimitMEMLOCK=infinity`, `ulimit -l unlimited`), grant CAP_IPC_LOCK, \
         or set `lanes.lock-memory` to false"
    );
    Err(Error::Service { what: "memory", reason })
}

/// Populates the pools that were inherited, and logs once if pools are not in huge pages.
///
/// # Errors
/// Names the first lane for whose pool the kernel has no memory.
pub(crate) fn populate_pools(lanes: &[LaneConfig]) -> Result<(), Error> {
    let mut small = 0;
    for (lane, config) in lanes.iter().enumerate() {
        let memory = config.pool.memory();
        let failed = |error: std::io::Error| {
            let mebibytes = memory.len() >> 20;
            let reason =
                format!("no memory for a pool of {mebibytes} MiB ({error}); reduce `lanes.frames`");
            Error::Lane { lane, reason }
        };
        small += usize::from(memory.populate().map_err(failed)? == PageSize::Small);
    }
    if small > 0 {
        tracing::info!(
            "the pools of {small} of {} lane(s) are in pages of 4 KiB: the kernel made no huge \
             pages for them",
            lanes.len()
        );
    }
    Ok(())
}

/// Page faults of the lanes since their first turns, read by the main thread.
#[derive(Debug)]
pub(crate) struct LaneFaults {
    /// For each lane its thread, and the faults of it before the first turn.
    lanes: Vec<OnceLock<(u64, PageFaults)>>,
}

impl LaneFaults {
    pub(crate) fn new(lanes: usize) -> Self {
        Self { lanes: (0..lanes).map(|_| OnceLock::new()).collect() }
    }

    /// Begins to count the faults of the calling thread as those of a lane.
    pub(crate) fn begin(&self, lane: usize) {
        let thread = threads::thread_id();
        // The first call may fault itself.
        let _ = threads::page_faults(thread);
        if let Some(before) = threads::page_faults(thread) {
            let _ = self.lanes[lane].set((thread, before));
        }
    }

    /// Writes the faults of each lane to its counters. A lane whose thread has ended keeps its
    /// last counts.
    pub(crate) fn publish(&self, counters: &Counters) {
        for (lane, begun) in self.lanes.iter().enumerate() {
            let Some((thread, before)) = begun.get() else { continue };
            let Some(now) = threads::page_faults(*thread) else { continue };
            let counters = counters.lane(lane);
            for (counter, faults) in [
                (LaneCounter::MinorPageFaults, now.minor - before.minor),
                (LaneCounter::MajorPageFaults, now.major - before.major),
            ] {
                // The lane writes to the same cache line, so it is left alone if nothing changed.
                if counters.load(counter) != faults {
                    counters.publish(counter, faults);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fastlane_core::PortId;
    use serde_json::json;

    use super::*;

    fn plan(frames: usize) -> Plan {
        let raw = json!({
            "lanes": { "cpus": [0], "frames": frames },
            "ports": { "wire": { "driver": { "memory": { "fill": {
                "frames": 1, "length": 60 } } } } },
        });
        Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap()
    }

    #[test]
    fn every_frame_of_a_pool_is_written_without_a_page_fault() {
        let mut memory = create(&plan(8192), false).unwrap().remove(0);
        let faults = || threads::page_faults(threads::thread_id()).unwrap();
        let mut packets = Vec::with_capacity(8192);
        packets.extend((0..8192).map_while(|_| memory.pool.alloc_packet(64, PortId(0))));
        assert_eq!(packets.len(), 8192);
        faults();
        let before = faults();
        packets.iter_mut().for_each(|packet| packet.bytes_mut().fill(1));
        // Pages that are not there take 8 faults in huge pages, 4,096 in small ones. On a machine
        // that is short of memory a page of this program may have been reclaimed meanwhile.
        let new = faults().minor - before.minor + faults().major - before.major;
        assert!(new < 4, "{new} page faults");
        packets.iter_mut().for_each(|packet| memory.pool.release(packet));
    }

    #[test]
    fn a_pool_beyond_the_limit_is_refused_before_it_is_created() {
        let left = |mebibytes: u64| MemoryLeft {
            bytes: mebibytes << 20,
            limit: "its control group (memory.max)".to_owned(),
        };
        let plan = plan(8192);
        assert!(check_limit(&plan, Some(left(17))).is_ok());
        assert!(check_limit(&plan, None).is_ok());
        let error = check_limit(&plan, Some(left(16))).unwrap_err().to_string();
        assert_eq!(
            error,
            "the pools and hold areas of 1 lane(s) need 17 MiB, and its control group (memory.max) \
             has 16 MiB left; reduce `lanes.frames` or `lanes.hold.packets`, or raise the limit"
        );
    }
}
