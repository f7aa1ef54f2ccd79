use fastlane_core::Pool;
use fastlane_steer::Rules;
use fastlane_table::SharedMemory;
use serde_json::json;

use super::*;
use crate::describe::Application;
use crate::open::PortHandover;
use crate::open::fake_steering::FakeSteering;
use crate::port_switch;
use crate::tables::Tables;

/// Calls `test` with the monitor of an AF_XDP port that has one lane, which does not run.
fn with_monitor(test: impl FnOnce(&mut PortMonitor<'_>)) {
    let raw = json!({"ports": {"wire": {"driver": {"af-xdp": {"interface": "nowhere0"}}}}});
    let plan = Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap();
    let memory = SharedMemory::create("monitor", 64 * 2048).unwrap();
    let layouts = vec![Pool::new(memory, 2048, 192).unwrap().layout()];
    let tables = Tables::new(plan.tables.clone(), vec![]);
    let description = Application {
        name: "test".to_owned(),
        version: String::new(),
        pid: 0,
        lanes: vec![],
        ports: vec![],
    };
    let around = Surroundings {
        plan: &plan,
        devices: &Mutex::default(),
        counters: &Counters::create(1, 1).unwrap(),
        handover: &Handover::new(&plan, &tables, PortHandover::default(), None),
        mirror: None,
        description: &Description::new(description),
    };
    let (_switcher, switches) = port_switch::channel().unwrap();
    test(&mut PortMonitor::new(around, vec![], vec![None], LaneSwaps::new(layouts), switches));
}

#[test]
fn a_reopened_port_whose_frames_cannot_be_claimed_is_not_up() {
    with_monitor(|monitor| {
        let device = |refuses_sockets| {
            let device = FakeSteering::new(refuses_sockets).af_xdp(&Rules::default());
            Phase::Installing(Box::new(device))
        };
        let counters = monitor.around.counters;
        let reason = || {
            let number = counters.shared_port(0).load(PortCounter::DownReason);
            DownReason::from_number(number)
        };
        counters.set_down_reason(0, Some(DownReason::Removed));
        monitor.ports[0].phase = device(true);
        monitor.step().unwrap();
        assert_eq!(reason(), Some(DownReason::Reopening));
        // It is closed and opened again, until the time to reopen it has passed.
        assert!(matches!(monitor.ports[0].phase, Phase::Detaching));
        assert!(monitor.lanes.has_requests(0));
        monitor.ports[0].phase = device(true);
        monitor.ports[0].since = Instant::now() - Duration::from_secs(60);
        let error = monitor.start(0).unwrap_err().to_string();
        assert!(error.contains("could not be reopened within"), "{error}");
        monitor.ports[0].phase = device(false);
        monitor.start(0).unwrap();
        assert_eq!(reason(), None);
        assert!(matches!(monitor.ports[0].phase, Phase::Open));
    });
}
