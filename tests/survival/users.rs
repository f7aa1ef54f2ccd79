//! Two users reach each other through the UPF in two lanes of one process, whether their sessions
//! are on the same lane or not: each packet once, in order, counted for both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastlane_tests::{PATIENCE, eventually};
use serde_json::{Value, json};

use crate::place::{Carrier, Place, Upf};
use crate::smf::{Session, Smf, accepted};
use crate::story::{RATE, is_soak, under_traffic, version, wish};
use crate::traffic::{Arrival, Traffic};
use crate::{frames, messages};

/// The lane of a session: that of its shard, which is in its tunnel's number.
fn lane(session: &Session) -> u32 {
    session.uplink % 256 % 2
}

/// Where the lanes' packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    /// Each lane receives.
    Both,
    /// The second lane has no queue of the wires: it gets all from the first, which sends for it.
    First,
}

impl Lanes {
    fn configuration(self, place: &Place) -> Value {
        let mut configuration = place.configuration(64, &[]);
        configuration["lanes"]["cpus"] = json!([0, 1]);
        if self == Self::First {
            for name in ["n3", "n6"] {
                configuration["ports"][name]["lanes"] = json!([0]);
            }
        }
        configuration
    }
}

/// Four users, two on each lane.
struct Story {
    place: Place,
    upf: Upf,
    smf: Smf,
    traffic: Traffic,
    users: Vec<Session>,
    /// What came into the data network, and to users.
    came: [Vec<Arrival>; 2],
    /// Octets that each user has sent to others, by our number of his session.
    sent: BTreeMap<u64, u64>,
}

impl Story {
    fn new(name: &str, carrier: Carrier, lanes: Lanes) -> Option<Self> {
        let place = Place::new(name, carrier)?;
        let upf = place.by_hand(lanes.configuration(&place));
        let mut smf = place.smf();
        smf.associate();
        let users: Vec<_> = (1..=4).map(|number| smf.establish(&wish(number))).collect();
        let mut lanes: Vec<u32> = users.iter().map(lane).collect();
        lanes.sort_unstable();
        assert_eq!(lanes, [0, 0, 1, 1], "{users:?}");
        let traffic = place.traffic();
        let (came, sent) = Default::default();
        Some(Self { place, upf, smf, traffic, users, came, sent })
    }

    /// A user, another one on the same lane, and one on the other.
    fn three(&self) -> [Session; 3] {
        let of = |which: u32| self.users.iter().filter(move |user| lane(user) == which);
        [of(0).next(), of(0).nth(1), of(1).next()].map(|user| *user.expect("two on each"))
    }

    /// So many packets from one to the other of each pair; what came once all is `done`, which is
    /// told how many have come. The SMF answers meanwhile.
    #[track_caller]
    fn talk(
        &mut self,
        pairs: &[(Session, Session)],
        each: u64,
        done: impl Fn(&Place, u64) -> bool,
    ) -> Vec<Arrival> {
        for (from, to) in (0..each).flat_map(|_| pairs) {
            let octets = self.traffic.across(from, to);
            *self.sent.entry(from.cp_seid).or_default() += octets;
            std::thread::sleep(Duration::from_secs(1) / RATE);
            if self.traffic.offered[1].is_multiple_of(16) {
                self.smf.turn();
            }
        }
        // However slow the machine is; what is missing then is missing.
        let end = Instant::now() + PATIENCE;
        while !done(&self.place, self.traffic.arrived()) && Instant::now() < end {
            self.smf.turn();
        }
        self.smf.heartbeat(); // what was reported is answered
        let came = self.traffic.take();
        assert!(came[0].is_empty(), "into the data network: {came:?}");
        in_order(&came[1]);
        self.came[1].extend(&came[1]);
        came[1].clone()
    }

    /// Changes a session.
    #[track_caller]
    fn change(&mut self, message: impl FnOnce(u32) -> Vec<u8>) {
        let sequence = self.smf.next();
        let answer = self.smf.exchange(&message(sequence));
        accepted(&answer);
    }

    fn dropped(&self) -> BTreeMap<String, u64> {
        self.place.dropped(&self.upf)
    }

    /// The end: to each user's session the octets were reported that came of him into the data
    /// network, that he has sent to others, and that came to him.
    #[track_caller]
    fn end(mut self) {
        let [up, down] = &self.came;
        for user in &self.users {
            self.smf.delete(user);
            let is_his = |it: &&Arrival| it.1.stamp.session == user.cp_seid;
            let to_him = |it: &&Arrival| it.1.user == user.user;
            let sent = self.sent.get(&user.cp_seid).copied().unwrap_or(0);
            let expected = [octets(up, is_his) + sent, octets(down, to_him)];
            assert_eq!(self.smf.usage(user), expected, "session {}: up, down", user.cp_seid);
        }
        self.upf.stop();
    }
}

fn octets(arrivals: &[Arrival], which: impl Fn(&&Arrival) -> bool) -> u64 {
    arrivals.iter().filter(which).map(|(_, seen)| seen.octets).sum()
}

/// What came from one user to another came in the order in which it was sent.
#[track_caller]
fn in_order(arrivals: &[Arrival]) {
    let mut last = BTreeMap::new();
    for (_, seen) in arrivals {
        let before = last.insert((seen.stamp.session, seen.user), seen.stamp.number);
        assert!(before.is_none_or(|it| it < seen.stamp.number), "{seen:?} after {before:?}");
    }
}

/// All talk with all.
fn all_with_all(name: &str, carrier: Carrier, lanes: Lanes) {
    let Some(mut story) = Story::new(name, carrier, lanes) else { return };
    let users = story.users.clone();
    let all = users.iter().flat_map(|from| users.iter().map(move |to| (*from, *to)));
    let pairs: Vec<_> = all.filter(|(from, to)| from != to).collect();
    let each = if is_soak() { 5000 } else { 100 };
    let offered = each * pairs.len() as u64;
    let came = story.talk(&pairs, each, |_, arrived| arrived == offered);
    let dropped = story.dropped();
    let numbers: BTreeSet<u64> = came.iter().map(|it| it.1.stamp.number).collect();
    let missing: Vec<u64> = (1..=offered).filter(|number| !numbers.contains(number)).collect();
    assert!(missing.is_empty() && dropped.is_empty(), "{missing:?} {dropped:?}");
    let totals = story.upf.totals();
    let between = |counter| totals.port("user-to-user", counter);
    assert_eq!(between("received_packets"), offered, "each packet once");
    let crossing = pairs.iter().filter(|(from, to)| lane(from) != lane(to)).count() as u64;
    assert_eq!(between("passed_packets"), each * crossing, "to the other lane, and no other");
    assert_eq!(story.place.count("user_to_user"), offered);
    // Besides, all goes on that goes to the data network and comes from there.
    let (_, more) = under_traffic(&mut story.smf, &mut story.traffic, &users, 40, |_| ());
    assert_eq!(more.each_ref().map(Vec::len), [40, 40], "{:?}", story.dropped());
    story.came.iter_mut().zip(more).for_each(|(came, more)| came.extend(more));
    assert!(!story.upf.said().contains("has no interrupt"), "lanes wait for interrupts");
    story.end();
}

#[test]
fn users_reach_each_other_once_on_two_lanes() {
    all_with_all("users-both", Carrier::AfPacket, Lanes::Both);
}

#[test]
fn users_reach_each_other_once_where_one_lane_has_the_wires() {
    all_with_all("users-first", Carrier::AfXdp, Lanes::First);
}

/// Until another user can be reached his packets wait, those of users as those of the data network.
#[test]
fn packets_of_users_wait_for_another_user() {
    let Some(mut story) = Story::new("users-wait", Carrier::AfPacket, Lanes::Both) else { return };
    let [to, near, far] = story.three();
    let mut rules = version(1);
    rules.is_held = true;
    story.change(|sequence| messages::change(sequence, to.up_seid, &rules));
    let came = story.talk(&[(near, to), (far, to)], 20, |place, _| place.count("held") == 40);
    assert_eq!(came.len(), 0, "{:?}", story.dropped());
    story.traffic.down(&to);
    eventually("all wait", || story.place.count("held") == 41);
    (rules.is_held, rules.is_open) = (false, true);
    story.change(|sequence| messages::change(sequence, to.up_seid, &rules));
    let came = story.talk(&[(far, to), (near, to)], 10, |_, arrived| arrived == 61);
    let dropped = story.dropped();
    assert!(came.len() == 61 && dropped.is_empty(), "{} {dropped:?}", came.len());
    assert!(came.iter().all(|(_, seen)| seen.user == to.user));
    let network = came.iter().position(|(_, seen)| seen.stamp.session == to.cp_seid);
    assert_eq!(network, Some(40), "what waited leaves in the order in which it came");
    story.end();
}

/// Who may send or get no more stops there, not a packet later; his peer is charged for his half.
#[test]
fn a_quota_of_either_user_ends_its_half() {
    let Some(mut story) = Story::new("users-quota", Carrier::AfPacket, Lanes::Both) else { return };
    let [to, near, far] = story.three();
    let mut refused = 0;
    for (limited, pair) in [(to, (near, to)), (to, (far, to)), (near, (near, far))] {
        let (quota, sent) = (3000, story.sent.get(&limited.cp_seid).copied().unwrap_or(0));
        story.change(|sequence| messages::limit(sequence, limited.up_seid, quota));
        let before = story.traffic.offered[1];
        let came = story.talk(&[pair], 60, |place, arrived| {
            arrived + place.count("quota_exhausted") - refused == 60
        });
        let first = came.first().expect("some come").1.stamp.number;
        let mut sum = 0;
        let fits = (first..).take_while(|number| {
            sum += frames::octets(*number);
            sum <= quota
        });
        let numbers: Vec<u64> = came.iter().map(|it| it.1.stamp.number).collect();
        assert_eq!(numbers, fits.collect::<Vec<_>>(), "{:?}", story.dropped());
        if limited == pair.0 {
            // Of what he sends that counts which passed.
            story.sent.insert(limited.cp_seid, sent + octets(&came, |_| true));
        }
        refused += story.traffic.offered[1] - before - came.len() as u64;
        let dropped = story.dropped();
        assert_eq!(dropped.get("quota_exhausted"), Some(&refused), "{dropped:?}");
        assert_eq!(dropped.len(), 1, "{dropped:?}");
    }
    story.end();
}
