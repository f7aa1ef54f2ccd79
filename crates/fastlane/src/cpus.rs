//! CPUs and threads.

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::Error;
use crate::config::plan::Plan;

/// Whether every lane's CPU is there for this process.
pub(crate) fn check(plan: &Plan) -> Result<(), Error> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    for (lane, wanted) in plan.lanes.iter().enumerate() {
        let Some(cpu) = wanted.cpu else { continue };
        if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
            let reason = format!(
                "CPU {cpu} is not there for this process, which may use {}; \
                 change `lanes.cpus`",
                list(&allowed)
            );
            return Err(Error::Lane { lane, reason });
        }
    }
    Ok(())
}

/// `0-3, 6`.
fn list(set: &CpuSet) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Pins the calling thread, asks for exact naps, and returns the CPU that it runs on.
pub(crate) fn settle(cpu: Option<usize>) -> u64 {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::warn!("cannot pin a lane to CPU {cpu} ({error}); it runs unpinned");
        }
    }
    // The default slack of 50 microseconds would be longer than most naps (prctl(2)).
    let slack = std::num::NonZeroU64::new(1);
    let _ = rustix::thread::set_current_timer_slack(slack);
    sched_getcpu() as u64
}

/// The kernel's id of the calling thread.
pub(crate) fn thread_id() -> u64 {
    gettid().as_raw_nonzero().get().unsigned_abs().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_in_ranges() {
        let mut set = CpuSet::new();
        [0, 1, 2, 3, 6, 8, 9].into_iter().for_each(|cpu| set.set(cpu));
        assert_eq!(list(&set), "0-3, 6, 8-9");
        assert_eq!(list(&CpuSet::new()), "");
    }
}
