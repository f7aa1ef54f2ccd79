//! A memif client that keeps a window of frames in flight or sends at a fixed rate.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Result;
use crate::device::memif_server::rings::{DAMAGED, Frames, Rings};

/// Number of frames written before they are published, when the client sends as fast as possible.
const BATCH: u64 = 32;
/// Time after which a frame that has not come back counts as lost.
const LOST: Duration = Duration::from_secs(5);
/// Maximum number of frames in flight at a fixed rate. A device has room for them in both rings.
const MOST_OPEN: u64 = 512;
/// Maximum number of overdue frames that are still sent.
const LATE: f64 = 16.0;
/// Number of loop iterations between two reads of the clock.
const CLOCK: u32 = 16;

/// Client that sends numbered frames and tracks which of them have come back.
pub struct Client {
    rings: Rings,
    /// Rings on which frames come back, if another socket is used for that.
    back: Option<Rings>,
    start: Instant,
    sent: u64,
    received: u64,
}

/// Round-trip times of frames.
#[derive(Clone, Debug, Default)]
pub struct Trips {
    /// Nanoseconds of each frame, in the order of return.
    pub times: Vec<u32>,
    /// Number of frames sent.
    pub sent: u64,
}

impl Trips {
    /// Returns the round-trip time at quantile `at` (0 to 1), in microseconds.
    #[must_use]
    pub fn quantile(&mut self, at: f64) -> f64 {
        if self.times.is_empty() {
            return f64::NAN;
        }
        let place = (at * (self.times.len() - 1) as f64).round() as usize;
        f64::from(*self.times.select_nth_unstable(place).1) / 1000.0
    }
}

impl Client {
    /// Connects to a server that sends back frames of the same `length`.
    ///
    /// # Errors
    /// Returns an error if there is no server or it refuses.
    pub fn connect(path: &Path, length: usize) -> Result<Self> {
        Self::through([path; 2], &Arc::new(Frames::alike(length)))
    }

    /// Connects to a server that receives frames on socket `to` and sends them back on socket
    /// `from`, which may be the same.
    ///
    /// # Errors
    /// Returns the same errors as [`connect`](Self::connect).
    pub fn through([to, from]: [&Path; 2], frames: &Arc<Frames>) -> Result<Self> {
        let rings = Rings::connect(to, frames)?;
        let back = (to != from).then(|| Rings::connect(from, frames)).transpose()?;
        Ok(Self { rings, back, start: Instant::now(), sent: 0, received: 0 })
    }

    fn back(&mut self) -> &mut Rings {
        self.back.as_mut().unwrap_or(&mut self.rings)
    }

    /// Sends one frame and waits for it. Returns `None` if it does not come back within `patience`.
    /// Frames lost before are ignored: the device may not have been ready.
    pub fn trip(&mut self, patience: Duration) -> Option<Duration> {
        let start = Instant::now();
        self.look(patience).map(|_| start.elapsed())
    }

    /// Sends one frame like [`trip`](Self::trip) and returns the number and bytes of the returned
    /// frame.
    pub fn look(&mut self, patience: Duration) -> Option<(u64, Vec<u8>)> {
        let end = Instant::now() + patience;
        if self.rings.write(self.sent) {
            self.sent += 1;
            self.rings.send();
        }
        let mut found = None;
        while self.received < self.sent && Instant::now() < end {
            while let Some(number) = self.back().take() {
                if number < self.sent {
                    self.received = number + 1;
                    found = Some((number, self.back().bytes()));
                }
            }
            self.back().give_back();
        }
        found.filter(|_| self.received == self.sent)
    }

    /// Keeps `window` frames in flight for `length`, then waits until all are back. Returns the
    /// number of returned frames.
    ///
    /// # Errors
    /// Returns an error if a frame is lost or frames come back in another order.
    pub fn closed(&mut self, window: u64, length: Duration) -> Result<u64> {
        let before = self.received;
        let end = Instant::now() + length;
        let mut looks = 0_u32;
        loop {
            self.take_numbered()?;
            let open = window - (self.sent - self.received);
            if open >= BATCH {
                for _ in 0..open {
                    if !self.rings.write(self.sent) {
                        break;
                    }
                    self.sent += 1;
                }
                self.rings.send();
            }
            looks += 1;
            if looks.is_multiple_of(CLOCK) && Instant::now() >= end {
                break;
            }
        }
        self.drain(Self::take_numbered)?;
        Ok(self.received - before)
    }

    /// Sends `rate` frames per second for `length`, each when it is due, and waits until all are
    /// back. Frames that are long overdue because this thread did not run are not made up for.
    ///
    /// # Errors
    /// Returns an error if a frame is lost.
    pub fn paced(&mut self, rate: f64, length: Duration) -> Result<Trips> {
        let mut trips = Trips::default();
        trips.times.reserve((rate * length.as_secs_f64()) as usize + 1024);
        let first = self.sent;
        let (begin, gap) = (self.now(), 1e9 / rate);
        let (end, mut due) = (begin + length.as_nanos() as u64, begin as f64);
        loop {
            let now = self.now();
            if now >= end {
                break;
            }
            let open = self.sent - self.received;
            if now as f64 >= due && open < MOST_OPEN && self.rings.write(now) {
                self.sent += 1;
                self.rings.send();
                due = (due + gap).max(now as f64 - LATE * gap);
            }
            self.take_timed(&mut trips.times)?;
        }
        self.drain(|client| client.take_timed(&mut trips.times))?;
        trips.sent = self.sent - first;
        Ok(trips)
    }

    /// Returns the nanoseconds since the client was created.
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn take_numbered(&mut self) -> Result<()> {
        let before = self.received;
        while let Some(number) = self.back().take() {
            if number != self.received {
                return Err(format!("frame {number} came back instead of {}", self.received).into());
            }
            self.received += 1;
        }
        if self.received > before {
            self.back().give_back();
        }
        Ok(())
    }

    fn take_timed(&mut self, times: &mut Vec<u32>) -> Result<()> {
        let before = self.received;
        while let Some(sent) = self.back().take() {
            if sent == DAMAGED {
                return Err("a frame of another length came back".into());
            }
            let time = self.now().saturating_sub(sent);
            times.push(u32::try_from(time).unwrap_or(u32::MAX));
            self.received += 1;
        }
        if self.received > before {
            self.back().give_back();
        }
        Ok(())
    }

    fn drain(&mut self, mut take: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let mut patience = Instant::now() + LOST;
        while self.received < self.sent {
            let before = self.received;
            take(self)?;
            if self.received > before {
                patience = Instant::now() + LOST;
            } else if Instant::now() > patience {
                return Err(
                    format!("{} frames did not come back", self.sent - self.received).into()
                );
            }
        }
        Ok(())
    }
}
