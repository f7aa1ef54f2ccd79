//! The life of an application: open, start the lanes, wait, drain, sum up.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastlane_core::{App, Lane, LaneParts};
use fastlane_table::counters::LaneCounter;
use rustix::event::epoll;

use crate::config::plan::Plan;
use crate::describe::{Application, LaneFacts};
use crate::metrics::Metrics;
use crate::open::{Opened, open};
use crate::session::Session;
use crate::summary::Summary;
use crate::{Error, LaneInfo};

/// How often the main thread looks whether to end, and publishes what steering counted.
const PERIOD: Duration = Duration::from_millis(100);

/// Runs `plan` until `stop` is set or the application ends itself.
pub(crate) fn run<A, F>(plan: &Plan, mut factory: F, stop: &AtomicBool) -> Result<Summary, Error>
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    crate::cpus::check(plan)?;
    // The applications come first: one that refuses has touched no interface.
    let apps = (0..plan.lanes.len()).map(|index| factory(&LaneInfo { plan, index }));
    let apps: Vec<A> = apps.collect::<Result<_, _>>()?;
    let Opened { lanes, mut devices, facts, counters } = open(plan)?;
    let application = Application {
        name: plan.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        lanes: plan.lanes.iter().map(|lane| lane_facts(plan, lane.cpu)).collect(),
        ports: facts,
    };
    let session = Session::open(&plan.session, &application, &counters)
        .map_err(|error| Error::Service { what: "session", reason: error.to_string() })?;
    let metrics = plan
        .metrics
        .map(|address| Metrics::serve(address, &application, &counters))
        .transpose()
        .map_err(|error| Error::Service { what: "metrics", reason: error.to_string() })?;
    tracing::info!("running; `fastlane top {}` shows it live", plan.name);

    let lost = thread::scope(|scope| {
        let lanes = apps.into_iter().zip(lanes).enumerate();
        let threads: Vec<_> = lanes
            .map(|(index, (app, parts))| {
                let name = format!("lane-{index}");
                let body = move || lane_thread(plan, index, app, parts, stop);
                thread::Builder::new().name(name).spawn_scoped(scope, body)
            })
            .collect();
        if threads.iter().any(Result::is_err) {
            stop.store(true, Ordering::Relaxed);
        }
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(PERIOD);
            devices.publish(&counters);
        }
        threads.into_iter().enumerate().try_fold(0, |lost, (index, thread)| {
            let reason = |reason: String| Error::Lane { lane: index, reason };
            let thread =
                thread.map_err(|error| reason(format!("the thread cannot start: {error}")))?;
            let frames = thread.join().map_err(|_| reason("the lane panicked".to_owned()))?;
            Ok::<usize, Error>(lost + frames)
        })
    })?;
    devices.publish(&counters);
    drop((session, metrics));
    let summary = Summary::new(&application, &counters);
    if lost > 0 {
        let what =
            format!("{lost} frames did not come back to their pools: a driver has lost them");
        return Err(Error::Run(format!("{what}\n{summary}")));
    }
    Ok(summary)
}

fn lane_facts(plan: &Plan, cpu: Option<usize>) -> LaneFacts {
    let idle = match plan.idle {
        fastlane_core::Idle::Busy => "busy",
        fastlane_core::Idle::Interrupt => "interrupt",
        fastlane_core::Idle::Adaptive => "adaptive",
    };
    LaneFacts { cpu, idle: idle.to_owned() }
}

fn lane_thread<A: App>(
    plan: &Plan,
    index: usize,
    app: A,
    parts: LaneParts,
    stop: &AtomicBool,
) -> usize {
    let cpu = crate::cpus::settle(plan.lanes[index].cpu);
    let mut lane = Lane::new(app, parts);
    lane.counters().publish(LaneCounter::Thread, crate::cpus::thread_id());
    lane.counters().publish(LaneCounter::Cpu, cpu);
    match watch(&lane) {
        Ok(Some(interrupts)) => lane.wait_on(interrupts, plan.idle),
        Ok(None) => {
            tracing::debug!("lane {index}: a port has no interrupt; the lane naps when idle")
        }
        Err(error) => tracing::warn!("lane {index}: cannot wait for interrupts ({error}); it naps"),
    }
    lane.run(stop)
}

/// An epoll instance of all interrupts of a lane; `None` when some port has none.
fn watch<A: App>(lane: &Lane<A>) -> rustix::io::Result<Option<OwnedFd>> {
    let Some(interrupts) = lane.interrupts() else { return Ok(None) };
    let instance = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, interrupt) in interrupts.into_iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&instance, interrupt, data, epoll::EventFlags::IN)?;
    }
    Ok(Some(instance))
}
