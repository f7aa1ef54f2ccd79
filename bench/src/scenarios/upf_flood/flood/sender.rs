//! Sends frames when they are due and receives frames, in one loop on CPU 0.

use std::time::Duration;

use crate::Result;
use crate::device::lane_thread::{Heartbeat, PAUSE};
use crate::device::memif_server::Listed;
use crate::scenarios::upf_flood::flood::flood_traffic::{Kind, ReceivedKind, Traffic};

/// Maximum number of late frames that are still sent, and the same as a time in seconds. If this
/// thread did not run for longer, more are not made up for, because a rush of frames would wait in
/// the lane.
const LATE: u64 = 16;
const LATE_SECONDS: f64 = 3e-6;
/// Maximum number of frames received before others are sent.
const TAKEN: usize = 64;
/// Time after which a lane that runs no turns is taken as ended.
const ENDED: Duration = Duration::from_secs(5);
/// Number of kinds of received frames.
const SEEN: usize = ReceivedKind::Strange as usize + 1;

/// Rates in frames per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Packets of established UEs.
    pub good: f64,
    /// Junk packets, half of each kind.
    pub junk: f64,
}

/// Counts of sent and received frames.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Frames that were due, by kind, including those that the lane's ring refused.
    pub offered: [u64; 3],
    /// Frames that the lane's ring refused because it was full; they are lost, as on a wire.
    pub refused: [u64; 3],
    /// Received frames, by [`ReceivedKind`].
    pub came: [u64; SEEN],
    /// One-way times of UE packets, in nanoseconds.
    pub times: Vec<u32>,
    /// Time during which frames were due, in nanoseconds.
    pub time: u64,
}

impl Tally {
    /// Returns the number of frames of a kind that the lane received.
    #[must_use]
    pub(super) fn written(&self, kind: Kind) -> u64 {
        self.offered[kind as usize] - self.refused[kind as usize]
    }

    /// Returns the number of received frames of a kind.
    #[must_use]
    pub(super) fn came(&self, seen: ReceivedKind) -> u64 {
        self.came[seen as usize]
    }

    /// Returns the number of frames of all kinds that the lane received.
    #[must_use]
    pub(super) fn all_written(&self) -> u64 {
        Kind::ALL.into_iter().map(|kind| self.written(kind)).sum()
    }

    /// Returns the number of received frames of all kinds.
    #[must_use]
    pub(super) fn all_came(&self) -> u64 {
        self.came.iter().sum()
    }
}

/// Next frame of each kind, and the order of kinds.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    next: [usize; 3],
    /// Fraction of the frames that are UE packets, and the fraction that is due so far.
    share: f64,
    owed: f64,
    odd: bool,
}

impl Order {
    fn choose(&mut self) -> Kind {
        self.owed += self.share;
        if self.owed >= 1.0 {
            self.owed -= 1.0;
            return Kind::Good;
        }
        self.odd = !self.odd;
        if self.odd { Kind::Echo } else { Kind::Unknown }
    }

    /// Returns the list index of the next frame of a kind.
    #[inline]
    fn place(&self, kind: Kind) -> usize {
        Traffic::range(kind).start + self.next[kind as usize]
    }

    #[inline]
    fn advance(&mut self, kind: Kind) {
        let next = self.next[kind as usize] + 1;
        self.next[kind as usize] = if next == Traffic::range(kind).len() { 0 } else { next };
    }
}

/// Sender and receiver of frames.
pub(super) struct Sender<'a> {
    pub(super) client: &'a mut Listed,
    pub(super) traffic: &'a Traffic,
    pub(super) order: &'a mut Order,
    pub(super) tally: &'a mut Tally,
    /// Clock of the stamps.
    pub(super) heartbeat: &'a Heartbeat,
}

/// Time during which a lane runs: time is left out as long as the lane has not run for [`PAUSE`].
struct LaneTime<'a> {
    heartbeat: &'a Heartbeat,
    /// Time of the lane's last turns, and the time left out since then and before, in nanoseconds.
    last: u64,
    stopped: u64,
    left_out: u64,
}

impl<'a> LaneTime<'a> {
    fn new(heartbeat: &'a Heartbeat) -> Self {
        Self { heartbeat, last: heartbeat.last(), stopped: 0, left_out: 0 }
    }

    /// Returns the time that the lane had until `now`, in nanoseconds.
    ///
    /// # Errors
    /// Returns an error if the lane has not run for [`ENDED`].
    #[inline]
    fn until(&mut self, now: u64) -> Result<u64> {
        let last = self.heartbeat.last();
        if last != self.last {
            self.left_out += self.stopped;
            (self.last, self.stopped) = (last, 0);
        }
        let silent = now.saturating_sub(last);
        self.stopped = self.stopped.max(silent.saturating_sub(PAUSE.as_nanos() as u64));
        if silent > ENDED.as_nanos() as u64 {
            return Err(format!("the lane has run no turn for {ENDED:?}").into());
        }
        Ok(now - self.left_out - self.stopped)
    }
}

impl Sender<'_> {
    /// Sends at this load for `length`. During the first `settle` the load grows linearly from
    /// zero, and nothing is timed. No frame is due while the lane is stopped: what a lane loses
    /// then, its machine has lost.
    ///
    /// # Errors
    /// Returns an error if the lane runs no turns.
    pub(super) fn paced(&mut self, load: Load, settle: Duration, length: Duration) -> Result<()> {
        let rate = load.good + load.junk;
        let late = LATE.max((rate * LATE_SECONDS) as u64);
        self.order.share = load.good / rate;
        let mut time = LaneTime::new(self.heartbeat);
        let (begin, mut sent, mut skipped) = (time.until(self.now())?, 0, 0);
        let end = begin + length.as_nanos() as u64;
        let settle = settle.as_nanos() as u64;
        let timed = begin + settle;
        loop {
            let stamp = self.now();
            let now = time.until(stamp)?;
            if now >= end {
                self.tally.time += now - timed + settle / 2;
                return Ok(());
            }
            // The lane's time goes back by what is learnt of a stop afterwards.
            let passed = now.saturating_sub(begin);
            let grown = match passed.checked_sub(settle) {
                Some(since) => since as f64 + settle as f64 / 2.0,
                None => (passed as f64).powi(2) / (2.0 * settle as f64),
            };
            let due = ((grown * rate / 1e9) as u64).saturating_sub(skipped);
            let all = due.saturating_sub(sent);
            let waiting = all.min(late);
            skipped += all - waiting;
            for _ in 0..waiting {
                self.offer(stamp as u32);
            }
            if waiting > 0 {
                self.client.send();
            }
            sent += waiting;
            self.take(now >= timed);
        }
    }

    /// Sends UE packets for `length` whenever the lane's ring has a free slot. Returns the number
    /// of packets per second that came back.
    pub(super) fn saturated(&mut self, length: Duration) -> f64 {
        let begin = self.now();
        let end = begin + length.as_nanos() as u64;
        let before = self.tally.all_came();
        let mut now = begin;
        while now < end {
            // A frame that the ring refuses does not count as due.
            while self.client.write(self.order.place(Kind::Good)) {
                self.client.stamp(self.order.place(Kind::Good), now as u32);
                self.order.advance(Kind::Good);
                self.tally.offered[Kind::Good as usize] += 1;
            }
            self.client.send();
            self.take(false);
            now = self.now();
        }
        self.tally.time += now - begin;
        (self.tally.all_came() - before) as f64 * 1e9 / (now - begin) as f64
    }

    #[inline]
    fn offer(&mut self, now: u32) {
        let kind = self.order.choose();
        let place = self.order.place(kind);
        self.tally.offered[kind as usize] += 1;
        if !self.client.write(place) {
            self.tally.refused[kind as usize] += 1;
            return;
        }
        if kind == Kind::Good {
            self.client.stamp(place, now);
        }
        self.order.advance(kind);
    }

    /// Receives up to [`TAKEN`] frames.
    #[inline]
    pub(super) fn take(&mut self, is_timed: bool) {
        for _ in 0..TAKEN {
            let Some(came) = self.client.take() else { break };
            let client = &*self.client;
            let seen = self.traffic.tell(came.length, |at| client.read(came, at));
            self.tally.came[seen as usize] += 1;
            if is_timed && seen == ReceivedKind::Good {
                let now = self.now() as u32;
                let sent = u32::from_ne_bytes(self.client.read(came, came.length - 4));
                self.tally.times.push(now.wrapping_sub(sent));
            }
        }
        self.client.give_back();
    }

    /// Returns the nanoseconds since the start; a stamp is the lower half.
    #[inline]
    fn now(&self) -> u64 {
        self.heartbeat.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_while_the_lane_does() {
        const US: u64 = 1000;
        let heartbeat = Heartbeat::new();
        heartbeat.beat(10 * US);
        let mut time = LaneTime::new(&heartbeat);
        assert_eq!(time.until(20 * US).unwrap(), 20 * US);
        assert_eq!(time.until(60 * US).unwrap(), 60 * US);
        // From here on the lane has not run for 50 µs.
        assert_eq!(time.until(150 * US).unwrap(), 60 * US);
        assert_eq!(time.until(350 * US).unwrap(), 60 * US);
        heartbeat.beat(352 * US);
        assert_eq!(time.until(355 * US).unwrap(), 65 * US);
        heartbeat.beat(400 * US);
        assert_eq!(time.until(450 * US).unwrap(), 160 * US);
        let error = time.until(6_000_000 * US).unwrap_err();
        assert!(error.to_string().contains("no turn for 5s"), "{error}");
    }
}
