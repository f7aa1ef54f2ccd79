//! Life cycle of an application: open the ports, run the lanes, wait, stop, summarise.

use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fastlane_capture::{CaptureMailbox, Recorder};
use fastlane_core::{App, Idle, Lane, LaneConfig, Packet, Turn};
use fastlane_sharding::{ExchangeConfig, ShardExchange};
use fastlane_table::counters::{Counters, LaneCounter};
use fastlane_table::{Doorbell, ProcessMemory};
use prometheus_client::collector::Collector;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::app_service::SessionResources;
use crate::capture::Captures;
use crate::config::plan::Plan;
use crate::describe::{Application, Description, LaneFacts, PortFacts};
use crate::handover::{Handover, Takeover};
use crate::info::create_applications;
use crate::lane_memory::{self, LaneFaults};
use crate::message_rings::MessageRings;
use crate::metrics::{Metrics, MetricsError};
use crate::mirror::MirrorService;
use crate::open::{LaneExchanges, OpenPorts, connect, open};
use crate::port_monitor::{LaneSwap, LaneSwaps, PortMonitor, Surroundings};
use crate::reshard::Resharder;
use crate::rule_reload::RuleReloader;
use crate::service_manager::ServiceManager;
use crate::session::{Reservation, Session};
use crate::summary::Summary;
use crate::tables::Tables;
use crate::{Error, LaneInfo, port_switch};

/// Interval at which the main thread checks the stop flag and publishes the counters of steering.
const PERIOD: Duration = Duration::from_millis(100);

/// Runs `plan` until `stop` is set or the application ends itself.
pub(crate) fn run<A, F>(plan: &Plan, factory: F, stop: &AtomicBool) -> Result<Summary, Error>
where
    A: App + Send,
    F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
{
    crate::threads::check(plan)?;
    ProcessMemory::return_freed();
    let service = |what, reason: String| Error::Service { what, reason };
    // The session name is reserved first, so that a second process of the same name cannot touch
    // the files and interfaces of the first.
    let reservation =
        Reservation::new(&plan.session).map_err(|error| service("session", error.to_string()))?;
    // Then the applications are created, before any interface is changed.
    let mut takeover = Takeover::ask(plan);
    let inherited = std::mem::take(&mut takeover.tables);
    let tables = Arc::new(Tables::new(plan.tables.clone(), inherited));
    let mirror = MirrorService::open(plan)?;
    let apps = create_applications(plan, &tables, mirror.as_ref(), factory)?;
    drop_unused(&tables);
    crate::numa::report(plan);
    let OpenPorts {
        mut lanes,
        devices,
        facts,
        counters,
        linux_interfaces,
        shared_interfaces,
        handover,
    } = open(plan, takeover.ports.take(), || takeover.discard())?;
    lane_memory::populate_pools(&lanes)?;
    let start = |mirror: MirrorService| mirror.start(linux_interfaces.clone(), &counters);
    let mirror = mirror.map(start).transpose()?;
    let LaneExchanges { parts: exchanges, migration } = connect(plan, &lanes)?;
    let devices = Arc::new(Mutex::new(devices));
    let rings = |kib| MessageRings::open(&mut lanes, kib, takeover.messages.take());
    let messages = plan.messages.map(rings).transpose()?;
    let description = Description::new(describe(plan, facts));
    let (switcher, switches) = port_switch::channel()?;
    let mailboxes: Vec<Arc<CaptureMailbox>> = plan.lanes.iter().map(|_| Arc::default()).collect();
    let handover = Arc::new(Handover::new(plan, &tables, handover, messages.as_ref()));
    let collectors = tables.collectors();
    let resources = SessionResources {
        captures: Captures::new(mailboxes.clone(), plan.ports.len()),
        tables,
        rules: Some(RuleReloader::new(plan, Arc::clone(&devices))),
        messages,
        resharder: migration.map(Resharder::new),
        handover: Some(Arc::clone(&handover)),
        switcher: Some(switcher),
    };
    let session = Session::serve(reservation, description.clone(), &counters, resources)
        .map_err(|error| service("session", error.to_string()))?;
    let mirrored = mirror.as_ref().map(|it| Box::new(it.metrics()) as Box<dyn Collector>);
    let collectors = mirrored.into_iter().chain(collectors).collect();
    let metrics = metrics(plan, description.clone(), &counters, collectors)?;
    let swaps = LaneSwaps::new(lanes.iter().map(|lane| lane.pool.layout()).collect());
    let lanes = lane_setups(lanes, exchanges, mailboxes, swaps.of_lanes());
    let (devices, handover) = (&*devices, &*handover);
    let (counters, description) = (&counters, &description);
    let around =
        Surroundings { plan, devices, counters, handover, mirror: mirror.as_ref(), description };
    let monitor = PortMonitor::new(around, shared_interfaces, linux_interfaces, swaps, switches);
    let lost = supervise(with_applications(plan, apps, lanes), stop, monitor, takeover);
    drop((session, metrics, mirror));
    check_frames(Summary::new(&description.get(), counters), lost)
}

/// Runs the lanes until all have ended, then closes the devices. Returns the number of frames that
/// were not returned. A start that fails ends with the `takeover` unfinished, and claims nothing.
fn supervise<A: App + Send>(
    lanes: impl Iterator<Item = (Option<A>, LaneSetup)>,
    stop: &AtomicBool,
    monitor: PortMonitor<'_>,
    takeover: Takeover,
) -> Result<usize, Error> {
    let Surroundings { plan, devices, counters, handover, .. } = monitor.surroundings();
    let locked = || devices.lock().unwrap_or_else(PoisonError::into_inner);
    let mut takeover = Some(takeover);
    // Set once the start has succeeded.
    let service_manager = OnceCell::<Option<Arc<ServiceManager>>>::new();
    let mut supervision = Supervision {
        monitor,
        ready: || {
            lane_memory::prepare(plan)?;
            let finished = takeover.take().and_then(|takeover| takeover.finish(handover));
            report_ready(plan, service_manager.get_or_init(|| finished).as_deref());
            Ok(())
        },
        publish: || locked().publish(counters),
        release: || {
            let started = service_manager.get();
            if let Some(Some(service_manager)) = started {
                service_manager.notify("STOPPING=1");
            }
            // Those who hold the ports of a start that has failed would claim frames for nobody.
            locked().release(handover.leave_ports(started.is_some()));
        },
    };
    let lost = run_lanes(plan, lanes, stop, &mut supervision);
    locked().publish(counters);
    // Detached at once, because no lane receives claimed frames.
    drop(std::mem::take(&mut *locked()));
    lost
}

/// Duties of the main thread while the lanes run.
struct Supervision<'a, S, P, R> {
    monitor: PortMonitor<'a>,
    /// Prepares the memory of the lanes, which have been created, finishes the takeover, and
    /// reports that they run: the last step of a start that can fail.
    ready: S,
    /// Publishes the counters of steering and of devices.
    publish: P,
    /// Leaves all frames to Linux.
    release: R,
}

/// Reports that the application runs.
fn report_ready(plan: &Plan, service_manager: Option<&ServiceManager>) {
    tracing::info!("running; watch it with `fastlane top {}`", plan.name);
    service_manager.iter().for_each(|it| it.notify("READY=1"));
}

/// Describes the application.
fn describe(plan: &Plan, ports: Vec<PortFacts>) -> Application {
    Application {
        name: plan.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        lanes: plan.lanes.iter().map(|lane| lane_facts(plan, lane.cpu)).collect(),
        ports,
    }
}

/// Drops the tables that the application does not ask for, and names those in the configuration.
fn drop_unused(tables: &Tables) {
    tables.drop_unused();
    for name in tables.unused() {
        tracing::warn!("table `{name}` is configured, but the application does not ask for it");
    }
}

/// Returns the summary.
///
/// # Errors
/// Fails if the run failed or frames were lost.
fn check_frames(summary: Summary, lost: Result<usize, Error>) -> Result<Summary, Error> {
    let lost = lost.map_err(|error| match error {
        Error::Run(reason) => Error::Run(format!("{reason}\n{summary}")),
        other => other,
    })?;
    if lost > 0 {
        let what =
            format!("{lost} frames were not returned to their pools; report this driver bug");
        return Err(Error::Run(format!("{what}\n{summary}")));
    }
    Ok(summary)
}

/// Starts the metrics endpoint if the plan has one.
fn metrics(
    plan: &Plan,
    description: Description,
    counters: &Counters,
    collectors: Vec<Box<dyn Collector>>,
) -> Result<Option<Metrics>, Error> {
    let Some(address) = plan.metrics else { return Ok(None) };
    let metrics = Metrics::serve_with(address, description, counters, collectors);
    let failed =
        |error: MetricsError| Error::Service { what: "metrics", reason: error.to_string() };
    metrics.map(Some).map_err(failed)
}

/// Phases of all lanes: each is created in its thread and waits until `runs`. At the end `stop` of
/// the process is set first, by a signal or by the end of a lane.
struct LanePhases {
    /// Wakes the main thread.
    main: Doorbell,
    /// Number of lanes that have been created.
    created: AtomicUsize,
    /// Lanes may run turns.
    runs: AtomicBool,
    /// Page faults of the lanes.
    faults: LaneFaults,
    /// Lanes run no more turns. An application that ends itself sets it.
    stop: AtomicBool,
    /// Steering claims no more frames, so lanes may close their queues.
    released: AtomicBool,
}

impl LanePhases {
    /// Creates the state before the start.
    ///
    /// # Errors
    /// Returns an error if the process has too many descriptors.
    fn new(lanes: usize) -> Result<Self, Error> {
        let (stop, released) = <(AtomicBool, AtomicBool)>::default();
        let (created, runs) = <(AtomicUsize, AtomicBool)>::default();
        let main = Doorbell::create().map_err(|error| {
            let reason = format!("lanes: no descriptor ({error}); raise `ulimit -n`");
            Error::Service { what: "lanes", reason }
        })?;
        let faults = LaneFaults::new(lanes);
        Ok(Self { main, created, runs, faults, stop, released })
    }

    /// Tells the main thread that a lane has been created, and waits until it may run.
    fn wait_for_start(&self) {
        self.created.fetch_add(1, Ordering::Release);
        self.wait_for(&self.runs);
    }

    /// Wakes the main thread and waits until it has set a flag.
    fn wait_for(&self, flag: &AtomicBool) {
        self.main.ring();
        while !flag.load(Ordering::Acquire) {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// Ends all lanes when it is dropped, also by a panic: the scope of their threads waits for them.
struct EndOnDrop<'a>(&'a LanePhases);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.runs.store(true, Ordering::Release);
        self.0.released.store(true, Ordering::Release);
    }
}

/// Runs each lane in a thread of its own until all have ended. Follows the interfaces of the ports
/// meanwhile, publishes periodically, and releases before the queues are closed. Returns the number
/// of frames that were not returned.
fn run_lanes<A: App + Send>(
    plan: &Plan,
    lanes: impl Iterator<Item = (Option<A>, LaneSetup)>,
    stop: &AtomicBool,
    supervision: &mut Supervision<
        '_,
        impl FnMut() -> Result<(), Error>,
        impl FnMut(),
        impl FnMut(),
    >,
) -> Result<usize, Error> {
    let end = &LanePhases::new(plan.lanes.len())?;
    thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .enumerate()
            .map(|(index, (app, lane))| {
                let name = format!("lane-{index}");
                let body = move || {
                    let lost = match app {
                        Some(app) => lane_thread(plan, index, app, lane, end),
                        None => lane_thread(plan, index, NoApplication, lane, end),
                    };
                    end.main.ring();
                    lost
                };
                thread::Builder::new().name(name).spawn_scoped(scope, body)
            })
            .collect();
        // If a lane fails to start or ends, all others end too: its packets would go nowhere.
        let complete = || threads.iter().all(|it| it.as_ref().is_ok_and(|it| !it.is_finished()));
        let has_stopped =
            || stop.load(Ordering::Relaxed) || end.stop.load(Ordering::Relaxed) || !complete();
        let ended = EndOnDrop(end);
        while complete() && end.created.load(Ordering::Acquire) < threads.len() {
            wait(&end.main, &supervision.monitor, PERIOD);
        }
        // A signal does not make the start fail: a successor continues with what it has opened.
        let mut failure = if complete() { (supervision.ready)() } else { Ok(()) };
        end.stop.fetch_or(failure.is_err(), Ordering::Relaxed);
        end.runs.store(true, Ordering::Release);
        let counters = supervision.monitor.surroundings().counters;
        let mut next = Instant::now();
        while failure.is_ok() && !has_stopped() {
            let until_next = next.saturating_duration_since(Instant::now());
            wait(&end.main, &supervision.monitor, until_next);
            failure = supervision.monitor.step();
            // Devices are not asked at each event: some take a millisecond to reply.
            if Instant::now() >= next {
                next = Instant::now() + PERIOD;
                (supervision.publish)();
                end.faults.publish(counters);
            }
        }
        // After a signal, lanes receive until steering claims nothing: rings do not overflow.
        (supervision.release)();
        supervision.monitor.end();
        stop.store(true, Ordering::Relaxed);
        drop(ended);
        let lost = threads.into_iter().enumerate().try_fold(0, |lost, (lane, thread)| {
            let thread = thread.map_err(|error| {
                let reason = format!("its thread cannot start ({error}); configure fewer lanes");
                Error::Lane { lane, reason }
            })?;
            // A program that began with `main` has ended with the panic.
            let frames = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            Ok(lost + frames)
        });
        failure.and(lost)
    })
}

/// Waits for an event of an interface or of a lane, at most for `most`, less than a second.
fn wait(main: &Doorbell, monitor: &PortMonitor<'_>, most: Duration) {
    let timeout = monitor.timeout(most);
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
    let mut files = vec![PollFd::new(main, PollFlags::IN)];
    files.extend(monitor.interrupts().map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)));
    // A signal ends the wait early, and the caller looks at the stop flag.
    let _ = poll(&mut files, Some(&timeout));
    // Lanes ring when they have been created and when they end; the caller looks at both now.
    main.drain();
}

/// Parts of a lane besides its application.
struct LaneSetup {
    parts: LaneConfig,
    exchange: Option<ExchangeConfig>,
    captures: Arc<CaptureMailbox>,
    swap: LaneSwap,
}

/// Collects the parts of each lane.
fn lane_setups(
    lanes: Vec<LaneConfig>,
    exchanges: Vec<Option<ExchangeConfig>>,
    mailboxes: Vec<Arc<CaptureMailbox>>,
    swaps: Vec<LaneSwap>,
) -> impl Iterator<Item = LaneSetup> {
    let lanes = lanes.into_iter().zip(exchanges).zip(mailboxes).zip(swaps);
    lanes.map(|(((parts, exchange), captures), swap)| LaneSetup { parts, exchange, captures, swap })
}

/// Assigns the applications to their lanes. In master-worker the lanes with ports have none.
fn with_applications<A>(
    plan: &Plan,
    apps: Vec<A>,
    lanes: impl Iterator<Item = LaneSetup>,
) -> impl Iterator<Item = (Option<A>, LaneSetup)> {
    let mut apps = apps.into_iter().peekable();
    lanes.enumerate().map(move |(number, lane)| {
        let app = apps.next_if(|_| plan.lane_roles.applications.contains(&number));
        (app, lane)
    })
}

/// Placeholder for the application in a lane that has ports only. It never receives a packet.
struct NoApplication;

impl App for NoApplication {
    fn process(&mut self, _: &mut [Packet], _: &mut Turn) {}
}

/// Describes a lane.
fn lane_facts(plan: &Plan, cpu: Option<usize>) -> LaneFacts {
    let idle = match plan.idle {
        Idle::Busy => "busy",
        Idle::Interrupt => "interrupt",
        Idle::Adaptive => "adaptive",
    };
    LaneFacts { cpu, idle: idle.to_owned() }
}

/// Runs a lane in the calling thread until its end or that of the application. Returns the number
/// of frames that were not returned.
fn lane_thread<A: App>(
    plan: &Plan,
    index: usize,
    app: A,
    LaneSetup { parts, exchange, captures, swap }: LaneSetup,
    end: &LanePhases,
) -> usize {
    let cpu = crate::threads::prepare(plan.lanes[index].cpu);
    let burst = parts.burst;
    let mut lane = Lane::new(app, parts);
    lane.observe(Box::new(Recorder::new(captures, burst)));
    if let Some(exchange) = exchange {
        lane.join(Box::new(ShardExchange::new(exchange, burst)));
    }
    lane.swap_queues_by(swap.swap);
    lane.counters().publish(LaneCounter::Thread, crate::threads::thread_id());
    lane.counters().publish(LaneCounter::Cpu, cpu);
    match watch_interrupts(&lane, swap.interrupts.as_deref()) {
        Ok(Some(interrupts)) => lane.wait_on(interrupts, plan.idle),
        Ok(None) if plan.idle != Idle::Busy => {
            tracing::info!(
                "lane {index}: a port has no interrupt; an idle lane sleeps for short periods \
                 instead"
            )
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(
            "lane {index}: cannot wait for interrupts ({error}); it sleeps for short periods \
             instead"
        ),
    }
    end.wait_for_start();
    end.faults.begin(index);
    lane.run_turns(&end.stop);
    end.wait_for(&end.released);
    lane.run_last_turns();
    lane.close()
}

/// Adds all interrupts of a lane to its epoll instance. Returns a duplicate of that, or `None` if a
/// port has no interrupt.
fn watch_interrupts<A: App>(
    lane: &Lane<A>,
    instance: Option<&OwnedFd>,
) -> rustix::io::Result<Option<OwnedFd>> {
    let Some((interrupts, instance)) = lane.interrupts().zip(instance) else { return Ok(None) };
    let instance = rustix::io::fcntl_dupfd_cloexec(instance, 0)?;
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
    use crate::config::raw::Driver;
    use crate::port_switch::SwitchRequests;
    use crate::session::Switch;

    fn plan(session: &std::path::Path) -> Plan {
        let raw = serde_json::json!({
            "ports": { "wire": { "driver": { "memory": {
                "fill": { "frames": 8, "length": 60 } } } } },
            "session": session,
        });
        Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap()
    }

    #[test]
    fn a_panic_of_an_application_is_one_of_the_caller() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("panic.sock");
        let (done, result) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        thread::spawn(move || {
            let factory =
                |_: &LaneInfo<'_>| Ok(|_: &mut Packet| -> Verdict { panic!("on purpose") });
            let run = || run(&plan(&path), factory, &theirs).map(|_| ());
            let _ = done.send(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)));
        });
        let result = result.recv_timeout(Duration::from_secs(60));
        stop.store(true, Ordering::Relaxed);
        let panic = result.expect("the run ends").expect_err("the panic arrives");
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    }

    /// Runs a lane until `stop` is set, and publishes by a function. Requests come from a channel.
    fn run_with(
        name: &str,
        switches: SwitchRequests,
        stop: &AtomicBool,
        publish: impl FnMut(),
    ) -> Result<usize, Error> {
        let directory = tempfile::tempdir().unwrap();
        let plan = plan(&directory.path().join(name));
        let opened = open(&plan, None, || ()).unwrap();
        let swaps = LaneSwaps::new(opened.lanes.iter().map(|it| it.pool.layout()).collect());
        let (none, captures) = (vec![None], vec![Arc::default()]);
        let lanes = lane_setups(opened.lanes, none, captures, swaps.of_lanes());
        let lanes = lanes.map(|lane| (Some(|_: &mut Packet| Verdict::Reflect), lane));
        let tables = Tables::new(plan.tables.clone(), vec![]);
        let handover = Handover::new(&plan, &tables, opened.handover, None);
        let around = Surroundings {
            plan: &plan,
            devices: &Mutex::new(opened.devices),
            counters: &opened.counters,
            handover: &handover,
            mirror: None,
            description: &Description::new(describe(&plan, vec![])),
        };
        let monitor = PortMonitor::new(around, vec![], vec![None], swaps, switches);
        let mut supervision = Supervision { monitor, ready: || Ok(()), publish, release: || () };
        run_lanes(&plan, lanes, stop, &mut supervision)
    }

    #[test]
    fn a_panic_of_the_main_thread_ends_the_lanes() {
        let (done, result) = mpsc::channel();
        thread::spawn(move || {
            let (_, switches) = port_switch::channel().unwrap();
            let stop = AtomicBool::new(false);
            let run = || run_with("main.sock", switches, &stop, || panic!("on purpose")).map(drop);
            let _ = done.send(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)));
        });
        let result = result.recv_timeout(Duration::from_secs(60));
        let panic = result.expect("the lanes end").expect_err("the panic arrives");
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    }

    #[test]
    fn counters_are_published_periodically_however_often_the_main_thread_wakes() {
        const WAKE_UPS: usize = 300;
        let (switcher, switches) = port_switch::channel().unwrap();
        let (stop, published, begin) =
            (AtomicBool::new(false), AtomicUsize::new(0), Instant::now());
        thread::scope(|scope| {
            scope.spawn(|| {
                let driver = serde_json::json!({ "af-packet": { "interface": "nowhere0" } });
                let driver: Driver = serde_json::from_value(driver).unwrap();
                for _ in 0..WAKE_UPS {
                    let switch = Switch { port: "nowhere".to_owned(), driver: driver.clone() };
                    let error = switcher.switch(switch).unwrap_err();
                    assert!(error.contains("no port `nowhere`"), "{error}");
                }
                // Long enough for another one.
                thread::sleep(2 * PERIOD);
                stop.store(true, Ordering::Relaxed);
            });
            let publish = || {
                published.fetch_add(1, Ordering::Relaxed);
            };
            run_with("wake.sock", switches, &stop, publish).unwrap();
        });
        let periods = begin.elapsed().as_millis() / PERIOD.as_millis();
        let published = published.into_inner();
        let most = usize::try_from(periods).unwrap() + 2;
        assert!((2..=most).contains(&published), "{published} in {periods} periods");
        assert!(most < WAKE_UPS, "the machine is too slow for this test");
    }

    #[test]
    fn a_second_process_of_the_same_name_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (path, file) = (directory.path().join("x.sock"), directory.path().join("x.pcapng"));
        let _first = Reservation::new(&path).unwrap();
        std::fs::write(&file, "written by the first process").unwrap();
        let raw = serde_json::json!({
            "ports": { "wire": { "driver": { "pcap": { "write": file } } } },
            "session": path,
        });
        let plan = Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap();
        let factory = |_: &LaneInfo<'_>| Ok(|_: &mut Packet| Verdict::Drop);
        let error = run(&plan, factory, &AtomicBool::new(true)).unwrap_err().to_string();
        assert!(error.starts_with("session ") && error.contains("listens there"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "written by the first process");
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
