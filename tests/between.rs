//! Two ports on two mechanisms in one configuration forward to each other. A generator is behind
//! the one, a macswap behind the other, so every packet crosses in both directions.

use fastlane_tests::{Application, Generator, Host, Lab, binary, measure};
use serde_json::{Value, json};

/// Mechanism of a port. They differ in the memory of their packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    XdpNative,
    XdpGeneric,
    Packet,
    Tap,
    Memif,
    Dpdk,
}

const ALL: [Side; 6] =
    [Side::XdpNative, Side::XdpGeneric, Side::Packet, Side::Tap, Side::Memif, Side::Dpdk];

/// One pair for each kind of copy: out of and into the memory of DPDK, between frames of the pool,
/// and between drivers that copy the bytes out.
const REPRESENTATIVES: [(Side, Side); 3] =
    [(Side::Dpdk, Side::XdpNative), (Side::Memif, Side::Dpdk), (Side::XdpNative, Side::Memif)];

/// One port of the crossing and the program behind it.
struct End<'a> {
    near: Value,
    far: Value,
    /// Host of the program behind the port.
    host: &'a Host,
}

impl Side {
    /// Prepares everything for the port called `name`.
    fn prepare(self, lab: &Lab, name: char) -> End<'_> {
        let wire = format!("wire{name}");
        let (near, far, host) = match self {
            Self::Memif => {
                let socket = lab.file(&format!("{name}.memif"));
                let side = |role| json!({"memif": {"socket": socket, "role": role}});
                (side("server"), side("client"), &lab.right)
            }
            Self::Tap => {
                let packet = json!({"af-packet": {"interface": wire}});
                (json!({"tap": {"name": wire}}), packet, &lab.left)
            }
            Self::XdpNative | Self::XdpGeneric | Self::Packet | Self::Dpdk => {
                lab.wire(&wire);
                (self.on(&wire), json!({"af-packet": {"interface": wire}}), &lab.right)
            }
        };
        End { near, far, host }
    }

    fn on(self, wire: &str) -> Value {
        match self {
            Self::XdpNative => json!({"af-xdp": {"interface": wire, "mode": "native-copy"}}),
            Self::XdpGeneric => json!({"af-xdp": {"interface": wire, "mode": "generic-copy"}}),
            Self::Packet => json!({"af-packet": {"interface": wire}}),
            _ => json!({"dpdk": {"vdev": format!("net_af_packet0,iface={wire}")}}),
        }
    }
}

/// Number of packets of a short story.
const COUNT: u64 = 5_000;

fn cross(first: Side, second: Side, count: u64) {
    let story = format!("between-{first:?}-{second:?}");
    let Some(lab) = Lab::new(&story, 1) else { return };
    let (a, b) = (first.prepare(&lab, 'a'), second.prepare(&lab, 'b'));
    let fast = json!([{"udp-port": 2152}]);
    let port = |end: &End<'_>| json!({"driver": end.near, "steer": fast, "kernel": "none"});
    let configuration = json!({
        "ports": {"a": port(&a), "b": port(&b)},
        "dpdk": {"huge-pages": "none"},
    });
    let crossing = Application::start(&lab, &lab.left, &binary("cross"), configuration);
    let beyond = Application::steered(&b.far);
    let beyond = Application::start(&lab, b.host, &binary("macswap"), beyond);
    if second == Side::Memif {
        crossing.process.wait_for("port `b`: link up");
    }
    // It stays until all others have ended.
    let mut generator = (first == Side::Memif).then(|| Generator::start(&lab, a.host, &a.far));
    let mut settings = json!({"count-packets": count, "outstanding-packets": 32});
    let report = match &mut generator {
        Some(generator) => generator.trial(&settings),
        None => {
            settings["flows"] = json!({});
            measure(&lab, a.host, &a.far, settings).0
        }
    };
    assert_eq!(report.sent(), count);
    report.assert_intact();
    let totals = crossing.totals();
    for (from, to) in [("a", "b"), ("b", "a")] {
        let message = format!("{story}, {from} to {to}: {}", totals.0);
        assert_eq!(totals.port(from, "verdict_forward"), count, "{message}");
        assert_eq!(totals.port(to, "sent_packets"), count, "{message}");
    }
    // The crossing goes first: DPDK's devices do not like their peers to go before them.
    crossing.stop(); // and says by its exit status that all frames came back
    beyond.stop();
}

#[test]
fn one_of_each_way_that_a_copy_takes() {
    for (first, second) in REPRESENTATIVES {
        cross(first, second, COUNT);
    }
}

#[test]
fn every_mechanism_forwards_to_every_other() {
    if std::env::var_os("FASTLANE_SOAK").is_none() {
        return; // the long form, by `make soak`
    }
    for (place, first) in ALL.into_iter().enumerate() {
        for second in &ALL[place + 1..] {
            cross(first, *second, 200_000);
        }
    }
}

/// Frames of a network with an MTU of 9000 octets, which AF_XDP passes in up to three pieces.
#[test]
fn long_frames_cross_from_one_af_xdp_port_to_another() {
    for side in [Side::XdpNative, Side::XdpGeneric] {
        let Some(lab) = Lab::new(&format!("between-long-{side:?}"), 1) else { return };
        let (a, b) = (side.prepare(&lab, 'a'), side.prepare(&lab, 'b'));
        let ends = [
            (&lab.left, "wirea"),
            (&lab.left, "wireb"),
            (&lab.right, "wirea"),
            (&lab.right, "wireb"),
        ];
        for (host, wire) in ends {
            host.run(&["ip", "link", "set", wire, "mtu", "9000"]);
        }
        let lanes = json!({"frame-size": 16384, "frames": 1024});
        let port = |end: &End<'_>| json!({"driver": end.near, "kernel": "none"});
        let ports = json!({"a": port(&a), "b": port(&b)});
        let configuration = json!({"lanes": lanes, "ports": ports});
        let crossing = Application::start(&lab, &lab.left, &binary("cross"), configuration);
        let mut beyond = Application::steered(&b.far);
        beyond["lanes"] = lanes.clone();
        let beyond = Application::start(&lab, b.host, &binary("macswap"), beyond);
        let settings = json!({
            "count-packets": COUNT, "outstanding-packets": 32, "flows": {}, "lanes": lanes,
            "frame-bytes": [60, 3840, 3841, 9014],
        });
        let (report, _) = measure(&lab, a.host, &a.far, settings);
        assert_eq!(report.sent(), COUNT);
        report.assert_intact();
        let totals = crossing.totals();
        for (from, to) in [("a", "b"), ("b", "a")] {
            let message = format!("{side:?}, {from} to {to}: {}", totals.0);
            assert_eq!(totals.port(from, "verdict_forward"), COUNT, "{message}");
            assert_eq!(totals.port(to, "sent_packets"), COUNT, "{message}");
        }
        crossing.stop();
        beyond.stop();
    }
}
