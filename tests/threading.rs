//! Threading models and lanes by key: whoever does the work, the packets that come out are the
//! same, in the same order.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use fastlane::session;
use fastlane_tests::{
    Application, DropFlag, Generator, Lab, Mechanism, PATIENCE, Process, Report, Totals, binary,
    eventually, measure,
};
use serde_json::{Value, json};

const PACKETS: u64 = 20_000;
/// Packets under way at most: no ring overflows, however slow the machine is.
const FEW: u64 = 128;

/// Assignment of lanes and ports on a machine with two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    Alone,
    /// Two lanes with the application, of which lane 0 has the port too.
    ByFlow,
    /// Two lanes that have all.
    Spread,
    /// Lane 1 has the port, lane 0 the application.
    MasterWorker,
}

const SPLIT: Model = Model::MasterWorker;
const MODELS: [Model; 3] = [Model::Alone, Model::ByFlow, SPLIT];

impl Model {
    fn on(self, mut port: Value) -> Value {
        let lanes = match self {
            Self::Alone => json!({}),
            Self::ByFlow | Self::Spread => json!({"cpus": [0, 1]}),
            Self::MasterWorker => json!({
                "cpus": [0, 1], "model": {"master-worker": {"io": [1]}},
            }),
        };
        if matches!(self, Self::ByFlow | Self::Spread) {
            port["lane-by"] = json!("flow");
        }
        if self == Self::ByFlow {
            port["lanes"] = json!([0]);
        }
        json!({"lanes": lanes, "ports": {"wire": port}})
    }

    /// Asserts which lanes have processed and sent packets.
    fn check(self, totals: &Totals) {
        let of = |lane: u64, counter: &str| -> u64 {
            let entries = totals.0["ports"].as_array().unwrap().iter();
            let mut of_lane = entries.filter(|entry| entry["lane"] == lane);
            of_lane.next().unwrap()["counters"][counter].as_u64().unwrap()
        };
        match self {
            Self::Alone => assert_eq!(totals.wire("passed_packets"), 0),
            Self::Spread => {
                assert!(totals.wire("passed_packets") > 1000);
                assert!(of(0, "verdict_reflect") > 1000 && of(1, "verdict_reflect") > 1000);
                assert!(of(0, "sent_packets") > 1000 && of(1, "sent_packets") > 1000);
            }
            Self::ByFlow => {
                assert!(of(0, "verdict_reflect") > 1000 && of(1, "verdict_reflect") > 1000);
                assert!(of(0, "received_packets") >= PACKETS, "one queue");
                assert_eq!(of(1, "received_packets"), 0);
                assert_eq!(of(1, "sent_packets"), 0, "the other lane sends");
            }
            Self::MasterWorker => {
                assert!(of(1, "received_packets") >= PACKETS && of(1, "sent_packets") >= PACKETS);
                assert_eq!(of(0, "received_packets") + of(0, "sent_packets"), 0);
                assert!(of(0, "verdict_reflect") >= PACKETS);
                assert_eq!(of(1, "verdict_reflect"), 0);
            }
        }
    }
}

fn flows() -> Value {
    json!({
        "count-packets": PACKETS, "outstanding-packets": FEW,
        "flows": {"count": 64},
    })
}

#[track_caller]
fn in_order(report: &Report) {
    report.assert_intact();
    assert_eq!(report.count("reordered-packets"), 0, "{}", report.0);
}

fn over_a_wire(mechanism: Mechanism) {
    for model in [&MODELS[..], &[Model::Spread]].concat() {
        let queues = if model == Model::Spread { 2 } else { 1 };
        let Some(lab) = Lab::new(&format!("threading-{model:?}"), queues) else { return };
        let port = json!({
            "driver": mechanism.on("wire0"), "steer": [{"udp-port": 2152}],
        });
        let macswap = Application::macswap(&lab, model.on(port));
        let driver = Mechanism::Packet.on("wire0");
        // Sent from one CPU: who changes it overtakes himself, on a veth with queues by CPU.
        let mut settings = flows();
        settings["lanes"] = json!({"cpus": [0]});
        let (report, _) = measure(&lab, &lab.right, &driver, settings);
        in_order(&report);
        // What is not fast is Linux's all the time.
        lab.right.assert_pings(5, &[fastlane_tests::LEFT]);
        model.check(&macswap.totals());
        macswap.stop();
    }
}

#[test]
fn over_af_xdp() {
    over_a_wire(Mechanism::XdpNative);
}

#[test]
fn over_af_packet() {
    over_a_wire(Mechanism::Packet);
}

#[test]
fn over_memif() {
    for model in MODELS {
        let Some(lab) = Lab::new(&format!("threading-{model:?}"), 1) else { return };
        let socket = lab.file("peer.memif");
        let side = |role: &str| json!({"memif": {"socket": socket, "role": role}});
        let macswap = Application::macswap(&lab, model.on(json!({"driver": side("server")})));
        let mut generator = Generator::start(&lab, &lab.right, &side("client"));
        in_order(&generator.trial(&flows()));
        model.check(&macswap.totals());
        macswap.stop();
    }
}

#[test]
fn in_memory() {
    for model in [Model::Alone, SPLIT] {
        let Some(lab) = Lab::new(&format!("threading-{model:?}"), 1) else { return };
        let report = lab.file("report.json");
        let mut configuration = model.on(json!({"driver": {"memory": {}}}));
        // What it sends itself goes the same ways, and comes back.
        configuration["app"] = flows();
        configuration["app"]["port"] = json!("wire");
        configuration["app"]["report"] = json!(report);
        let (path, _) = Application::configure(&lab, configuration);
        let mut command = lab.left.command(&[]);
        command.arg(binary("traffic")).arg(path);
        let ended = Process::start(command).wait_within(4 * PATIENCE);
        assert!(ended.status.success(), "{}", ended.stderr);
        let text = std::fs::read(&report).expect("the report");
        in_order(&Report(serde_json::from_slice(&text).expect("JSON from the generator")));
        assert_eq!(ended.drops(), 0, "{}", ended.stderr);
        assert_eq!(ended.counter("received_packets"), PACKETS);
        assert_eq!(ended.counter("sent_packets"), PACKETS);
    }
}

/// Packets that a worker labels `Kernel` reach Linux by the lane of the port.
#[test]
fn the_way_into_linux_is_the_ports() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("threading-kernel", 1) else { return };
        let port = json!({"driver": mechanism.on("wire0")});
        let configuration = Model::MasterWorker.on(port);
        let all = Application::start(&lab, &lab.left, &binary("all_kernel"), configuration);
        lab.right.assert_pings(20, &[fastlane_tests::LEFT]);
        lab.right.assert_pings(20, &["fd77::1"]);
        // Fragments are Linux's already in the lane where they arrive.
        lab.right.assert_pings(20, &["-s", "4000", fastlane_tests::LEFT]);
        let totals = all.totals();
        assert!(totals.wire("passed_packets") >= 40, "{}", totals.0);
        assert!(totals.wire("to_kernel_packets") >= 100, "{}", totals.0);
        assert_eq!(totals.drops("wire"), []);
        all.stop();
    }
}

/// Sends packets of one source address, whose last octet is the shard. At most `outstanding` are in
/// flight; 0 means no limit.
fn of_source(lab: &Lab, last: u8, packets: u64, outstanding: u64) -> Report {
    let app = json!({
        "count-packets": packets, "rate-packets-per-second": 20_000,
        "outstanding-packets": outstanding, "answer-timeout-ms": 10_000,
        "flows": {"count": 4, "source-address": format!("198.18.0.{last}")},
    });
    measure(lab, &lab.right, &Mechanism::Packet.on("wire0"), app).0
}

#[test]
fn a_lane_that_is_stuck_costs_only_its_own_keys() {
    let Some(lab) = Lab::new("threading-stuck", 1) else { return };
    let until = lab.file("go-on");
    let key = json!({"field": "source-address", "shard-at": 0});
    // Its ring has room for all that is sent while nothing comes back: what is lost is lost between
    // the lanes.
    let mut driver = Mechanism::XdpNative.on("wire0");
    driver["af-xdp"]["receive-ring"] = json!(8192);
    let mut configuration = json!({
        "lanes": {"cpus": [0, 1], "frames": 16_384},
        "ports": {"wire": {
            "driver": driver, "steer": [{"udp-port": 2152}], "lane-by": {"key": key},
        }},
    });
    configuration["app"] = json!([1, until]);
    let stuck = Application::start(&lab, &lab.left, &binary("stuck"), configuration);
    // Even shards are of lane 0, odd ones of lane 1.
    in_order(&of_source(&lab, 2, PACKETS, FEW));
    assert_eq!(of_source(&lab, 3, 5000, 0).received(), 0);
    // A wire loses some of them when the machine is slow.
    let came = stuck.totals().wire("received_packets") - PACKETS;
    assert!((3000..=5000).contains(&came), "{came} came");
    let lost = stuck.totals().wire("drop_pass_full");
    assert!((came - 2000..=came).contains(&lost), "{lost} of {came} beyond what the ring holds");
    in_order(&of_source(&lab, 2, PACKETS, FEW));
    let client = session::connect(stuck.session()).expect("its session");
    let refused = others_are_served_while(stuck.session(), || client.shards(Some((3, 0))));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("lane 1 has not finished a turn"), "{refused}");
    let refused = client.shards(Some((3, 2))).unwrap_err().to_string();
    assert!(refused.contains("lane 2 has no application"), "{refused}");
    assert_eq!(client.shards(None).expect("the shards").lanes[3], 1, "it stays");

    std::fs::write(&until, "").expect("the file");
    eventually("what waited is sent", || stuck.totals().wire("sent_packets") > 2 * PACKETS);
    in_order(&of_source(&lab, 3, PACKETS, FEW));
    // A second without a turn is too much to ask of a machine with other work.
    let mut shards = None;
    eventually("it moves", || {
        shards = client.shards(Some((3, 0))).ok();
        shards.is_some()
    });
    let shards = shards.expect("it has moved");
    assert_eq!(shards.lanes[3], 0);
    assert_eq!(shards.packets[3], came + PACKETS);
    let before = stuck.totals().wire("passed_packets");
    in_order(&of_source(&lab, 3, PACKETS, FEW));
    assert_eq!(stuck.totals().wire("passed_packets"), before, "now it is where it arrives");
    drop(client);
    stuck.stop();
}

/// Returns the result of a request that takes long. Panics if other clients were not served
/// meanwhile.
fn others_are_served_while<T: Send>(session: &Path, request: impl FnOnce() -> T + Send) -> T {
    let (has_begun, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let long = scope.spawn(|| {
            has_begun.store(true, Ordering::Relaxed);
            let result = request();
            is_over.store(true, Ordering::Relaxed);
            result
        });
        let mut served = 0;
        while !is_over.load(Ordering::Relaxed) {
            session::connect(session).expect("its session");
            served += usize::from(has_begun.load(Ordering::Relaxed));
        }
        let result = long.join().expect("the request");
        // A few may come before the session has read the request.
        assert!(served >= 10, "{served} other requests were served");
        result
    })
}

#[test]
fn shards_move_while_traffic_flows() {
    let Some(lab) = Lab::new("threading-moves", 1) else { return };
    let port = json!({"driver": Mechanism::XdpNative.on("wire0"), "steer": [{"udp-port": 2152}]});
    let macswap = Application::macswap(&lab, Model::ByFlow.on(port));
    let client = session::connect(macswap.session()).expect("its session");
    let over = AtomicBool::new(false);
    let moves = std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut moves = 0_usize;
            while !over.load(Ordering::Relaxed) {
                // A second without a turn is too much to ask of a machine with other work.
                moves += usize::from(client.shards(Some((moves as u8, moves / 256 % 2))).is_ok());
            }
            moves
        });
        let end = DropFlag(&over);
        let mut app = flows();
        app["count-packets"] = json!(5 * PACKETS);
        let (report, _) = measure(&lab, &lab.right, &Mechanism::Packet.on("wire0"), app);
        drop(end);
        in_order(&report);
        mover.join().expect("it moves shards")
    });
    assert!(moves > 100, "{moves} moves");
    let totals = macswap.totals();
    assert_eq!(totals.drops("wire"), []);
    assert!(totals.lane(0, "busiest_shard") > 0, "{}", totals.0);
    println!("{moves} moves, {} parked", totals.lane(0, "parked_packets"));
    macswap.stop();
}
