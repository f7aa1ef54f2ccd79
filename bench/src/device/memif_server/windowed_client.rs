//! What the instrument sends: as much as comes back, or so many frames a second.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Result;
use crate::device::memif_server::rings::{DAMAGED, Frames, Rings};

/// Frames written before they are handed over, when as many as possible are sent.
const BATCH: u64 = 32;
/// What is not back after this long is lost.
const LOST: Duration = Duration::from_secs(5);
/// Frames on their way at most when they are paced: a device has room for them in both rings.
const MOST_OPEN: u64 = 512;
/// Frames that may be sent late.
const LATE: f64 = 16.0;
/// How often the clock is read, in batches.
const CLOCK: u32 = 16;

/// A client that sends numbered frames and knows what has come back.
pub struct Client {
    rings: Rings,
    /// Where frames come back, if not where they are sent.
    back: Option<Rings>,
    start: Instant,
    sent: u64,
    received: u64,
}

/// How long frames were on their way.
#[derive(Clone, Debug, Default)]
pub struct Trips {
    /// Nanoseconds of each frame, in the order of return.
    pub times: Vec<u32>,
    /// Frames sent.
    pub sent: u64,
}

impl Trips {
    /// The time that the part `at` of the frames did not exceed, in microseconds.
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
    /// Connects to a server, which sends back frames of the same `length`.
    ///
    /// # Errors
    /// When there is none, or it refuses.
    pub fn connect(path: &Path, length: usize) -> Result<Self> {
        Self::through([path; 2], &Arc::new(Frames::alike(length)))
    }

    /// Connects to a server of which frames come back by another socket than they are sent to, or
    /// by the same.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn through([to, from]: [&Path; 2], frames: &Arc<Frames>) -> Result<Self> {
        let rings = Rings::connect(to, frames)?;
        let back = (to != from).then(|| Rings::connect(from, frames)).transpose()?;
        Ok(Self { rings, back, start: Instant::now(), sent: 0, received: 0 })
    }

    fn back(&mut self) -> &mut Rings {
        self.back.as_mut().unwrap_or(&mut self.rings)
    }

    /// Sends one frame and waits for it; `None` when it does not come within `patience`. Those that
    /// were lost before are forgiven: the device may not have been ready.
    pub fn trip(&mut self, patience: Duration) -> Option<Duration> {
        let start = Instant::now();
        self.look(patience).map(|_| start.elapsed())
    }

    /// As [`trip`](Self::trip), and gives the frame's number and bytes as it came back.
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

    /// Keeps `window` frames on their way for `length`, then waits until all are back; returns how
    /// many were.
    ///
    /// # Errors
    /// When one is lost, or they come back in another order.
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

    /// Sends `rate` frames a second for `length`, each when it is due, and waits until all are
    /// back. What could not be sent for long, since this thread did not run, is not sent in a rush.
    ///
    /// # Errors
    /// When one is lost.
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

    /// Nanoseconds since the client was made.
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
