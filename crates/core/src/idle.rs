//! Idle policies: the behaviour of a lane without work.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use crate::now;

/// Idle policy: the behaviour of a lane after a turn without work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls again at once: the lowest latency, a whole core.
    Busy,
    /// Waits for an interrupt at once: the least CPU time, a wake-up for each burst.
    Interrupt,
    /// Polls for a while, then naps for growing times, then waits for an interrupt. CPU time
    /// follows the load; the throughput under load equals `Busy`.
    #[default]
    Adaptive,
}

/// Time that `Adaptive` polls, in nanoseconds. It is longer than a round trip on a fast link, so
/// that a peer which waits for each reply finds the lane awake.
const SPIN: u64 = 8_000;
/// Time that `Adaptive` naps before it waits for an interrupt, in nanoseconds. If packets are
/// further apart, one interrupt for each is cheaper than polling between them.
const NAP_PHASE: u64 = 50_000;
/// First nap, in nanoseconds; each following one is twice as long. A nap costs some microseconds of
/// CPU time, so shorter ones would save nothing. Packets that arrive meanwhile form the next burst.
/// (Linux adds about 50 microseconds of timer slack unless the thread sets less, as lanes do.)
const NAP_FIRST: u64 = 20_000;
/// Longest nap of a lane that has a port without interrupt, in nanoseconds.
const NAP_WITHOUT_INTERRUPT: u64 = 1_000_000;
/// Longest wait, in nanoseconds. After it the lane publishes statistics and checks whether to end.
const WAIT: u64 = 100_000_000;
/// Number of consecutive interrupts without work after which a lane naps instead of waiting. A
/// descriptor stays readable if the device is dead or the pool has no frame to receive into.
const FALSE_ALARMS: u32 = 3;
/// Nap after [`FALSE_ALARMS`] interrupts without work, in nanoseconds.
const ALARM_NAP: u64 = 1_000_000;

/// Idle state of a lane: how long it has had no work, and how it rests next.
pub(crate) struct IdleState {
    policy: Idle,
    /// Epoll instance of all interrupts, if every port has one.
    interrupts: Option<OwnedFd>,
    events: Vec<epoll::Event>,
    idle_since: Option<u64>,
    nap: u64,
    false_alarms: u32,
}

impl IdleState {
    pub(crate) fn new(policy: Idle, interrupts: Option<OwnedFd>) -> Self {
        let events = Vec::with_capacity(16);
        Self { policy, interrupts, events, idle_since: None, nap: NAP_FIRST, false_alarms: 0 }
    }

    /// Returns true if the lane never rests.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.policy == Idle::Busy
    }

    /// Resets the state after a turn with work.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.idle_since = None;
        self.nap = NAP_FIRST;
        self.false_alarms = 0;
    }

    /// Decides how to rest before the turn that is due at `deadline`, if any. Returns `None` if the
    /// lane must not rest.
    #[inline]
    pub(crate) fn decide(&mut self, deadline: Option<u64>) -> Option<Sleep> {
        if self.policy == Idle::Busy {
            return None;
        }
        let now = now();
        let idle = now - *self.idle_since.get_or_insert(now);
        let until_due = deadline.map_or(u64::MAX, |deadline| deadline.saturating_sub(now));
        let waits = self.interrupts.is_some();
        let sleep = match self.policy {
            Idle::Busy => return None,
            _ if self.false_alarms >= FALSE_ALARMS => Sleep::Nap(ALARM_NAP),
            Idle::Interrupt if waits => Sleep::Wait(WAIT),
            Idle::Adaptive if idle < SPIN => return None,
            Idle::Adaptive if waits && idle >= NAP_PHASE => Sleep::Wait(WAIT),
            Idle::Interrupt | Idle::Adaptive => {
                let nap = self.nap;
                self.nap = (nap * 2).min(if waits { NAP_PHASE } else { NAP_WITHOUT_INTERRUPT });
                Sleep::Nap(nap)
            }
        };
        sleep.at_most(until_due)
    }

    /// Rests for the given time, or until an interrupt.
    pub(crate) fn sleep(&mut self, sleep: Sleep) {
        match (sleep, &self.interrupts) {
            (Sleep::Wait(wait), Some(interrupts)) => {
                let timeout = Timespec { tv_sec: 0, tv_nsec: wait as i64 };
                self.events.clear();
                let room = rustix::buffer::spare_capacity(&mut self.events);
                // Work resets the count, so it counts interrupts without work.
                match epoll::wait(interrupts.as_fd(), room, Some(&timeout)) {
                    Ok(0) => self.false_alarms = 0,
                    Ok(_) | Err(_) => self.false_alarms += 1,
                }
            }
            (Sleep::Wait(time) | Sleep::Nap(time), _) => {
                self.false_alarms = 0;
                std::thread::sleep(Duration::from_nanos(time));
            }
        }
    }
}

/// Rest of a lane, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Sleep for this time.
    Nap(u64),
    /// Wait for an interrupt, at most for this time.
    Wait(u64),
}

impl Sleep {
    /// Returns true if an interrupt ends it.
    pub(crate) fn is_wait(self) -> bool {
        matches!(self, Self::Wait(_))
    }

    fn at_most(self, limit: u64) -> Option<Self> {
        match self {
            _ if limit == 0 => None,
            Self::Nap(time) => Some(Self::Nap(time.min(limit))),
            Self::Wait(time) => Some(Self::Wait(time.min(limit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(idle.decide(None), Some(Sleep::Nap(NAP_WITHOUT_INTERRUPT)));
        idle.reset();
        assert_eq!(idle.decide(None), Some(Sleep::Nap(NAP_FIRST)));
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
    fn adaptive_first_looks_again() {
        assert_eq!(idle(Idle::Adaptive).decide(None), None);
    }
}
