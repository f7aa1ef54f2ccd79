//! Idle policies: the behaviour of a lane without work.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use self::gap_predictor::{GATHER, GapPredictor, Step, WAKE_UP};
use crate::now;

mod gap_predictor;

/// Idle policy: the behaviour of a lane after a turn without work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls again at once: the lowest latency, a whole core.
    Busy,
    /// Waits for an interrupt at once: the least CPU time, a wake-up for each burst.
    Interrupt,
    /// Learns the gaps between packets. Polls if the next packet is likely to come before a wake-up
    /// would pay, naps if packets are close enough to form bursts, and otherwise waits for an
    /// interrupt at once. CPU time follows the load; the throughput under load equals `Busy`.
    #[default]
    Adaptive,
}

/// First nap of a lane that has a port without interrupt, in nanoseconds; each following one is
/// twice as long. A nap costs some microseconds of CPU time, so shorter ones would save nothing.
const NAP_FIRST: u64 = 20_000;
/// Longest nap of a lane that has a port without interrupt, in nanoseconds.
const NAP_LONGEST: u64 = 1_000_000;
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
    /// Epoll instance of all interrupts, if every port has one at the start.
    interrupts: Option<OwnedFd>,
    /// True if a queue that was installed later has no interrupt.
    must_poll: bool,
    events: Vec<epoll::Event>,
    /// Beginning of the idle period; 0 while the lane has work.
    idle_since: u64,
    /// Time of the lane's last look at the clock in the idle period.
    looked: u64,
    /// Last step of the idle period.
    step: Step,
    gaps: GapPredictor,
    nap: u64,
    false_alarms: u32,
}

impl IdleState {
    pub(crate) fn new(policy: Idle, interrupts: Option<OwnedFd>) -> Self {
        Self {
            policy,
            interrupts,
            must_poll: false,
            events: Vec::with_capacity(16),
            idle_since: 0,
            looked: 0,
            step: Step::Poll,
            gaps: GapPredictor::default(),
            nap: NAP_FIRST,
            false_alarms: 0,
        }
    }

    /// Returns true if the lane never rests.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.policy == Idle::Busy
    }

    /// Sets whether the lane has a queue without an interrupt: then it naps instead of waiting.
    pub(crate) fn set_must_poll(&mut self, must_poll: bool) {
        self.must_poll = must_poll;
    }

    /// Ends the idle period, if there is one, after a turn with `work`.
    #[inline]
    pub(crate) fn end_period(&mut self, work: usize) {
        // Only a turn that follows one without work pays for learning.
        if self.idle_since != 0 {
            self.learn(work);
        }
    }

    fn learn(&mut self, work: usize) {
        self.gaps.end(self.step, self.looked - self.idle_since, work);
        self.idle_since = 0;
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
        self.decide_at(now(), deadline)
    }

    fn decide_at(&mut self, now: u64, deadline: Option<u64>) -> Option<Sleep> {
        let until_due = deadline.map_or(u64::MAX, |deadline| deadline.saturating_sub(now));
        let waits = self.interrupts.is_some() && !self.must_poll;
        if self.idle_since == 0 {
            self.idle_since = now;
            self.step = Step::Poll;
            // A nap that a timer shortens gathers little.
            self.gaps.begin(waits && until_due >= WAKE_UP + GATHER);
        }
        self.looked = now;
        let is_first = self.policy == Idle::Adaptive && self.step == Step::Poll;
        if is_first && self.gaps.polls() && now - self.idle_since < WAKE_UP {
            return None;
        }
        let gathers = is_first && self.gaps.gathers();
        self.step = if gathers { Step::Gather } else { Step::Wait };
        let sleep = if self.false_alarms >= FALSE_ALARMS {
            Sleep::Nap(ALARM_NAP)
        } else if gathers {
            Sleep::Nap(GATHER)
        } else if waits {
            Sleep::Wait(WAIT)
        } else {
            let nap = self.nap;
            self.nap = (nap * 2).min(NAP_LONGEST);
            Sleep::Nap(nap)
        };
        sleep.at_most(until_due)
    }

    /// Rests for the given time, or until an interrupt. Returns the time at which the lane wakes.
    pub(crate) fn sleep(&mut self, sleep: Sleep) -> u64 {
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
        self.looked = now();
        self.looked
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
mod tests;
