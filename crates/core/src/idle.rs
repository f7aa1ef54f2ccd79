//! What a lane does when nothing arrives.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use crate::now;

/// What a lane does in a turn without work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Looks again at once: the lowest delay, a whole core.
    Busy,
    /// Waits for an interrupt at once: the least CPU, a wake-up for each burst.
    Interrupt,
    /// Looks again for a while, then naps for growing times, then waits for an interrupt: CPU
    /// follows load, throughput under load equals `Busy`.
    #[default]
    Adaptive,
}

/// How long `Adaptive` looks again, in nanoseconds: longer than a round trip on a fast wire, so
/// that whoever waits for each answer finds the lane awake.
const SPIN: u64 = 8_000;
/// How long `Adaptive` naps before it waits for an interrupt. When packets are further apart than
/// this, one interrupt for each is cheaper than looking between them.
const NAP_PHASE: u64 = 50_000;
/// The first nap; each next one is twice as long. A nap costs some microseconds of CPU, so shorter
/// ones would not save any; what arrives meanwhile makes the next burst. (Linux adds about 50
/// microseconds of timer slack unless the thread has asked for less, as lanes do.)
const NAP_FIRST: u64 = 20_000;
/// The longest nap of a lane of which some port has no interrupt.
const NAP_WITHOUT_INTERRUPT: u64 = 1_000_000;
/// The longest wait: then the lane looks after its statistics and whether it shall end.
const WAIT: u64 = 100_000_000;
/// Interrupts in a row that bring no work, after which a lane naps instead of waiting: what is
/// readable stays so when the device is dead or the pool has no frame to receive into.
const FALSE_ALARMS: u32 = 3;
/// That nap.
const ALARM_NAP: u64 = 1_000_000;

/// The rest of a lane between turns.
pub(crate) struct Rest {
    policy: Idle,
    /// An epoll instance of all interrupts, when every port has one.
    interrupts: Option<OwnedFd>,
    events: Vec<epoll::Event>,
    idle_since: Option<u64>,
    nap: u64,
    false_alarms: u32,
}

impl Rest {
    pub(crate) fn new(policy: Idle, interrupts: Option<OwnedFd>) -> Self {
        let events = Vec::with_capacity(16);
        Self { policy, interrupts, events, idle_since: None, nap: NAP_FIRST, false_alarms: 0 }
    }

    /// Whether it never rests at all.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.policy == Idle::Busy
    }

    /// There was work.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.idle_since = None;
        self.nap = NAP_FIRST;
        self.false_alarms = 0;
    }

    /// How long to rest, in nanoseconds, before the turn that is due at `deadline`, if any: `None`
    /// is not at all.
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

    pub(crate) fn sleep(&mut self, sleep: Sleep) {
        match (sleep, &self.interrupts) {
            (Sleep::Wait(wait), Some(interrupts)) => {
                let timeout = Timespec { tv_sec: 0, tv_nsec: wait as i64 };
                self.events.clear();
                let room = rustix::buffer::spare_capacity(&mut self.events);
                // Work resets the count, so it is of interrupts that brought none.
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

/// How a lane rests, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Without looking.
    Nap(u64),
    /// Until an interrupt, at most.
    Wait(u64),
}

impl Sleep {
    /// Whether it ends with an interrupt.
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

    fn rest(policy: Idle) -> Rest {
        Rest::new(policy, None)
    }

    #[test]
    fn busy_never_sleeps() {
        assert_eq!(rest(Idle::Busy).decide(None), None);
    }

    #[test]
    fn naps_grow_to_a_bound_and_start_anew_after_work() {
        let mut rest = rest(Idle::Interrupt); // without interrupts it naps
        assert_eq!(rest.decide(None), Some(Sleep::Nap(NAP_FIRST)));
        assert_eq!(rest.decide(None), Some(Sleep::Nap(2 * NAP_FIRST)));
        for _ in 0..20 {
            let _ = rest.decide(None);
        }
        assert_eq!(rest.decide(None), Some(Sleep::Nap(NAP_WITHOUT_INTERRUPT)));
        rest.reset();
        assert_eq!(rest.decide(None), Some(Sleep::Nap(NAP_FIRST)));
    }

    #[test]
    fn a_timer_bounds_the_sleep() {
        let mut rest = rest(Idle::Interrupt);
        assert_eq!(rest.decide(Some(0)), None, "a timer that is due allows no sleep");
        let soon = now() + NAP_FIRST / 2;
        match rest.decide(Some(soon)) {
            None => {} // the deadline passed meanwhile
            Some(Sleep::Nap(time)) => assert!(time <= NAP_FIRST / 2),
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn interrupts_without_work_end_in_a_nap() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"x").unwrap(); // readable for ever
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let data = epoll::EventData::new_u64(0);
        epoll::add(&instance, &reader, data, epoll::EventFlags::IN).unwrap();
        let mut rest = Rest::new(Idle::Interrupt, Some(instance));
        for _ in 0..FALSE_ALARMS {
            let sleep = rest.decide(None).unwrap();
            assert_eq!(sleep, Sleep::Wait(WAIT));
            rest.sleep(sleep);
        }
        let sleep = rest.decide(None).unwrap();
        assert_eq!(sleep, Sleep::Nap(ALARM_NAP));
        rest.sleep(sleep);
        assert_eq!(rest.decide(None), Some(Sleep::Wait(WAIT)), "then it waits again");
    }

    #[test]
    fn adaptive_first_looks_again() {
        assert_eq!(rest(Idle::Adaptive).decide(None), None);
    }
}
