//! The UPF survives: its slow half killed at any moment, its fast half replaced, its rules changed
//! under traffic, its numbers used again. Each packet is told from all others, so what is offered
//! is what comes out and what is counted as dropped, to the packet and to the octet.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

#[path = "survival/frames.rs"]
mod frames;
#[path = "survival/messages.rs"]
mod messages;
#[path = "survival/place.rs"]
mod place;
#[path = "survival/smf.rs"]
mod smf;
#[path = "survival/story.rs"]
mod story;
#[path = "survival/traffic.rs"]
mod traffic;
#[path = "survival/users.rs"]
mod users;

use fastlane_pfcp::{Cause, Message};
use fastlane_tests::eventually;
use messages::{Version, Wish};
use place::{Carrier, Place, Upf};
use serde_json::json;
use smf::{Session, Smf, accepted};
use story::{RATE, TUNNELS, exact, gained, is_soak, lost, sessions, under_traffic, version, wish};
use traffic::{Arrival, Traffic, gap};

/// The slow half is killed in every other part of the traffic.
fn slow_half_killed(place: &Place, mut upf: Upf, kills: usize) {
    let mut smf = place.smf();
    smf.associate();
    let sessions = sessions(&mut smf, 20);
    let mut traffic = place.traffic();
    let before = place.dropped(&upf);
    let mut all = [Vec::new(), Vec::new()];
    let (mut said, mut is_good) = (Vec::new(), false);
    let mut sum = 0;
    // Other programs on the machine may cost packets in any part.
    for _ in 0..3 {
        let mut losses = [0, 0];
        for part in 0..2 * kills {
            let offered = traffic.offered;
            let is_killed = part % 2 == 0;
            let heartbeats = smf.heard.heartbeats;
            let ((), came) = under_traffic(&mut smf, &mut traffic, &sessions, 1500, |_| {
                if is_killed {
                    place.kill_slow(&mut upf);
                }
            });
            let offered = [0, 1].map(|way| traffic.offered[way] - offered[way]);
            losses[part % 2] += lost(offered, &came);
            all.iter_mut().zip(came).for_each(|(all, came)| all.extend(came));
            eventually("the UPF asks whether we are there", || {
                smf.turn();
                smf.heard.heartbeats > heartbeats
            });
        }
        sum += losses[0] + losses[1];
        said.push(format!(
            "{kills} kills: {} lost, as many times without: {}",
            losses[0], losses[1]
        ));
        is_good = losses[0] <= losses[1];
        if is_good {
            break;
        }
    }
    eprintln!("{said:?}; {} reports", smf.heard.usage.len());
    assert!(is_good, "{said:?}");
    assert_eq!(gained(place, &upf, &before), sum, "each packet that is lost is counted by name");
    assert_eq!(smf.heard.stamps.len(), 1, "the recovery time stamp has changed");
    assert!(smf.heard.usage.len() > sessions.len(), "reports while it goes on");
    sessions.iter().for_each(|session| smf.delete(session));
    if sum == 0 {
        exact(&smf, &sessions, &all);
    }
    upf.stop();
}

#[test]
fn a_slow_half_that_is_killed_costs_no_packet_and_no_octet() {
    let Some(place) = Place::new("survival-hand", Carrier::AfPacket) else { return };
    let upf = place.by_hand(place.configuration(64, &[]));
    slow_half_killed(&place, upf, if is_soak() { 100 } else { 3 });
}

#[test]
fn a_slow_half_that_the_supervisor_starts_again_costs_no_packet_and_no_octet() {
    let Some(place) = Place::new("survival-supervised", Carrier::AfXdp) else { return };
    let upf = place.supervised(place.configuration(64, &[]));
    slow_half_killed(&place, upf, if is_soak() { 50 } else { 2 });
}

/// Sends a request, kills the slow half so long after that, and sends it again until the next one
/// answers; and once more.
fn exchange_killed(
    place: &Place,
    upf: &mut Upf,
    smf: &mut Smf,
    datagram: &[u8],
    after: Duration,
) -> Vec<u8> {
    smf.send(datagram);
    thread::sleep(after);
    place.kill_slow(upf);
    // What the killed one has answered is there already.
    (0..3).for_each(|_| smf.turn());
    let sequence = Message::parse(datagram).expect("PFCP").0.header.sequence;
    let early = smf.heard.answers.contains_key(&sequence);
    let answer = smf.exchange(datagram);
    // Another answer to the same request would be noticed.
    for _ in 0..1 + usize::from(early) {
        let before = smf.heard.repeated;
        eventually("it is answered again", || {
            smf.send(datagram);
            (0..20).for_each(|_| smf.turn());
            smf.heard.repeated > before
        });
    }
    answer
}

#[test]
fn a_request_is_carried_out_once_although_the_slow_half_is_killed_at_any_moment() {
    let Some(place) = Place::new("survival-once", Carrier::AfPacket) else { return };
    let kills: u32 = if is_soak() { 200 } else { 10 };
    // No room for a session too many.
    let mut upf = place.by_hand(place.configuration(kills, &[]));
    let mut smf = place.smf();
    smf.associate();
    let stamp = smf.heartbeat();
    let mut traffic = place.traffic();
    // From before it is read to after it is answered.
    let moment = |number: u32| Duration::from_micros(4000) * (number % 32) / kills.min(32);
    let mut sessions = Vec::new();
    for number in 1..=kills {
        let wish = wish(number);
        let datagram = messages::establish(smf.next(), &wish);
        let answer = exchange_killed(&place, &mut upf, &mut smf, &datagram, moment(number));
        sessions.push(smf.established(&wish, &answer));
    }
    let refused = smf.next();
    let refused = smf.exchange(&messages::establish(refused, &wish(kills + 1)));
    let cause = Message::parse(&refused).expect("PFCP").0.group().need::<Cause>();
    assert_eq!(cause, Ok(Cause::NO_RESOURCES_AVAILABLE), "one session for each request");
    let mut all = [Vec::new(), Vec::new()];
    for number in 1..=kills {
        let session = sessions[number as usize - 1];
        let (answer, came) = under_traffic(&mut smf, &mut traffic, &sessions, 300, |smf| {
            let datagram = messages::query(smf.next(), session.up_seid);
            exchange_killed(&place, &mut upf, smf, &datagram, moment(number))
        });
        smf.modified(&session, &answer);
        all.iter_mut().zip(came).for_each(|(all, came)| all.extend(came));
    }
    assert_eq!(lost(traffic.offered, &all), 0, "{:?}", place.dropped(&upf));
    for (number, session) in (1..).zip(&sessions) {
        let datagram = messages::delete(smf.next(), session.up_seid);
        let answer = exchange_killed(&place, &mut upf, &mut smf, &datagram, moment(number));
        smf.deleted(session, &answer);
    }
    exact(&smf, &sessions, &all);
    for session in &sessions {
        let datagram = messages::delete(smf.next(), session.up_seid);
        let answer = smf.exchange(&datagram);
        let cause = Message::parse(&answer).expect("PFCP").0.group().need::<Cause>();
        assert_eq!(cause, Ok(Cause::SESSION_CONTEXT_NOT_FOUND), "it is gone");
    }
    assert_eq!(smf.heartbeat(), stamp);
    eprintln!("{} kills, {} answers came again", 3 * kills, smf.heard.repeated);
    upf.stop();
}

/// The fast half is killed in the midst of traffic; what that cost.
fn fast_half_killed(place: &Place, upf: &Upf) -> (u64, Duration) {
    let mut smf = place.smf();
    smf.associate();
    let stamp = smf.heartbeat();
    let sessions = sessions(&mut smf, 10);
    let mut traffic = place.traffic();
    upf.wait_for("keeping ");
    let offered = traffic.offered;
    // For longer than it is away, on a machine with other work too: else nothing comes after it.
    let ((), came) = under_traffic(&mut smf, &mut traffic, &sessions, 9000, |_| {
        upf.kill_half("fast");
    });
    let offered = [0, 1].map(|way| traffic.offered[way] - offered[way]);
    assert_eq!(smf.heartbeat(), stamp, "the tables are kept, and so is the recovery time stamp");
    let counts = [0, 1].map(|way| came[way].len());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?} came, {:?}", place.dropped(upf));
    // Sessions are as they were, and can be used and changed.
    let ((), later) = under_traffic(&mut smf, &mut traffic, &sessions, 200, |_| ());
    assert_eq!([0, 1].map(|way| later[way].len()), [200, 200], "{:?}", place.dropped(upf));
    sessions.iter().for_each(|session| smf.delete(session));
    let arrived = |way: usize| octets_of(&came[way]) + octets_of(&later[way]);
    for way in [0, 1] {
        let reported: u64 = sessions.iter().map(|session| smf.usage(session)[way]).sum();
        // What was counted and did not leave is lost, and counted.
        assert!(reported >= arrived(way), "{reported} reported, {} arrived", arrived(way));
        let most = arrived(way) + (offered[way] - came[way].len() as u64) * 200;
        assert!(reported <= most, "{reported} reported, {most} offered");
    }
    let outage = came.iter().map(|arrivals| gap(arrivals)).max().unwrap_or_default();
    (lost(offered, &came), outage)
}

fn octets_of(arrivals: &[Arrival]) -> u64 {
    arrivals.iter().map(|(_, seen)| seen.octets).sum()
}

#[test]
fn a_fast_half_on_kept_sockets_loses_what_it_had_in_its_hands() {
    let Some(place) = Place::new("survival-sockets", Carrier::AfXdp) else { return };
    let upf = place.supervised(place.configuration(64, &[]));
    let (lost, outage) = fast_half_killed(&place, &upf);
    eprintln!("AF_XDP: {lost} lost, nothing for {} ms", outage.as_millis());
    assert!(upf.said().contains("on AF_XDP are taken over"), "{}", upf.said());
    assert!(lost <= place::HANDS, "{lost} lost, nothing for {} ms", outage.as_millis());
    upf.stop();
}

#[test]
fn a_fast_half_elsewhere_is_away_for_a_while_and_its_sessions_are_there() {
    for carrier in [Carrier::Tap, Carrier::AfPacket] {
        let Some(place) = Place::new("survival-outage", carrier) else { return };
        let upf = place.supervised(place.configuration(64, &[]));
        let (lost, outage) = fast_half_killed(&place, &upf);
        eprintln!("{carrier:?}: {lost} lost, nothing for {} ms", outage.as_millis());
        // Nothing but the outage costs packets; a part of its length is that of the machine.
        let most = 2 * outage.as_millis() as u64 * u64::from(RATE) / 1000 + 2 * place::HANDS;
        assert!(lost <= most, "{lost} lost in {} ms", outage.as_millis());
        upf.stop();
    }
}

#[test]
fn what_a_killed_fast_half_held_is_counted_as_lost() {
    let Some(place) = Place::new("survival-held", Carrier::AfXdp) else { return };
    let upf = place.supervised(place.configuration(64, &[]));
    let mut smf = place.smf();
    smf.associate();
    let held = |number: u32| Version { is_open: true, is_held: true, ..version(number) };
    let sessions =
        [1, 2, 3].map(|number| smf.establish(&Wish { version: held(number), ..wish(number) }));
    let mut traffic = place.traffic();
    upf.wait_for("keeping ");
    let send = |traffic: &mut Traffic, each: usize| {
        for session in sessions.iter().cycle().take(3 * each) {
            traffic.down(session);
        }
    };
    send(&mut traffic, 7);
    eventually("all are held", || place.count("held") == 21);
    assert_eq!(place.count("hold_lost"), 0);
    upf.kill_half("fast");
    eventually("they are counted as lost", || {
        place.ask("/metrics").contains("upf_packets_total{cause=\"hold_lost\"} 21\n")
    });
    assert_eq!(traffic.take().map(|came| came.len()), [0, 0]);
    // What is held from now on is not lost.
    send(&mut traffic, 3);
    eventually("these are held, too", || place.count("held") == 30);
    for (number, session) in (1..).zip(&sessions) {
        let open = Version { is_open: true, ..version(number) };
        let datagram = messages::change(smf.next(), session.up_seid, &open);
        accepted(&smf.exchange(&datagram));
    }
    assert_eq!(traffic.take().map(|came| came.len()), [0, 9], "{:?}", place.dropped(&upf));
    assert_eq!(place.count("hold_lost"), 21);
    sessions.iter().for_each(|session| smf.delete(session));
    upf.stop();
}

#[test]
fn when_both_halves_are_killed_the_recovery_time_stamp_says_so() {
    let Some(place) = Place::new("survival-both", Carrier::AfPacket) else { return };
    let upf = place.supervised(place.configuration(64, &[]));
    let mut smf = place.smf();
    smf.associate();
    let stamp = smf.heartbeat();
    let before = sessions(&mut smf, 5);
    let mut traffic = place.traffic();
    // The slow half keeps what the fast half has: it goes first.
    upf.kill_both();
    let next = smf.heartbeat();
    assert!(next > stamp, "sessions are gone: {stamp} {next}");
    place.prepare();
    before.iter().for_each(|session| {
        traffic.up(session);
        traffic.down(session);
    });
    assert_eq!(traffic.take().map(|came| came.len()), [0, 0], "packets of sessions that are gone");
    let dropped = place.dropped(&upf);
    let of = |name: &str| dropped.get(name).copied().unwrap_or(0);
    assert_eq!([of("unknown_tunnel"), of("unknown_user")], [5, 5], "{dropped:?}");
    smf.associate();
    let after = sessions(&mut smf, 5);
    let (_, came) = under_traffic(&mut smf, &mut traffic, &after, 100, |_| ());
    assert_eq!(came.map(|came| came.len()), [100, 100]);
    after.iter().for_each(|session| smf.delete(session));
    upf.stop();
}

#[test]
fn no_packet_sees_half_of_a_modification() {
    let Some(place) = Place::new("survival-flips", Carrier::AfPacket) else { return };
    let mut upf = place.by_hand(place.configuration(64, &[]));
    let mut smf = place.smf();
    smf.associate();
    // One session whose rules are in a line, one whose rules are in a block.
    let sessions =
        [1, 2].map(|number| smf.establish(&Wish { version: version(1), ..wish(number) }));
    let mut traffic = place.traffic();
    let in_force = traffic.version.clone();
    in_force.store(1, Ordering::SeqCst);
    let before = place.dropped(&upf);
    let each = if is_soak() { 60_000 } else { 4500 };
    let (over, is_enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let changes = thread::scope(|scope| {
        let pace = scope.spawn(|| {
            // On a machine with other work the rules change slowly.
            let mut sent = 0;
            let goes_on = || {
                sent += 1;
                sent <= each || !is_enough.load(Ordering::SeqCst)
            };
            traffic.pace(&sessions, 50 * each, RATE, goes_on);
            over.store(true, Ordering::SeqCst);
        });
        let mut number = 1;
        while !over.load(Ordering::SeqCst) {
            number += 1;
            for session in &sessions {
                let datagram = messages::change(smf.next(), session.up_seid, &version(number));
                smf.send(&datagram);
                if number == 40 {
                    place.kill_slow(&mut upf);
                }
                let answer = smf.exchange(&datagram);
                accepted(&answer);
            }
            in_force.store(number, Ordering::SeqCst);
            is_enough.store(number > 80, Ordering::SeqCst);
        }
        pace.join().expect("it does not panic");
        number
    });
    let came = traffic.take();
    let mut seen_versions = BTreeSet::new();
    for (_, seen) in &came[1] {
        let outer = seen.outer.expect("a tunnel");
        let number = outer.teid - TUNNELS;
        let of = version(number);
        assert!(of.is_open, "{seen:?} has passed a closed gate");
        let parts = (outer.peer, outer.marking, outer.qfi);
        assert_eq!(parts, (of.peer, of.marking, Some(of.qfi)), "version {number}: {seen:?}");
        let hop = place::HOPS.iter().find(|hop| hop.1 == of.peer.to_string()).expect("a hop");
        assert_eq!(outer.mac, fastlane_tests::mac(hop.2));
        assert!(number >= seen.stamp.version, "version {number} was replaced: {seen:?}");
        seen_versions.insert(number);
    }
    let dropped = place.dropped(&upf);
    eprintln!("{changes} versions, {} of them seen, {dropped:?}", seen_versions.len());
    assert!(changes > 40 && seen_versions.len() > 10, "{changes} {}", seen_versions.len());
    assert!(dropped.keys().eq(["gate_closed"]), "{dropped:?}");
    assert_eq!(gained(&place, &upf, &before), lost(traffic.offered, &came));
    upf.stop();
}

#[test]
fn no_packet_of_a_session_that_is_gone_reaches_another_user() {
    let Some(place) = Place::new("survival-reuse", Carrier::AfPacket) else { return };
    // So few that places and addresses come round several times. A place rests for N1 x T1 and 2 s.
    let changes = [
        ("n4", json!({"addresses": ["10.40.0.1"], "t1-ms": 300, "n1": 2, "keep-sessions-s": 60})),
        ("pools", json!([{"network-instance": "internet", "prefix": "10.45.0.0/27"}])),
    ];
    let mut upf = place.by_hand(place.configuration(64, &changes));
    let mut smf = place.smf();
    smf.associate();
    let mut traffic = place.traffic();
    let count = if is_soak() { 2000 } else { 160 };
    let mut live: Vec<Session> = Vec::new();
    let mut gone = VecDeque::new();
    let mut all = Vec::new();
    for number in 1..=count {
        let mut wish = wish(number);
        wish.version.is_held = number.is_multiple_of(4);
        let session = smf.establish_when_there_is_room(&wish);
        assert!(live.iter().all(|other| other.user != session.user), "two users, one address");
        assert!(live.iter().all(|other| other.uplink != session.uplink), "two users, one tunnel");
        live.push(session);
        all.push(session);
        if number % (count / 4) == 8 {
            place.kill_slow(&mut upf);
        }
        if live.len() > 6 {
            let session = live.remove(0);
            (0..5).for_each(|_| traffic.down(&session));
            smf.delete(&session);
            gone.push_front(session);
            gone.truncate(3);
        }
        // No lane is so late that what it still has is older than a whole round of addresses.
        if let Some(session) = live.iter().find(|it| it.cp_seid % 4 != 0) {
            traffic.fence(session);
        }
        // Those that are there, and stragglers of those that are not any more.
        for session in live.iter().chain(&gone) {
            traffic.up(session);
            traffic.down(session);
        }
    }
    let came = traffic.take();
    live.iter().for_each(|session| smf.delete(session));
    for (_, seen) in came.iter().flatten() {
        assert_eq!(seen.user, all[seen.stamp.session as usize - 1].user, "{seen:?}");
        let tunnel = seen.outer.map(|outer| u64::from(outer.teid - TUNNELS));
        assert!(tunnel.is_none_or(|it| it == seen.stamp.session), "{seen:?}");
    }
    let [users, tunnels] = [
        all.iter().map(|it| u32::from(it.user)).collect::<BTreeSet<_>>(),
        all.iter().map(|it| it.uplink).collect(),
    ];
    eprintln!("{} addresses and {} tunnels for {} sessions", users.len(), tunnels.len(), all.len());
    assert!(users.len() < all.len(), "addresses are used again");
    // None has counted a packet of another.
    exact(&smf, &all, &came);
    upf.stop();
}
