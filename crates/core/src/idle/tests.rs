use std::iter::repeat_n;

use proptest::prelude::*;

use super::*;

/// Time of a turn without work, in nanoseconds.
const TURN: u64 = 150;
/// Time of a turn with work for each packet, in nanoseconds.
const PACKET: u64 = 1_000;
/// Time from the end of a nap or an interrupt until the lane runs, in nanoseconds.
const LATENCY: u64 = 4_000;

/// Lane in simulated time, with the idle state of a real one.
struct Simulation {
    idle: IdleState,
    now: u64,
    /// Deadline of a timer, which begins anew `1` after each idle period.
    timer: Option<u64>,
    polled: u64,
    polls_in_vain: u64,
    polls_that_paid: u64,
    periods: u64,
    naps: u64,
    waits: u64,
}

impl Simulation {
    fn new() -> Self {
        let interrupts = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        Self {
            idle: IdleState::new(Idle::Adaptive, Some(interrupts)),
            now: 1_000_000,
            timer: None,
            polled: 0,
            polls_in_vain: 0,
            polls_that_paid: 0,
            periods: 0,
            naps: 0,
            waits: 0,
        }
    }

    fn sleeps(&self) -> u64 {
        self.naps + self.waits
    }

    /// Passes an idle period that the packet at `arrival` ends, and checks what must hold of each.
    fn pass(&mut self, arrival: u64) {
        let mut last = Step::Poll;
        let (polled, sleeps) = (self.polled, self.sleeps());
        let timer = self.timer.map(|after| self.now + after);
        self.periods += u64::from(self.now < arrival);
        while self.now < arrival {
            // A timer that has expired is gone.
            let deadline = timer.filter(|&deadline| deadline > self.now);
            let begin = self.now;
            let step = match self.idle.decide_at(self.now, deadline) {
                None => {
                    self.now += TURN;
                    self.polled += TURN;
                    Step::Poll
                }
                Some(Sleep::Nap(time)) => {
                    assert!(deadline.is_none_or(|deadline| begin + time <= deadline));
                    assert!(time <= GATHER && last < Step::Gather, "one nap in a period");
                    self.now += time + LATENCY;
                    self.naps += 1;
                    Step::Gather
                }
                Some(Sleep::Wait(time)) => {
                    assert!(deadline.is_none_or(|deadline| begin + time <= deadline));
                    self.now = arrival.min(self.now + time) + LATENCY;
                    self.waits += 1;
                    Step::Wait
                }
            };
            assert!(step >= last, "{step:?} after {last:?}");
            last = step;
            if step != Step::Poll {
                self.idle.looked = self.now;
            }
        }
        let polled = self.polled - polled;
        assert!(polled < WAKE_UP + TURN, "{polled} ns of polling in an idle period");
        if polled > 0 && self.sleeps() > sleeps {
            self.polls_in_vain += 1;
        } else if polled > 0 {
            self.polls_that_paid += 1;
        }
    }

    /// Handles `packets` in one turn.
    fn handle(&mut self, packets: usize) {
        self.idle.end_period(packets);
        self.now += packets as u64 * PACKET;
    }

    /// Receives packets at the given distances, whatever the lane does, in bursts of at most 32.
    fn receive(&mut self, gaps: impl IntoIterator<Item = u64>) {
        let mut arrival = self.now;
        let arrivals = gaps.into_iter().map(|gap| {
            arrival += gap;
            arrival
        });
        let mut arrivals = arrivals.peekable();
        while let Some(&next) = arrivals.peek() {
            self.pass(next);
            let mut packets = 0;
            while packets < 32 && arrivals.next_if(|&next| next <= self.now).is_some() {
                packets += 1;
            }
            self.handle(packets);
        }
    }

    /// Receives packets of a peer that sends the next one the given time after each reply.
    fn reply(&mut self, gaps: impl IntoIterator<Item = u64>) {
        for gap in gaps {
            self.pass(self.now + gap);
            self.handle(1);
        }
    }
}

fn idle(policy: Idle) -> IdleState {
    IdleState::new(policy, None)
}

#[test]
fn busy_never_sleeps() {
    assert_eq!(idle(Idle::Busy).decide(None), None);
}

#[test]
fn naps_grow_to_a_bound_and_start_anew_after_work() {
    let mut idle = idle(Idle::Interrupt); // without interrupts it naps
    assert_eq!(idle.decide(None), Some(Sleep::Nap(NAP_FIRST)));
    assert_eq!(idle.decide(None), Some(Sleep::Nap(2 * NAP_FIRST)));
    for _ in 0..20 {
        let _ = idle.decide(None);
    }
    assert_eq!(idle.decide(None), Some(Sleep::Nap(NAP_LONGEST)));
    idle.end_period(1);
    assert_eq!(idle.decide(None), Some(Sleep::Nap(NAP_FIRST)));
}

#[test]
fn an_adaptive_lane_without_interrupts_naps_for_growing_times() {
    let mut idle = idle(Idle::Adaptive);
    assert_eq!(idle.decide_at(1, None), None, "the first period measures the gap");
    for nap in [20_000, 40_000, 80_000, 160_000, 320_000, 640_000, NAP_LONGEST, NAP_LONGEST] {
        assert_eq!(idle.decide_at(1 + WAKE_UP, None), Some(Sleep::Nap(nap)));
    }
    idle.end_period(1);
    assert_eq!(idle.decide_at(2_000_000, None), Some(Sleep::Nap(NAP_FIRST)));
}

#[test]
fn a_timer_bounds_the_sleep() {
    let mut idle = idle(Idle::Interrupt);
    assert_eq!(idle.decide(Some(0)), None, "a timer that is due allows no sleep");
    let soon = now() + NAP_FIRST / 2;
    match idle.decide(Some(soon)) {
        None => {} // the deadline has passed
        Some(Sleep::Nap(time)) => assert!(time <= NAP_FIRST / 2),
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn interrupts_without_work_end_in_a_nap() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"x").unwrap(); // always readable
    let instance = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let data = epoll::EventData::new_u64(0);
    epoll::add(&instance, &reader, data, epoll::EventFlags::IN).unwrap();
    let mut idle = IdleState::new(Idle::Interrupt, Some(instance));
    for _ in 0..FALSE_ALARMS {
        let sleep = idle.decide(None).unwrap();
        assert_eq!(sleep, Sleep::Wait(WAIT));
        idle.sleep(sleep);
    }
    let sleep = idle.decide(None).unwrap();
    assert_eq!(sleep, Sleep::Nap(ALARM_NAP));
    idle.sleep(sleep);
    assert_eq!(idle.decide(None), Some(Sleep::Wait(WAIT)), "then it waits again");
}

#[test]
fn a_lane_waits_at_once_for_packets_that_are_far_apart() {
    let mut lane = Simulation::new();
    lane.receive(repeat_n(100_000, 3200));
    assert_eq!((lane.naps, lane.waits), (0, 3200));
    // One period in 32 measures the gap: 0.3 us of polling for each packet, not 8.
    assert!(lane.polled <= 100 * (WAKE_UP + TURN), "{} ns", lane.polled);
}

#[test]
fn a_peer_that_waits_for_each_reply_finds_the_lane_awake() {
    let mut lane = Simulation::new();
    lane.receive(repeat_n(1_000_000, 100));
    let sleeps = lane.sleeps();
    lane.reply(repeat_n(3_000, 1000));
    let learned = lane.sleeps() - sleeps;
    assert!(learned < u64::from(gap_predictor::PROBE_PERIODS), "{learned} replies were late");
    // Late requests cost their own wake-up, not that of the next one.
    for _ in 0..100 {
        let sleeps = lane.sleeps();
        lane.reply([3_000, 3_000, 3_000, 1_000_000]);
        assert_eq!(lane.sleeps() - sleeps, 1);
    }
}

#[test]
fn packets_that_are_close_gather_in_naps() {
    let mut lane = Simulation::new();
    lane.receive(repeat_n(12_500, 10_000));
    // An interrupt for each would be 10,000 sleeps.
    assert!(lane.sleeps() < 3_000, "{} naps, {} waits", lane.naps, lane.waits);
    assert!(lane.polled < 400 * WAKE_UP, "{} ns", lane.polled);
    let naps = lane.naps;
    lane.receive(repeat_n(100_000, 1000));
    assert!(lane.naps - naps <= 8, "naps end when they gather nothing");
}

#[test]
fn a_peer_that_thinks_before_the_next_request_is_not_delayed_by_naps() {
    let mut lane = Simulation::new();
    lane.reply(repeat_n(15_000, 10_000));
    // In 10,000 periods, the waits of one in 129 lead to a nap, which gathers one packet.
    assert!(lane.naps < 100, "{} naps", lane.naps);
}

#[test]
fn a_lane_under_load_polls_between_the_bursts() {
    let mut lane = Simulation::new();
    lane.receive(repeat_n(12_500, 1000));
    let sleeps = lane.sleeps();
    lane.receive(repeat_n(1_500, 100_000));
    assert!(lane.sleeps() - sleeps < 100, "{} sleeps", lane.sleeps() - sleeps);
}

fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![0..WAKE_UP, 0..GATHER, 0..4 * GATHER, 0..20 * WAIT / 10]
}

proptest! {
    #[test]
    fn an_idle_lane_keeps_its_bounds(
        open in any::<bool>(),
        timer in proptest::option::of(1..4 * GATHER),
        trains in prop::collection::vec((gap(), 1_usize..100), 1..20),
    ) {
        let mut lane = Simulation::new();
        lane.timer = timer;
        let gaps = trains.into_iter().flat_map(|(gap, count)| repeat_n(gap, count));
        if open {
            lane.receive(gaps);
        } else {
            lane.reply(gaps);
        }
        let probes = lane.periods.div_ceil(u64::from(gap_predictor::PROBE_PERIODS));
        prop_assert!(
            lane.polls_in_vain <= lane.polls_that_paid + probes,
            "{} polls in vain, {} that paid, {} periods",
            lane.polls_in_vain, lane.polls_that_paid, lane.periods,
        );
    }
}
