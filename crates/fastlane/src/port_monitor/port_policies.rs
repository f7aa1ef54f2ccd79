//! Ports that change to another driver with their load: `switch` of the configuration.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fastlane_table::counters::{LaneCounter, PortCounter};

use super::load_switch::LoadSwitch;
use super::monitored_port::Phase;
use super::{PortMonitor, Surroundings, lock};
use crate::config::plan::PortPlan;
use crate::config::raw::{Driver, Load, LoadBounds};
use crate::session::Switch;
use crate::threads;

/// Interval at which a load is measured.
const INTERVAL: Duration = Duration::from_millis(500);

/// Time after which a change that was refused is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// Policy of a port that changes its driver with the load.
pub(super) struct PortPolicy {
    /// Index of the port.
    index: usize,
    /// Drivers of a low and of a high load.
    drivers: [Driver; 2],
    bounds: LoadBounds,
    switch: LoadSwitch,
    begin: Instant,
    /// Time of the last measurement, and the sums that it found.
    measured: Instant,
    sums: Vec<f64>,
    /// Driver at the last look: an index of `drivers`.
    present: usize,
    /// Time before which nothing is tried again while the port has this driver.
    retry: Option<Instant>,
}

/// Creates the policies of an application.
pub(super) fn of(around: Surroundings<'_>) -> Vec<PortPolicy> {
    let mut policies = Vec::new();
    let is_agents = lock(around.devices).agent.is_some();
    for (index, port) in around.plan.ports.iter().enumerate() {
        let Some(policy) = &port.switch else { continue };
        if is_agents {
            tracing::warn!(
                "port `{}`: its `switch` has no effect, because the agent has opened the port; \
                 start the application with the capabilities of the port, or remove the key",
                port.name
            );
            continue;
        }
        // Names of interfaces that are variables have their values in the plan.
        let to = around.plan.with_driver(index, policy.to.clone(), around.plan.ports.iter());
        let Ok(to) = to else { continue }; // the plan was checked
        let begin = Instant::now();
        policies.push(PortPolicy {
            index,
            drivers: [port.driver.clone(), to.driver],
            bounds: policy.when,
            switch: LoadSwitch::new(policy.when),
            begin,
            measured: begin,
            sums: sums(around, index, policy.when.load),
            present: 0,
            retry: None,
        });
    }
    policies
}

/// Returns the sums whose growth is the load of a port: its packets and those of its VLANs, or the
/// CPU time of each lane.
pub(super) fn sums(around: Surroundings<'_>, index: usize, load: Load) -> Vec<f64> {
    let (port, counters) = (&around.plan.ports[index], around.counters);
    match load {
        Load::PacketsPerSecond => {
            let received = |port: &PortPlan| {
                counters.port_total(usize::from(port.id.0), PortCounter::ReceivedPackets)
            };
            vec![around.plan.carried_by(port.id).map(received).sum::<u64>() as f64]
        }
        Load::CpuPercent => {
            let of_lane = |lane: &usize| {
                let thread = counters.lane(*lane).load(LaneCounter::Thread);
                100.0 * threads::cpu_seconds(Path::new("/proc/self"), thread).unwrap_or_default()
            };
            port.lanes.iter().map(of_lane).collect()
        }
    }
}

impl PortPolicy {
    /// Returns the load since the last measurement, once the interval is over.
    fn measure(&mut self, around: Surroundings<'_>) -> Option<f64> {
        let elapsed = self.measured.elapsed();
        if elapsed < INTERVAL {
            return None;
        }
        self.measured += elapsed;
        let sums = sums(around, self.index, self.bounds.load);
        let before = std::mem::replace(&mut self.sums, sums);
        let growth = self.sums.iter().zip(before).map(|(now, before)| now - before);
        Some(growth.fold(0.0, f64::max) / elapsed.as_secs_f64())
    }

    /// Describes a load, and the time for which it is beyond its bound.
    fn describe(&self, load: f64, is_loaded: bool, time: Duration) -> String {
        let LoadBounds { above, below, .. } = self.bounds;
        let (is, bound) = if is_loaded { ("below", below) } else { ("above", above) };
        let unit = match self.bounds.load {
            Load::PacketsPerSecond => "packets/s",
            Load::CpuPercent => "% of a CPU",
        };
        let seconds = time.as_secs_f64();
        format!("its load, {load:.0} {unit}, has been {is} {bound} for {seconds:.1} s")
    }
}

/// Measures the loads of ports with a policy, and begins the changes that they ask for.
pub(super) fn follow(monitor: &mut PortMonitor<'_>) {
    let mut policies = std::mem::take(&mut monitor.policies);
    for policy in &mut policies {
        if let Some(load) = policy.measure(monitor.around) {
            follow_load(monitor, policy, load);
        }
    }
    monitor.policies = policies;
}

fn follow_load(monitor: &mut PortMonitor<'_>, policy: &mut PortPolicy, load: f64) {
    let port = &monitor.ports[policy.index];
    // `fastlane switch` may have selected a third driver, which stays.
    let present = policy.drivers.iter().position(|driver| *driver == port.plan.driver);
    let is_open = matches!(port.phase, Phase::Open) && !port.is_removed;
    let Some(present) = present.filter(|_| is_open) else { return policy.switch.pause() };
    if std::mem::replace(&mut policy.present, present) != present {
        policy.retry = None;
    }
    let is_loaded = present == 1;
    let Some(time) = policy.switch.look(policy.begin.elapsed(), load, is_loaded) else { return };
    if policy.retry.is_some_and(|retry| Instant::now() < retry) {
        return;
    }
    let reason = policy.describe(load, is_loaded, time);
    let name = port.plan.name.clone();
    tracing::info!("port `{name}`: {reason}");
    // A refusal is in the log; after a success the port has the other driver.
    policy.retry = Some(Instant::now() + RETRY);
    let (reply, _) = mpsc::sync_channel(1);
    let driver = policy.drivers[1 - present].clone();
    if let Err(reason) = monitor.begin_switch(&Switch { port: name.clone(), driver }, &reply) {
        let seconds = RETRY.as_secs();
        tracing::warn!("port `{name}`: not switched: {reason}; tried again in {seconds} s");
    }
}
