use std::sync::mpsc;

use fastlane_core::{
    Burst, Idle, Lane, LaneConfig, Packet, Pool, Port, PortId, QueueChange, Verdict,
};
use fastlane_memif::{MemifSettings, Role};
use fastlane_steer::{Rule, Rules};
use fastlane_table::SharedMemory;
use serde_json::{Value, json};

use super::switch_stage::{PortSwitch, Stage};
use super::*;
use crate::captured_log::logged;
use crate::config::raw::Load;
use crate::describe::Application;
use crate::open::PortHandover;
use crate::open::fake_steering::FakeSteering;
use crate::port_switch;
use crate::session::Switch;
use crate::tables::Tables;

/// Calls `test` with the monitor of an AF_XDP port that has one lane, which does not run.
fn with_monitor(test: impl FnOnce(&mut PortMonitor<'_>)) {
    let driver = json!({"af-xdp": {"interface": "nowhere0"}});
    with_monitor_of(json!({"ports": {"wire": {"driver": driver}}}), test);
}

fn pool() -> Pool {
    Pool::new(SharedMemory::create("monitor", 64 * 2048).unwrap(), 2048, 192).unwrap()
}

/// Calls `test` with the monitor of a configuration. The lanes do not run.
fn with_monitor_of(raw: Value, test: impl FnOnce(&mut PortMonitor<'_>)) {
    let plan = Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap();
    let layouts = plan.lanes.iter().map(|_| pool().layout()).collect();
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
        counters: &Counters::create(plan.lanes.len(), plan.ports.len()).unwrap(),
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

/// Returns the last stage of a switch of the first port to AF_PACKET on `interface`.
fn last_stage(monitor: &PortMonitor<'_>, interface: Interface, queues: usize) -> Phase {
    let driver = serde_json::from_value(json!({"af-packet": {"interface": "lo"}})).unwrap();
    let current = monitor.ports.iter().map(|port| &port.plan);
    let plan = monitor.around.plan.with_driver(0, driver, current).unwrap();
    let begin = Instant::now() - Duration::from_secs(1);
    Phase::Switching(Box::new(PortSwitch {
        plan,
        mode: String::new(),
        queues,
        interface: Some(interface),
        stage: Stage::Closing,
        begin,
        since: begin,
        silence: None,
        silent_seconds: 0.0,
        losses: 0,
        reply: mpsc::sync_channel(1).0,
    }))
}

#[test]
fn lanes_without_a_queue_of_a_port_that_returns_are_named() {
    let raw = json!({
        "ports": {"wire": {"driver": {"af-xdp": {"interface": "nowhere0"}}}},
        "lanes": {"cpus": [0, 1]},
    });
    with_monitor_of(raw, |monitor| {
        let lo = Interface::query("lo").unwrap();
        let mut switched = |queues| {
            monitor.ports[0].phase = last_stage(monitor, lo.clone(), queues);
            logged(|| monitor.step().unwrap())
        };
        let warning = "port `wire` has 1 queue and 2 lanes: ";
        let (fewer, enough) = (switched(1), switched(2));
        assert!(fewer.contains(warning) && fewer.contains("lane 1 "), "{fewer}");
        assert!(!enough.contains(warning), "{enough}");
        let device = FakeSteering::default().af_xdp(&Rules::default());
        monitor.ports[0].phase = Phase::Installing(Box::new(device));
        let reopened = logged(|| monitor.start(0).unwrap());
        assert!(reopened.contains(warning), "{reopened}");
    });
}

#[test]
fn a_device_that_is_being_opened_claims_nothing_after_the_end() {
    let rules = Rules::default();
    for is_joining in [false, true] {
        with_monitor(|monitor| {
            let steering = FakeSteering::default();
            let device = Box::new(steering.af_packet(&rules));
            monitor.ports[0].phase = match is_joining {
                false => Phase::Installing(device),
                true => {
                    let lo = Interface::query("lo").unwrap();
                    let mut phase = last_stage(monitor, lo, 1);
                    let Phase::Switching(switch) = &mut phase else { unreachable!("a switch") };
                    switch.stage = Stage::Joining(device);
                    phase
                }
            };
            monitor.end();
            assert!(steering.is_released(), "joining: {is_joining}");
        });
    }
}

#[test]
fn the_load_and_the_losses_of_a_port_include_its_vlans() {
    let raw = json!({"ports": {
        "n3": {"driver": {"vlan": {"port": "wire", "id": 100}}},
        "wire": {"driver": {"af-xdp": {"interface": "nowhere0"}}},
    }});
    with_monitor_of(raw, |monitor| {
        let (n3, wire) = (monitor.around.counters.port(0, 0), 1);
        let before = monitor.losses(wire);
        n3.add(PortCounter::ReceivedPackets, 1000);
        n3.add(PortCounter::DropTransmitFull, 7);
        let sums = port_policies::sums(monitor.around, wire, Load::PacketsPerSecond);
        assert_eq!((&sums[..], monitor.losses(wire) - before), (&[1000.0][..], 7));
    });
}

#[test]
fn a_port_on_an_interface_without_carrier_is_down() {
    with_monitor(|monitor| {
        let counters = monitor.around.counters;
        let lo = Interface::query("lo").unwrap();
        let without = Interface { up: true, carrier: false, ..lo.clone() };
        monitor.ports[0].phase = last_stage(monitor, without.clone(), 1);
        monitor.step().unwrap();
        assert_eq!(counters.down_reason(0), Some(DownReason::LinkDown), "after a switch");
        monitor.step().unwrap();
        let now = (!lo.carrier).then_some(DownReason::LinkDown);
        assert_eq!(counters.down_reason(0), now, "as the interface is");
        let device = FakeSteering::default().af_xdp(&Rules::default());
        monitor.ports[0].phase = Phase::Installing(Box::new(device));
        monitor.ports[0].interface = Some(without);
        monitor.start(0).unwrap();
        assert_eq!(counters.down_reason(0), Some(DownReason::LinkDown), "after its return");
        assert!(matches!(monitor.ports[0].phase, Phase::Open), "it is not reopened again");
    });
}

#[test]
fn the_rules_in_force_decide_if_a_port_can_leave_linux() {
    let list = Rules::new(vec![Rule { udp_port: Some(1.into()), ..Rule::default() }]).unwrap();
    for (steer, in_force, refusal) in [
        (json!([]), list, Some("its `steer` list is matched in Linux")),
        (json!([{"udp-port": 1}]), Rules::default(), None),
    ] {
        let driver = json!({"af-packet": {"interface": "lo"}});
        let raw = json!({"ports": {"wire": {"driver": driver, "steer": steer}}});
        with_monitor_of(raw, |monitor| {
            let device = FakeSteering::default().af_packet(&Rules::default());
            let mut devices = lock(monitor.around.devices);
            devices.exchange_device(&monitor.ports[0].plan, device).unwrap();
            devices.replace_rules(0, &in_force).unwrap();
            drop(devices);
            let driver = json!({"memif": {"socket": "@fastlane-nobody", "role": "client"}});
            let driver = serde_json::from_value(driver).unwrap();
            let switch = Switch { port: "wire".to_owned(), driver };
            let result = monitor.begin_switch(&switch, &mpsc::sync_channel(1).0);
            match refusal {
                Some(reason) => assert!(result.unwrap_err().contains(reason)),
                None => result.unwrap(),
            }
        });
    }
}

#[test]
fn a_carrier_that_goes_and_returns_is_logged() {
    with_monitor(|monitor| {
        let up = Interface { up: true, carrier: true, ..Interface::query("lo").unwrap() };
        let lost = Interface { carrier: false, ..up.clone() };
        let down = Interface { up: false, ..lost.clone() };
        let plan = &monitor.ports[0].plan;
        let log = |before: &Interface, now| logged(|| report_changes(plan, before, now));
        assert!(log(&up, &lost).contains("lo has lost its carrier"));
        assert!(log(&lost, &up).contains("lo has its carrier again"));
        assert!(log(&up, &down).contains("lo is down"), "which says it all");
        assert_eq!(log(&up, &up), "");
    });
}

#[test]
fn frames_that_a_peer_leaves_unread_are_counted_when_its_port_is_switched() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("memif.sock").display().to_string();
    let driver = json!({"memif": {"socket": &socket, "role": "server"}});
    with_monitor_of(json!({"ports": {"wire": {"driver": driver}}}), |monitor| {
        let (plan, counters) = (monitor.ports[0].plan.clone(), monitor.around.counters);
        let mut opened = monitor.open_beside(&plan).unwrap();
        let (settings, mut pool) =
            (MemifSettings::new(socket.parse().unwrap(), Role::Client), pool());
        let _peer = fastlane_memif::open(settings, PortId(0)).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while !opened.is_connected() {
            assert!(Instant::now() < end, "no connection");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (_, mut queue) = opened.queues.pop().unwrap();
        queue.receive(&mut Burst::new(1), &mut pool); // takes the rings
        let mut packet = pool.alloc_packet(60, PortId(0)).unwrap();
        // The client gives its frames to the ring once it has heard of the connection, too.
        while queue.transmit(std::slice::from_mut(&mut packet), &mut pool).packets == 0 {
            assert!(Instant::now() < end, "no room in the ring");
        }
        let counters_of_port = counters.port(0, 0);
        let port =
            Port { queues: vec![queue], kernel: None, filter: None, counters: counters_of_port };
        let config = LaneConfig::new(pool, vec![port], counters.lane(0));
        let config = LaneConfig { idle: Idle::Busy, ..config };
        let mut lane = Lane::new(|_: &mut Packet| Verdict::Drop, config);
        lane.swap_queues_by(monitor.lanes.of_lanes().remove(0).swap);
        lock(monitor.around.devices).exchange_device(&plan, opened.device).unwrap();
        lock(monitor.around.devices).release_device(&plan);
        monitor.ports[0].phase = last_stage(monitor, Interface::query("lo").unwrap(), 1);
        if let Phase::Switching(switch) = &mut monitor.ports[0].phase {
            switch.stage = Stage::Settling;
        }
        monitor.request(0, QueueChange::Replace);
        while !matches!(monitor.ports[0].phase, Phase::Open) {
            assert!(Instant::now() < end, "the switch has not ended");
            lane.turn();
            monitor.step().unwrap();
        }
        lane.turn();
        assert_eq!(counters.port_total(0, PortCounter::DropTransmitError), 1);
        assert_eq!(lane.close(), 0);
    });
}
