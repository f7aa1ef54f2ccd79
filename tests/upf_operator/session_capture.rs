//! `upf capture`: both sides of one session's packets, read by tshark.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use fastlane_testing::skip;
use fastlane_tests::upf::messages::{self, RuleVersion, SessionRequest};
use fastlane_tests::upf::{Driver, Session, UpfLab, accepted};
use fastlane_tests::{Ended, Process, binary, eventually};
use rustix::process::Signal;

use super::NEVER;

/// Packets of a session in each direction.
const PACKETS: usize = 100;

/// Creates a lab if tshark is installed.
fn lab(story: &str, driver: Driver) -> Option<UpfLab> {
    if Command::new("tshark").arg("--version").output().is_err() {
        skip(story, "tshark is not installed");
        return None;
    }
    UpfLab::new(story, driver)
}

/// Starts a capture of `who` into a file and waits until all lanes take part.
fn start(lab: &UpfLab, who: &str, file: &Path) -> Process {
    let mut command = lab.hosts.left.command(&[]);
    command.arg(binary("upf")).arg("capture").arg(who).arg("--write").arg(file);
    let capture = Process::start(command);
    capture.wait_for("upf: capturing session");
    capture
}

/// Asserts that a capture ended well and missed nothing. Returns the number of packets and the
/// reason for the end.
#[track_caller]
fn ended(ended: &Ended) -> (usize, String) {
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let line = ended.stderr.lines().find(|line| line.contains(" captured; ")).expect("a summary");
    let (count, rest) = line.strip_prefix("upf: ").and_then(|it| it.split_once(' ')).expect("both");
    let reason = rest.split_once("; 0 were not captured").expect("all were captured").1;
    (count.parse().expect("a number"), reason.to_owned())
}

/// A packet as tshark reads it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shown {
    interface: String,
    is_inbound: bool,
    /// TEID; `None` without a tunnel.
    teid: Option<u32>,
    /// Source and destination of the outermost header.
    outer: [String; 2],
    /// Source and destination of the innermost header.
    inner: [String; 2],
    comment: String,
}

/// Returns the packets of a file as tshark reads them, in order.
fn read(file: &Path) -> Vec<Shown> {
    let fields = [
        "frame.interface_name",
        "frame.packet_flags_direction",
        "gtp.teid",
        "ip.src",
        "ip.dst",
        "frame.comment",
    ];
    let mut tshark = Command::new("tshark");
    tshark.arg("-n").arg("-r").arg(file).args(["-T", "fields"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(shown).collect()
}

fn shown(line: &str) -> Shown {
    let fields: Vec<&str> = line.split('\t').collect();
    let teid = fields[2].strip_prefix("0x").map(|hex| u32::from_str_radix(hex, 16).expect("hex"));
    let ends = |at: fn(&str) -> &str| [3, 4].map(|field| at(fields[field]).to_owned());
    Shown {
        interface: fields[0].to_owned(),
        is_inbound: fields[1] == "0x00000001",
        teid,
        outer: ends(|all| all.split(',').next().unwrap_or_default()),
        inner: ends(|all| all.split(',').next_back().unwrap_or_default()),
        comment: fields[5].to_owned(),
    }
}

fn establish(lab: &UpfLab) -> (fastlane_tests::upf::Smf, [Session; 2]) {
    let mut smf = lab.smf();
    smf.associate();
    let sessions = [1, 2].map(|number| smf.establish(&SessionRequest::open(number, NEVER)));
    (smf, sessions)
}

/// Kind of packets in a capture.
#[derive(Clone, Copy, Debug)]
struct Kind {
    interface: &'static str,
    is_inbound: bool,
    teid: Option<u32>,
}

/// Returns the number of packets of a kind and of the session's UE.
fn count(packets: &[Shown], session: &Session, kind: Kind) -> usize {
    let ue = session.ue.to_string();
    let is_one = |it: &&Shown| {
        it.inner.contains(&ue)
            && it.interface == kind.interface
            && (it.is_inbound, it.teid) == (kind.is_inbound, kind.teid)
    };
    packets.iter().filter(is_one).count()
}

fn both_sides_of_one_session(story: &str, driver: Driver) {
    let Some(lab) = lab(story, driver) else { return };
    let upf = lab.start_supervised(lab.configuration(64, &[]));
    let (mut smf, [session, other]) = establish(&lab);
    let mut traffic = lab.traffic();
    let file = lab.hosts.file("session.pcapng");
    let capture = start(&lab, &format!("{:#x}", session.up_seid), &file);
    for _ in 0..PACKETS {
        for session in [&session, &other] {
            traffic.send_uplink(session);
            traffic.send_downlink(session);
        }
    }
    let arrivals = traffic.collect();
    assert_eq!(arrivals.each_ref().map(Vec::len), [2 * PACKETS; 2], "the capture costs no packet");
    capture.signal(Signal::INT);
    assert_eq!(ended(&capture.wait()), (4 * PACKETS, String::new()));
    let packets = read(&file);
    assert_eq!(packets.len(), 4 * PACKETS, "none of the other session");
    for (interface, is_inbound, teid) in [
        ("N3", true, Some(session.uplink_teid)),
        ("N6", false, None),
        ("N6", true, None),
        ("N3", false, Some(0x1001)),
    ] {
        let kind = Kind { interface, is_inbound, teid };
        assert_eq!(count(&packets, &session, kind), PACKETS, "{kind:?}");
    }
    let up = packets.iter().find(|it| it.interface == "N3" && it.is_inbound).expect("uplink");
    assert_eq!(up.comment, "lane 0, verdict forward(n6), port n3");
    assert_eq!(up.outer, ["10.30.0.2", "10.30.0.1"]);
    smf.delete(&session);
    smf.delete(&other);
    upf.stop();
}

#[test]
fn both_sides_of_one_session_on_af_packet() {
    both_sides_of_one_session("operator-capture", Driver::AfPacket);
}

#[test]
fn both_sides_of_one_session_on_af_xdp() {
    both_sides_of_one_session("operator-capture-xdp", Driver::AfXdp);
}

#[test]
fn a_capture_follows_a_handover_and_ends_with_its_session() {
    let Some(lab) = lab("operator-handover", Driver::AfPacket) else { return };
    let upf = lab.start_supervised(lab.configuration(64, &[]));
    let (mut smf, [session, other]) = establish(&lab);
    let mut traffic = lab.traffic();
    let file = lab.hosts.file("handover.pcapng");
    let capture = start(&lab, &session.ue.to_string(), &file);
    let began = || capture.stderr().matches("upf: capturing session").count();
    (0..PACKETS).for_each(|_| traffic.send_downlink(&session));
    traffic.collect();
    let version = SessionRequest::open(1, NEVER).version;
    let moved = RuleVersion { peer: Ipv4Addr::new(10, 30, 0, 3), teid: 0x7777, ..version };
    let sequence = smf.next_sequence();
    let _ = accepted(&smf.request(&messages::modify(sequence, session.up_seid, &moved)));
    eventually("the capture follows the session", || began() == 2);
    (0..PACKETS).for_each(|_| traffic.send_downlink(&session));
    traffic.collect();

    // Another capture is refused meanwhile, and what does not exist is named.
    let (status, text) = lab.upf_command(&["capture", "0x5", "-w", "/dev/null"]);
    assert!(status == Some(1) && text.contains("there is no session of 0x5"), "{text}");
    let words = ["capture", &other.ue.to_string(), "-w", "/dev/null"];
    let (status, text) = lab.upf_command(&words);
    assert!(status == Some(1) && text.contains("captured already by process"), "{text}");

    smf.delete(&session);
    let (packets, reason) = ended(&capture.wait());
    assert_eq!(reason, "; the session has ended");
    let shown = read(&file);
    assert_eq!(shown.len(), packets);
    for (teid, peer) in [(0x1001, "10.30.0.2"), (0x7777, "10.30.0.3")] {
        let kind = Kind { interface: "N3", is_inbound: false, teid: Some(teid) };
        assert_eq!(count(&shown, &session, kind), PACKETS, "{teid:#x}");
        let of = shown.iter().filter(|it| it.teid == Some(teid) && !it.is_inbound);
        assert!(of.clone().all(|it| it.outer[1] == peer), "{teid:#x}");
    }
    upf.stop();
}

#[test]
fn a_live_capture_is_read_from_a_pipe_and_ends_with_its_reader() {
    let Some(lab) = lab("operator-live", Driver::AfPacket) else { return };
    let upf = lab.start_supervised(lab.configuration(64, &[]));
    let (_smf, [session, _]) = establish(&lab);
    let mut traffic = lab.traffic();
    // tshark ends after ten packets; the capture then notices that nobody reads.
    let line = format!(
        "{} capture {:#x} -w - | tshark -n -l -i - -c 10 -T fields -e frame.interface_name",
        binary("upf").display(),
        session.up_seid
    );
    let pipe = lab.hosts.left.start(&["sh", "-c", &line]);
    pipe.wait_for("upf: capturing session");
    traffic.send_paced(&[session], 200, 100, || true);
    let output = pipe.wait();
    let interfaces: Vec<&str> = output.stdout.lines().filter(|it| !it.is_empty()).collect();
    assert_eq!(interfaces.len(), 10, "{output:?}");
    assert!(interfaces.iter().all(|it| ["N3", "N6"].contains(it)), "{output:?}");
    assert!(interfaces.contains(&"N3") && interfaces.contains(&"N6"), "{output:?}");
    upf.stop();
}
