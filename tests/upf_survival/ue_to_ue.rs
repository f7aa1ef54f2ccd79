//! Traffic from UE to UE with two lanes, for sessions on the same lane and on different ones: each
//! packet arrives once and in order, and both sessions count it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastlane_tests::upf::{
    Arrival, Driver, Session, Smf, Traffic, Upf, UpfLab, accepted, frames, messages,
};
use fastlane_tests::{PATIENCE, eventually};
use serde_json::{Value, json};

use crate::story::{RATE, is_soak, session_request, version, with_traffic};

/// Returns the lane of a session. Its shard is the low octet of the TEID.
fn lane(session: &Session) -> u32 {
    session.uplink_teid % 256 % 2
}

/// Lanes that have queues of the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    /// Both lanes receive.
    Both,
    /// Only the first lane has queues; it receives and transmits for the second one.
    First,
}

impl Lanes {
    fn configuration(self, lab: &UpfLab) -> Value {
        let mut configuration = lab.configuration(64, &[]);
        configuration["lanes"]["cpus"] = json!([0, 1]);
        if self == Self::First {
            for name in ["n3", "n6"] {
                configuration["ports"][name]["lanes"] = json!([0]);
            }
        }
        configuration
    }
}

/// Four UEs, two on each lane.
struct Story {
    lab: UpfLab,
    upf: Upf,
    smf: Smf,
    traffic: Traffic,
    ues: Vec<Session>,
    /// Packets received by the data network and by UEs.
    arrivals: [Vec<Arrival>; 2],
    /// Octets that each UE has sent to others, by CP-SEID.
    sent: BTreeMap<u64, u64>,
}

impl Story {
    fn new(name: &str, driver: Driver, lanes: Lanes) -> Option<Self> {
        let lab = UpfLab::new(name, driver)?;
        let upf = lab.start_unsupervised(lanes.configuration(&lab));
        let mut smf = lab.smf();
        smf.associate();
        let ues: Vec<_> = (1..=4).map(|number| smf.establish(&session_request(number))).collect();
        let mut lanes: Vec<u32> = ues.iter().map(lane).collect();
        lanes.sort_unstable();
        assert_eq!(lanes, [0, 0, 1, 1], "{ues:?}");
        let traffic = lab.traffic();
        let (arrivals, sent) = Default::default();
        Some(Self { lab, upf, smf, traffic, ues, arrivals, sent })
    }

    /// Returns a UE, another one on the same lane, and one on the other lane.
    fn three(&self) -> [Session; 3] {
        let of = |which: u32| self.ues.iter().filter(move |ue| lane(ue) == which);
        [of(0).next(), of(0).nth(1), of(1).next()].map(|ue| *ue.expect("two on each"))
    }

    /// Sends `each` packets for each pair of UEs, waits until `done` returns true for the number of
    /// received packets, and returns them. The SMF responds to the UPF meanwhile.
    #[track_caller]
    fn exchange(
        &mut self,
        pairs: &[(Session, Session)],
        each: u64,
        done: impl Fn(&UpfLab, u64) -> bool,
    ) -> Vec<Arrival> {
        for (from, to) in (0..each).flat_map(|_| pairs) {
            let octets = self.traffic.send_ue_to_ue(from, to);
            *self.sent.entry(from.cp_seid).or_default() += octets;
            std::thread::sleep(Duration::from_secs(1) / RATE);
            if self.traffic.offered[1].is_multiple_of(16) {
                self.smf.poll();
            }
        }
        // Packets that are missing after this time are lost.
        let end = Instant::now() + PATIENCE;
        while !done(&self.lab, self.traffic.received_downlink()) && Instant::now() < end {
            self.smf.poll();
        }
        self.smf.heartbeat(); // all reports have responses
        let arrivals = self.traffic.collect();
        assert!(arrivals[0].is_empty(), "to the data network: {arrivals:?}");
        assert_in_order(&arrivals[1]);
        self.arrivals[1].extend(&arrivals[1]);
        arrivals[1].clone()
    }

    /// Sends a Session Modification Request, which must be accepted.
    #[track_caller]
    fn change(&mut self, message: impl FnOnce(u32) -> Vec<u8>) {
        let sequence = self.smf.next_sequence();
        let response = self.smf.request(&message(sequence));
        accepted(&response);
    }

    fn dropped(&self) -> BTreeMap<String, u64> {
        self.lab.dropped(&self.upf)
    }

    /// Deletes all sessions. The usage reports of each UE must sum up to the octets that it has
    /// sent to the data network and to other UEs, and that it has received.
    #[track_caller]
    fn end(mut self) {
        let [up, down] = &self.arrivals;
        for ue in &self.ues {
            self.smf.delete(ue);
            let is_from_ue = |it: &&Arrival| it.1.stamp.session == ue.cp_seid;
            let is_to_ue = |it: &&Arrival| it.1.ue == ue.ue;
            let sent = self.sent.get(&ue.cp_seid).copied().unwrap_or(0);
            let expected = [octets(up, is_from_ue) + sent, octets(down, is_to_ue)];
            assert_eq!(self.smf.usage(ue), expected, "session {}: up, down", ue.cp_seid);
        }
        self.upf.stop();
    }
}

fn octets(arrivals: &[Arrival], which: impl Fn(&&Arrival) -> bool) -> u64 {
    arrivals.iter().filter(which).map(|(_, packet)| packet.octets).sum()
}

/// Asserts that the packets of each pair of UEs arrive in the order in which they were sent.
#[track_caller]
fn assert_in_order(arrivals: &[Arrival]) {
    let mut last = BTreeMap::new();
    for (_, packet) in arrivals {
        let before = last.insert((packet.stamp.session, packet.ue), packet.stamp.number);
        assert!(before.is_none_or(|it| it < packet.stamp.number), "{packet:?} after {before:?}");
    }
}

/// Sends packets from each UE to each other one.
fn all_to_all(name: &str, driver: Driver, lanes: Lanes) {
    let Some(mut story) = Story::new(name, driver, lanes) else { return };
    let ues = story.ues.clone();
    let all = ues.iter().flat_map(|from| ues.iter().map(move |to| (*from, *to)));
    let pairs: Vec<_> = all.filter(|(from, to)| from != to).collect();
    let each = if is_soak() { 5000 } else { 100 };
    let offered = each * pairs.len() as u64;
    let arrivals = story.exchange(&pairs, each, |_, arrived| arrived == offered);
    let dropped = story.dropped();
    let numbers: BTreeSet<u64> = arrivals.iter().map(|it| it.1.stamp.number).collect();
    let missing: Vec<u64> = (1..=offered).filter(|number| !numbers.contains(number)).collect();
    assert!(missing.is_empty() && dropped.is_empty(), "{missing:?} {dropped:?}");
    let totals = story.upf.totals();
    let between = |counter| totals.port("user-to-user", counter);
    assert_eq!(between("received_packets"), offered, "each packet once");
    let crossing = pairs.iter().filter(|(from, to)| lane(from) != lane(to)).count() as u64;
    assert_eq!(between("passed_packets"), each * crossing, "only to the other lane");
    assert_eq!(story.lab.packet_count("user_to_user"), offered);
    // Traffic with the data network still passes.
    let (_, more) = with_traffic(&mut story.smf, &mut story.traffic, &ues, 40, |_| ());
    assert_eq!(more.each_ref().map(Vec::len), [40, 40], "{:?}", story.dropped());
    story.arrivals.iter_mut().zip(more).for_each(|(arrivals, more)| arrivals.extend(more));
    assert!(!story.upf.log().contains("has no interrupt"), "lanes wait for interrupts");
    story.end();
}

#[test]
fn ues_reach_each_other_on_two_lanes() {
    all_to_all("ues-both", Driver::AfPacket, Lanes::Both);
}

#[test]
fn ues_reach_each_other_if_one_lane_has_all_queues() {
    all_to_all("ues-first", Driver::AfXdp, Lanes::First);
}

/// While the FAR of a UE buffers, packets of UEs and of the data network wait for it.
#[test]
fn packets_for_a_ue_are_buffered() {
    let Some(mut story) = Story::new("ues-wait", Driver::AfPacket, Lanes::Both) else { return };
    let [to, near, far] = story.three();
    let mut rules = version(1);
    rules.is_buffering = true;
    story.change(|sequence| messages::modify(sequence, to.up_seid, &rules));
    let arrivals =
        story.exchange(&[(near, to), (far, to)], 20, |lab, _| lab.packet_count("held") == 40);
    assert_eq!(arrivals.len(), 0, "{:?}", story.dropped());
    story.traffic.send_downlink(&to);
    eventually("all packets are buffered", || story.lab.packet_count("held") == 41);
    (rules.is_buffering, rules.is_open) = (false, true);
    story.change(|sequence| messages::modify(sequence, to.up_seid, &rules));
    let arrivals = story.exchange(&[(far, to), (near, to)], 10, |_, arrived| arrived == 61);
    let dropped = story.dropped();
    assert!(arrivals.len() == 61 && dropped.is_empty(), "{} {dropped:?}", arrivals.len());
    assert!(arrivals.iter().all(|(_, packet)| packet.ue == to.ue));
    let network = arrivals.iter().position(|(_, packet)| packet.stamp.session == to.cp_seid);
    assert_eq!(network, Some(40), "buffered packets leave in their order of arrival");
    story.end();
}

/// A volume quota of the sender or of the receiver stops the traffic at the exact packet.
#[test]
fn a_quota_of_either_ue_stops_the_traffic() {
    let Some(mut story) = Story::new("ues-quota", Driver::AfPacket, Lanes::Both) else { return };
    let [to, near, far] = story.three();
    let mut refused = 0;
    for (limited, pair) in [(to, (near, to)), (to, (far, to)), (near, (near, far))] {
        let (quota, sent) = (3000, story.sent.get(&limited.cp_seid).copied().unwrap_or(0));
        story.change(|sequence| messages::set_quota(sequence, limited.up_seid, quota));
        let before = story.traffic.offered[1];
        let arrivals = story.exchange(&[pair], 60, |lab, arrived| {
            arrived + lab.packet_count("quota_exhausted") - refused == 60
        });
        let first = arrivals.first().expect("some come").1.stamp.number;
        let mut sum = 0;
        let fits = (first..).take_while(|number| {
            sum += frames::ip_length(*number);
            sum <= quota
        });
        let numbers: Vec<u64> = arrivals.iter().map(|it| it.1.stamp.number).collect();
        assert_eq!(numbers, fits.collect::<Vec<_>>(), "{:?}", story.dropped());
        if limited == pair.0 {
            // Only octets that passed count for the sender.
            story.sent.insert(limited.cp_seid, sent + octets(&arrivals, |_| true));
        }
        refused += story.traffic.offered[1] - before - arrivals.len() as u64;
        let dropped = story.dropped();
        assert_eq!(dropped.get("quota_exhausted"), Some(&refused), "{dropped:?}");
        assert_eq!(dropped.len(), 1, "{dropped:?}");
    }
    story.end();
}
