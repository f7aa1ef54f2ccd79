//! The life of an application: open, start the lanes, wait, drain, sum up.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fastlane_capture::{CaptureMailbox, Recorder};
use fastlane_core::{App, Idle, Lane, LaneConfig, Packet, Turn};
use fastlane_sharding::{ExchangeConfig, ShardExchange};
use fastlane_table::counters::{Counters, LaneCounter};
use prometheus_client::collector::Collector;
use rustix::event::epoll;

use crate::capture::Captures;
use crate::config::plan::Plan;
use crate::describe::{Application, LaneFacts};
use crate::kept::{Keepsakes, Kept};
use crate::manager::Manager;
use crate::messages::Rings;
use crate::metrics::{Metrics, MetricsError};
use crate::mirror::{Running, Service};
use crate::open::{Exchanges, Opened, connect, examine};
use crate::reshard::Resharder;
use crate::session::{Offers, Reservation, Session};
use crate::steering::Steering;
use crate::summary::Summary;
use crate::tables::Tables;
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
    let service = |what, reason: String| Error::Service { what, reason };
    // The name comes first: another that has it must not lose its files and frames to us.
    let reservation =
        Reservation::new(&plan.session).map_err(|error| service("session", error.to_string()))?;
    // Then the applications, and what can only be looked at: one that refuses has touched no
    // interface.
    let mut kept = Kept::ask(plan);
    let tables = std::mem::take(&mut kept.tables);
    let tables = Arc::new(Tables::new(plan.tables.clone(), tables));
    let mirror = Service::open(plan)?;
    let lane = |index| LaneInfo { plan, index, tables: &tables, mirror: mirror.as_ref() };
    let apps = (0..plan.threads.applications.len()).map(|index| factory(&lane(index)));
    let apps: Vec<A> = apps.collect::<Result<_, _>>()?;
    tables.forget();
    for name in tables.unused() {
        tracing::warn!("table `{name}` is configured, but the application does not ask for it");
    }
    plan.ports.iter().try_for_each(|port| examine(plan, port).map(drop))?;
    crate::numa::report(plan);
    let Opened { mut lanes, devices, facts, counters, twins, keeping } = kept.open(plan)?;
    let mirror = mirror.map(|mirror| mirror.start(twins, &counters)).transpose()?;
    let Exchanges { parts: exchanges, mover } = connect(plan, &lanes)?;
    let devices = Arc::new(Mutex::new(devices));
    let rings = |kib| Rings::open(&mut lanes, kib, kept.messages.take());
    let messages = plan.messages.map(rings).transpose()?;
    let application = Application {
        name: plan.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        lanes: plan.lanes.iter().map(|lane| lane_facts(plan, lane.cpu)).collect(),
        ports: facts,
    };
    let mailboxes: Vec<Arc<CaptureMailbox>> = plan.lanes.iter().map(|_| Arc::default()).collect();
    let keepsakes = Keepsakes::new(plan, &tables, keeping, messages.as_ref());
    let keepsakes = Some(Arc::new(keepsakes));
    let offers = Offers {
        captures: Captures::new(mailboxes.clone(), plan.ports.len()),
        tables,
        steering: Some(Steering::new(plan, Arc::clone(&devices))),
        messages,
        resharder: mover.map(Resharder::new),
        keepsakes: keepsakes.clone(),
    };
    let session = Session::serve(reservation, &application, &counters, offers)
        .map_err(|error| service("session", error.to_string()))?;
    let manager = keepsakes.and_then(|keepsakes| kept.replace(&keepsakes));
    let metrics = metrics(plan, &application, &counters, mirror.as_ref())?;
    tracing::info!("running; `fastlane top {}` shows it live", plan.name);
    let tell = |what| manager.iter().for_each(|manager: &Manager| manager.tell(what));
    tell("READY=1");

    let lanes = lanes.into_iter().zip(exchanges).zip(mailboxes);
    let lanes =
        lanes.map(|((parts, exchange), captures)| LaneAndWays { parts, exchange, captures });
    let lanes = with_applications(plan, apps, lanes);
    let locked = || devices.lock().unwrap_or_else(PoisonError::into_inner);
    let ending = || tell("STOPPING=1");
    let lost = run_lanes(plan, lanes, stop, || locked().publish(&counters), ending);
    locked().publish(&counters);
    // At once: what steering still claims now, nobody receives any more.
    drop(std::mem::take(&mut *locked()));
    drop((session, metrics, mirror));
    sum_up(Summary::new(&application, &counters), lost?)
}

/// What the run was, if no frame was lost.
fn sum_up(summary: Summary, lost: usize) -> Result<Summary, Error> {
    if lost > 0 {
        let what =
            format!("{lost} frames did not come back to their pools: a driver has lost them");
        return Err(Error::Run(format!("{what}\n{summary}")));
    }
    Ok(summary)
}

/// Serves what the plan wants to be served.
fn metrics(
    plan: &Plan,
    application: &Application,
    counters: &Counters,
    mirror: Option<&Running>,
) -> Result<Option<Metrics>, Error> {
    let Some(address) = plan.metrics else { return Ok(None) };
    let mirror = mirror.map(|mirror| Box::new(mirror.metrics()) as Box<dyn Collector>);
    let metrics = Metrics::serve_with(address, application, counters, mirror.into_iter().collect());
    let failed =
        |error: MetricsError| Error::Service { what: "metrics", reason: error.to_string() };
    metrics.map(Some).map_err(failed)
}

/// Runs each lane in a thread of its own until all have ended, and calls `publish` now and then,
/// `ending` before they end. Returns how many frames did not come back.
fn run_lanes<A: App + Send>(
    plan: &Plan,
    lanes: impl Iterator<Item = (Option<A>, LaneAndWays)>,
    stop: &AtomicBool,
    mut publish: impl FnMut(),
    ending: impl FnOnce(),
) -> Result<usize, Error> {
    let main = &thread::current();
    thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .enumerate()
            .map(|(index, (app, lane))| {
                let name = format!("lane-{index}");
                let body = move || {
                    let lost = match app {
                        Some(app) => lane_thread(plan, index, app, lane, stop),
                        None => lane_thread(plan, index, Nobody, lane, stop),
                    };
                    main.unpark();
                    lost
                };
                thread::Builder::new().name(name).spawn_scoped(scope, body)
            })
            .collect();
        // A lane that is not there, or no more, ends the others: its packets go nowhere.
        let complete = || threads.iter().all(|it| it.as_ref().is_ok_and(|it| !it.is_finished()));
        while !stop.load(Ordering::Relaxed) && complete() {
            thread::park_timeout(PERIOD);
            publish();
        }
        ending();
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().enumerate().try_fold(0, |lost, (lane, thread)| {
            let thread = thread.map_err(|error| {
                let reason = format!("its thread cannot start ({error}); use fewer lanes");
                Error::Lane { lane, reason }
            })?;
            let frames = thread.join().map_err(|_| {
                Error::Run(format!("lane {lane}: it panicked, as said above; mend the application"))
            })?;
            Ok(lost + frames)
        })
    })
}

/// What a lane is made of, besides the application.
struct LaneAndWays {
    parts: LaneConfig,
    exchange: Option<ExchangeConfig>,
    captures: Arc<CaptureMailbox>,
}

/// Gives the applications to the lanes that have one; of master-worker those with the ports do not.
fn with_applications<A>(
    plan: &Plan,
    apps: Vec<A>,
    lanes: impl Iterator<Item = LaneAndWays>,
) -> impl Iterator<Item = (Option<A>, LaneAndWays)> {
    let mut apps = apps.into_iter().peekable();
    lanes.enumerate().map(move |(number, lane)| {
        let app = apps.next_if(|_| plan.threads.applications.contains(&number));
        (app, lane)
    })
}

/// In the place of the application in a lane that has the ports only: it is never shown a packet.
struct Nobody;

impl App for Nobody {
    fn process(&mut self, _: &mut [Packet], _: &mut Turn) {}
}

fn lane_facts(plan: &Plan, cpu: Option<usize>) -> LaneFacts {
    let idle = match plan.idle {
        Idle::Busy => "busy",
        Idle::Interrupt => "interrupt",
        Idle::Adaptive => "adaptive",
    };
    LaneFacts { cpu, idle: idle.to_owned() }
}

fn lane_thread<A: App>(
    plan: &Plan,
    index: usize,
    app: A,
    LaneAndWays { parts, exchange, captures }: LaneAndWays,
    stop: &AtomicBool,
) -> usize {
    let cpu = crate::cpus::settle(plan.lanes[index].cpu);
    let burst = parts.burst;
    let mut lane = Lane::new(app, parts);
    lane.observe(Box::new(Recorder::new(captures, burst)));
    if let Some(exchange) = exchange {
        lane.join(Box::new(ShardExchange::new(exchange, burst)));
    }
    lane.counters().publish(LaneCounter::Thread, crate::cpus::thread_id());
    lane.counters().publish(LaneCounter::Cpu, cpu);
    match watch(&lane) {
        Ok(Some(interrupts)) => lane.wait_on(interrupts, plan.idle),
        Ok(None) if plan.idle != Idle::Busy => {
            tracing::info!("lane {index}: a port has no interrupt; the lane naps when idle")
        }
        Ok(None) => {}
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use fastlane_core::Verdict;

    use super::*;

    fn plan(session: &std::path::Path) -> Plan {
        let written = serde_json::json!({
            "ports": { "wire": { "driver": { "memory": {
                "fill": { "frames": 8, "length": 60 } } } } },
            "session": session,
        });
        Plan::new(serde_json::from_value(written).unwrap(), "test").unwrap()
    }

    #[test]
    fn an_application_that_panics_ends_the_run_with_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("panic.sock");
        let (done, result) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        thread::spawn(move || {
            let factory =
                |_: &LaneInfo<'_>| Ok(|_: &mut Packet| -> Verdict { panic!("on purpose") });
            let _ = done.send(run(&plan(&path), factory, &theirs).map(|_| ()));
        });
        let result = result.recv_timeout(Duration::from_secs(60));
        stop.store(true, Ordering::Relaxed);
        let error = result.expect("the run ends").unwrap_err();
        assert!(error.to_string().starts_with("lane 0: it panicked"), "{error}");
        assert_eq!(error.exit_status(), 5);
    }

    #[test]
    fn a_second_of_the_same_name_touches_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (path, file) = (directory.path().join("x.sock"), directory.path().join("x.pcapng"));
        let _first = Reservation::new(&path).unwrap();
        std::fs::write(&file, "what the first has written").unwrap();
        let written = serde_json::json!({
            "ports": { "wire": { "driver": { "pcap": { "write": file } } } },
            "session": path,
        });
        let plan = Plan::new(serde_json::from_value(written).unwrap(), "test").unwrap();
        let factory = |_: &LaneInfo<'_>| Ok(|_: &mut Packet| Verdict::Drop);
        let error = run(&plan, factory, &AtomicBool::new(true)).unwrap_err().to_string();
        assert!(error.starts_with("session ") && error.contains("listens there"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "what the first has written");
    }

    #[test]
    fn a_run_ends_when_the_application_does() {
        struct Once;
        impl App for Once {
            fn process(&mut self, packets: &mut [Packet], turn: &mut fastlane_core::Turn) {
                packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Reflect));
                turn.end();
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let plan = plan(&directory.path().join("once.sock"));
        let summary = run(&plan, |_| Ok(Once), &AtomicBool::new(false)).unwrap().to_string();
        assert!(summary.starts_with("wire: memory\n"), "{summary}");
        assert!(summary.contains("verdict_reflect          8"), "{summary}");
    }
}
