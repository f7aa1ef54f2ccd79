//! DPDK's environment from its start to its end. EAL starts once per process, so this program has
//! one test.

mod support;

use std::time::{Duration, Instant};

use fastlane_core::{Burst, Queue};
use fastlane_dpdk::{DeviceSettings, Environment, EnvironmentSettings, Error, HugePages};
use fastlane_testing::{Spec, skip};
use rustix::thread::sched_getaffinity;
use support::{lanes, open, queues};

/// Returns the names of the threads of this process, each with its allowed CPUs.
fn threads() -> Vec<(String, String)> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
    let thread = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().into())
        };
        Some((field("Name:")?, field("Cpus_allowed_list:")?))
    };
    tasks.filter_map(|task| thread(task.path())).collect()
}

#[test]
fn it_starts_once_beside_the_lanes_and_ends() {
    let before = sched_getaffinity(None).expect("a thread has CPUs");
    let several = before.count() > 1;
    let lane_cpu = (0..1024).find(|cpu| before.is_set(*cpu)).expect("a CPU");
    let settings = EnvironmentSettings {
        lane_cpus: vec![lane_cpu],
        huge_pages: HugePages::None,
        memory: 64,
        ..EnvironmentSettings::default()
    };
    let environment = match Environment::start(&settings) {
        Ok(environment) => environment,
        Err(error @ (Error::NoPlugin { .. } | Error::Broken { .. })) => {
            return skip("dpdk", &error.to_string());
        }
        Err(error) => panic!("{error}"),
    };
    assert!(environment.version().starts_with("DPDK "), "{}", environment.version());
    assert_eq!(environment.warning(), None, "no huge pages were asked for");
    let again = Environment::start(&EnvironmentSettings::default()).expect("it runs");
    assert!(std::sync::Arc::ptr_eq(&environment, &again));
    drop(again);

    assert!(sched_getaffinity(None).expect("CPUs") == before, "the caller keeps its CPUs");
    let theirs: Vec<_> = threads()
        .into_iter()
        .filter(|(name, _)| name == "dpdk" || name.starts_with("eal-"))
        .collect();
    assert!(theirs.len() >= 2, "the main thread and that of interrupts: {theirs:?}");
    let first = lane_cpu.to_string();
    let on_lane = |cpus: &String| cpus.split([',', '-']).any(|cpu| cpu == first);
    assert!(!several || !theirs.iter().any(|(_, cpus)| on_lane(cpus)), "{theirs:?}");

    let prefix = format!("/var/run/dpdk/fastlane-{}", std::process::id());
    assert!(!std::path::Path::new(&prefix).exists(), "it leaves {prefix} behind");

    let mut lanes = lanes(&environment, &Spec::default());
    let mut device = open(&environment, &DeviceSettings::new("net_null0"), &lanes, 1);
    let mut queue = queues(&mut device).pop().expect("a queue");
    let (mut pool, memory) = lanes.pop().expect("a lane");
    let mut burst = Burst::new(32);
    queue.receive(&mut burst, &mut pool);
    assert_eq!(burst.len(), 32);
    burst.clear(&mut pool);
    queue.close(&mut pool);
    drop((environment, device, memory));
    assert!(threads().iter().any(|(name, _)| name == "dpdk"), "the queue still uses it");
    drop(queue);
    // A joined thread may be listed for a moment longer.
    let end = Instant::now() + Duration::from_secs(10);
    while threads().iter().any(|(name, _)| name == "dpdk") {
        assert!(Instant::now() < end, "it has not ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = Environment::start(&settings).expect_err("it starts only once").to_string();
    assert!(error.contains("once in a process"), "{error}");
}
