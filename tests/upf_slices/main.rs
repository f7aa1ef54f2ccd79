//! Several SMFs and slices on one UPF: each has its limits, and what one of them does is counted
//! for it and not felt by its neighbours. State and counts survive the end of the control plane.

use std::net::Ipv4Addr;

use fastlane_pfcp::Cause;
use fastlane_pfcp::ie::SNssai;
use fastlane_tests::eventually;
use fastlane_tests::upf::messages::{SessionRequest, Slice};
use fastlane_tests::upf::{Driver, Session, Smf, Traffic, Upf, UpfLab};
use serde_json::{Value, json};

/// Volume threshold that no session reaches.
const NEVER: u64 = 1 << 40;
/// Address of the second SMF.
const OTHER_SMF: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 3);
/// A slice with limits of sessions and held packets.
const VIDEO: Slice = slice(1, 0x01_0203, "internet");
/// A slice with a limit of establishments per second.
const METERS: Slice = slice(3, SNssai::NO_SD, "meters");
/// A slice that the configuration does not name.
const VOICE: Slice = slice(1, 0xAB_CDEF, "ims");

const fn slice(sst: u8, sd: u32, dnn: &'static str) -> Slice {
    Slice { s_nssai: SNssai { sst, sd }, dnn }
}

/// Returns the request for session `number` in a slice.
fn request(number: u32, slice: Slice) -> SessionRequest {
    SessionRequest { slice: Some(slice), ..SessionRequest::open(number, NEVER) }
}

/// A UPF with two associated SMFs.
struct SlicedUpf {
    lab: UpfLab,
    upf: Upf,
    smfs: [Smf; 2],
    /// Number of the last session.
    last: u32,
}

impl SlicedUpf {
    fn new(story: &str) -> Option<Self> {
        let lab = UpfLab::new(story, Driver::AfPacket)?;
        lab.hosts.right.run(&["ip", "address", "add", "10.40.0.3/24", "dev", "n4"]);
        let slices = json!([
            { "s-nssai": { "sst": 1, "sd": "010203" }, "sessions": 3,
              "held-packets-per-lane": 5 },
            { "s-nssai": { "sst": 3 }, "establishments-per-s": 1 },
        ]);
        let mut configuration = lab.configuration(64, &[("slices", slices)]);
        configuration["app"]["n4"]["limits"] = json!([{ "smf": "10.40.0.3/32", "sessions": 4 }]);
        let upf = lab.start_supervised(configuration);
        let mut smfs = [lab.smf(), Smf::at(&lab.hosts.right, OTHER_SMF)];
        smfs.iter_mut().for_each(Smf::associate);
        Some(Self { lab, upf, smfs, last: 0 })
    }

    fn next(&mut self, slice: Slice) -> SessionRequest {
        self.last += 1;
        request(self.last, slice)
    }

    fn establish(&mut self, smf: usize, slice: Slice) -> Session {
        let request = self.next(slice);
        self.smfs[smf].establish(&request)
    }

    fn try_establish(&mut self, smf: usize, slice: Slice) -> Cause {
        let request = self.next(slice);
        self.smfs[smf].try_establish(&request)
    }

    /// Establishes a session whose downlink packets are held.
    fn establish_holding(&mut self, smf: usize, slice: Slice) -> Session {
        let mut request = self.next(slice);
        request.version.is_buffering = true;
        self.smfs[smf].establish(&request)
    }

    /// Returns a metric with these labels; 0 if there is none.
    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let start = format!("{name}{{{}}} ", labels.join(","));
        let page = self.lab.get("/metrics");
        let count = page.lines().find_map(|line| line.strip_prefix(&start));
        count.map_or(0, |count| count.parse().expect("a number"))
    }

    fn sessions_of(&self, slice: &str, dnn: &str) -> u64 {
        self.metric("upf_slice_sessions", &[("slice", slice), ("dnn", dnn)])
    }

    /// Returns the establishments of a slice with an outcome.
    fn establishments(&self, slice: &str, dnn: &str, outcome: &str) -> u64 {
        let labels = [("slice", slice), ("dnn", dnn), ("outcome", outcome)];
        self.metric("upf_slice_establishments_total", &labels)
    }

    /// Returns forwarded packets of a slice, uplink and downlink.
    fn packets_of(&self, slice: &str, dnn: &str) -> [u64; 2] {
        ["uplink", "downlink"].map(|direction| {
            let labels = [("slice", slice), ("dnn", dnn), ("direction", direction)];
            self.metric("upf_slice_packets_total", &labels)
        })
    }

    fn drops_of(&self, slice: &str, dnn: &str, reason: &str) -> u64 {
        let labels = [("slice", slice), ("dnn", dnn), ("cause", reason)];
        self.metric("upf_slice_drops_total", &labels)
    }

    fn json(&self, path: &str) -> Value {
        let response = self.lab.get(path);
        let (_, body) = response.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    }
}

#[test]
fn a_full_slice_and_a_full_smf_leave_their_neighbours_alone() {
    let Some(mut site) = SlicedUpf::new("slices-limits") else { return };
    // The slice is full, whichever SMF asks.
    let video: Vec<Session> = [0, 1, 0].map(|smf| site.establish(smf, VIDEO)).into();
    assert_eq!(site.try_establish(0, VIDEO), Cause::NO_RESOURCES_AVAILABLE);
    assert_eq!(site.try_establish(1, VIDEO), Cause::NO_RESOURCES_AVAILABLE);
    // Its rate is the slice's own, too.
    site.establish(0, METERS);
    let causes: Vec<Cause> = (0..4).map(|_| site.try_establish(0, METERS)).collect();
    let refused = causes.iter().filter(|it| **it == Cause::PFCP_ENTITY_IN_CONGESTION).count();
    assert!(refused >= 2, "{causes:?}");
    // The second SMF has one session, and may have three more.
    for _ in 0..3 {
        site.establish(1, VOICE);
    }
    assert_eq!(site.try_establish(1, VOICE), Cause::NO_RESOURCES_AVAILABLE);
    let voice = site.establish(0, VOICE);

    assert_eq!(site.sessions_of("1-010203", "internet"), 3);
    assert_eq!(site.sessions_of("1-abcdef", "ims"), 4);
    assert_eq!(site.establishments("1-010203", "internet", "accepted"), 3);
    assert_eq!(site.establishments("1-010203", "internet", "slice_sessions"), 2);
    assert_eq!(site.establishments("3", "meters", "slice_rate"), refused as u64);
    assert_eq!(site.establishments("1-abcdef", "ims", "smf_sessions"), 1);
    let smf = [("smf", "10.40.0.3/32")];
    assert_eq!(site.metric("upf_smf_sessions", &smf), 4);
    assert_eq!(site.metric("upf_smf_sessions_most", &smf), 4);
    assert_eq!(site.metric("upf_slice_sessions_most", &[("slice", "1-010203")]), 3);
    let log = site.upf.log();
    let logged = log.matches("the slice 1-010203 reached a limit").count();
    assert_eq!(logged, 1, "logged once: {log}");
    assert!(log.contains("raise app.slices.0.sessions"), "{log}");
    assert!(log.contains("the SMFs of 10.40.0.3/32 reached a limit"), "{log}");
    // A load balancer need not know of it: other slices have room.
    assert!(site.lab.get("/readyz").contains("\"ready\""));

    let view = site.json(&format!("/sessions/{:#x}", voice.up_seid));
    assert_eq!((&view["s-nssai"], &view["network"]), (&json!("1-abcdef"), &json!("ims")));
    site.smfs[1].delete(&video[1]);
    assert_eq!(site.try_establish(0, VIDEO), Cause::REQUEST_ACCEPTED, "there is room again");
    assert_eq!(site.sessions_of("1-010203", "internet"), 3);

    // A reload raises the limit; sessions stay.
    let mut file = site.upf.read_file();
    file["app"]["slices"][0]["sessions"] = json!(4);
    site.upf.write_file(&file);
    let path = site.upf.file().to_str().expect("a path").to_owned();
    let (status, text) = site.lab.upf_command(&["reload", &path]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("app.slices"), "{text}");
    let causes = [0, 0].map(|smf| site.try_establish(smf, VIDEO));
    assert_eq!(causes, [Cause::REQUEST_ACCEPTED, Cause::NO_RESOURCES_AVAILABLE]);
    assert_eq!(site.sessions_of("1-010203", "internet"), 4);
    site.upf.stop();
}

/// Sends packets to sessions and waits until the UPF has handled them.
fn send(traffic: &mut Traffic, uplink: &[(&Session, usize)], downlink: &[(&Session, usize)]) {
    for (session, count) in uplink {
        (0..*count).for_each(|_| traffic.send_uplink(session));
    }
    for (session, count) in downlink {
        (0..*count).for_each(|_| traffic.send_downlink(session));
    }
}

#[test]
fn packets_and_drops_count_for_their_slice_and_survive_the_control_plane() {
    let Some(mut site) = SlicedUpf::new("slices-packets") else { return };
    let video = site.establish(0, VIDEO);
    let voice = site.establish(1, VOICE);
    let mut closed = site.next(VOICE);
    closed.version.is_open = false;
    let closed = site.smfs[1].establish(&closed);
    let mut traffic = site.lab.traffic();
    send(&mut traffic, &[(&video, 30), (&voice, 20), (&closed, 5)], &[(&video, 11), (&voice, 7)]);
    traffic.collect();
    send(&mut traffic, &[], &[(&closed, 13)]);
    traffic.offered[1] -= 13; // they are dropped
    eventually("the packets are counted", || site.drops_of("1-abcdef", "ims", "gate_closed") == 13);
    let check = |site: &SlicedUpf| {
        assert_eq!(site.packets_of("1-010203", "internet"), [30, 11]);
        assert_eq!(site.packets_of("1-abcdef", "ims"), [25, 7]);
        assert_eq!(site.drops_of("1-010203", "internet", "gate_closed"), 0);
        assert_eq!(site.drops_of("1-abcdef", "ims", "gate_closed"), 13);
        assert_eq!(site.sessions_of("1-010203", "internet"), 1);
        assert_eq!(site.sessions_of("1-abcdef", "ims"), 2);
    };
    check(&site);
    let sums = ["forwarded_uplink", "forwarded_downlink"].map(|it| site.lab.packet_count(it));
    assert_eq!(sums, [55, 18], "slices add up to all packets");

    site.upf.kill("slow");
    check(&site);
    let view = site.json(&format!("/sessions/{:#x}", video.up_seid));
    assert_eq!(view["s-nssai"], "1-010203");
    // The successor limits by what it has found.
    let _ = [0, 1].map(|smf| site.establish(smf, VIDEO));
    assert_eq!(site.try_establish(0, VIDEO), Cause::NO_RESOURCES_AVAILABLE);
    send(&mut traffic, &[(&video, 2)], &[(&voice, 1)]);
    traffic.collect();
    assert_eq!(site.packets_of("1-010203", "internet"), [32, 11]);
    assert_eq!(site.packets_of("1-abcdef", "ims"), [25, 8]);

    let (status, text) = site.lab.upf_command(&["top", "--once"]);
    assert_eq!(status, Some(0), "{text}");
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    assert!(line("1-abcdef").contains("ims"), "{text}");
    let words: Vec<&str> = line("gate_closed").split_whitespace().collect();
    assert_eq!(words, ["gate_closed", "1-abcdef", "ims", "0", "13"], "{text}");
    site.upf.stop();
}

#[test]
fn a_slice_that_holds_packets_takes_no_room_from_others() {
    let Some(mut site) = SlicedUpf::new("slices-held") else { return };
    let video: Vec<Session> = [0, 1].map(|smf| site.establish_holding(smf, VIDEO)).into();
    let voice = site.establish_holding(0, VOICE);
    let mut traffic = site.lab.traffic();
    send(&mut traffic, &[], &[(&video[0], 3), (&video[1], 9), (&voice, 20)]);
    traffic.offered[1] -= 32; // they are held or dropped
    let held = |site: &SlicedUpf| site.lab.packet_count("held");
    let limited = |site: &SlicedUpf| site.lab.packet_count("hold_limit");
    eventually("all are held or dropped", || held(&site) + limited(&site) == 32);
    assert_eq!((held(&site), limited(&site)), (25, 7), "5 of one slice, all 20 of the other");
    assert_eq!(site.drops_of("1-010203", "internet", "hold_limit"), 7);
    assert_eq!(site.drops_of("1-abcdef", "ims", "hold_limit"), 0);
    // A deleted session's packets are discarded, which makes room.
    site.smfs[0].delete(&video[0]);
    eventually("its packets are discarded", || site.lab.packet_count("hold_discarded") == 3);
    send(&mut traffic, &[], &[(&video[1], 4)]);
    traffic.offered[1] -= 4;
    eventually("all are held or dropped", || held(&site) + limited(&site) == 36);
    assert_eq!((held(&site), limited(&site)), (28, 8));
    // A reload takes the limit away.
    let mut file = site.upf.read_file();
    file["app"]["slices"][0].as_object_mut().expect("a slice").remove("held-packets-per-lane");
    site.upf.write_file(&file);
    let path = site.upf.file().to_str().expect("a path").to_owned();
    let (status, text) = site.lab.upf_command(&["reload", &path]);
    assert_eq!(status, Some(0), "{text}");
    // The control plane answers again when it has told the lanes.
    assert_eq!(site.sessions_of("1-010203", "internet"), 1);
    send(&mut traffic, &[], &[(&video[1], 10)]);
    traffic.offered[1] -= 10;
    eventually("all are held", || held(&site) == 38);
    assert_eq!(limited(&site), 8);
    site.upf.stop();
}
