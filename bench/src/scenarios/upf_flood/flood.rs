//! Established traffic during a flood of echo requests and of packets for unknown tunnels, in the
//! user plane and in macswap.
//!
//! The lane runs on another core than the sender and receiver, a native memif between them. The
//! measurement therefore covers a lane on a real driver, and another CPU offers more frames than
//! the lane takes. (A memory port in the lane's thread would spend the lane's time on creating
//! frames, and its ring is never full.) Each UE packet carries its sending time. One thread sends
//! and receives, so the measured time is the one-way time through the lane. A frame that is due
//! while the lane's ring is full is lost and counted by the sender, as a device counts its drops.
//! Up to 16 frames, or those of 3 µs, may be late through the sender's fault; more are not sent.
//!
//! All contenders and loads run in turns of a fifth of a slice. No frame is left when the next turn
//! begins, and the accounts of each turn must add up: [`Account`].

mod accounts;
mod flood_traffic;
mod junk;
mod sender;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastlane_core::{Packet, Verdict};
use fastlane_table::State;
use upf::config::Gtp;
use upf::datapath::DROP_REASON_WORDS;

pub use accounts::Account;
pub use junk::{Junk, check_junk, compare_junk};
pub use sender::Load;

use crate::Result;
use crate::device::lane_thread::{Station, Turned, wait};
use crate::device::memory_lane::macswap;
use crate::loops::user_plane::{RouteMirror, Sessions, lane};
use accounts::Counted;
use flood_traffic::Traffic;
use sender::{Order, Sender, Tally};

/// Part of a turn in which the load grows and nothing is timed, because caches fill.
const SETTLE: Duration = Duration::from_millis(20);
/// Rest before a turn. Linux throttles real-time threads that use the CPU for more than 95 % of the
/// time.
const REST: Duration = Duration::from_millis(15);

/// Flooded lane with its sender.
pub struct Flooded {
    station: Station,
    traffic: Traffic,
    order: Order,
    causes: Option<State<DROP_REASON_WORDS>>,
}

/// Results of a turn.
#[derive(Clone, Debug)]
pub struct Passed {
    /// Account of the frames.
    pub account: Account,
    /// One-way times of UE packets, in nanoseconds.
    pub times: Vec<u32>,
    /// Time during which frames were due.
    pub time: Duration,
    /// Time at which the last frame was sent.
    pub until: Instant,
    /// Activity of the lane.
    pub turned: Turned,
}

impl Flooded {
    /// Starts a lane with the user plane, over rings of `1 << log2_places` slots.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory or memif does not connect.
    pub fn user_plane(ways: &RouteMirror, sessions: &Sessions, log2_places: u8) -> Result<Self> {
        let traffic = Traffic::new(sessions);
        let station =
            Station::start(sessions.user_plane(lane(ways)?)?, &traffic.frames, log2_places)?;
        let causes = Some(sessions.causes()?);
        Ok(Self { station, traffic, order: Order::default(), causes })
    }

    /// Starts a lane with macswap over such rings.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory or memif does not connect.
    pub fn macswap(sessions: &Sessions, log2_places: u8) -> Result<Self> {
        let traffic = Traffic::new(sessions);
        let station = Station::start(macswap, &traffic.frames, log2_places)?;
        Ok(Self { station, traffic, order: Order::default(), causes: None })
    }

    /// Starts a lane with a macswap that computes a number of steps for each packet, each of which
    /// needs the result of the one before and no memory.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory or memif does not connect.
    pub fn delayed(sessions: &Sessions, log2_places: u8, steps: Arc<AtomicU32>) -> Result<Self> {
        let traffic = Traffic::new(sessions);
        let application = move |packet: &mut Packet| -> Verdict {
            let mut number = 1;
            for _ in 0..steps.load(Ordering::Relaxed) {
                number = black_box(3_u64.wrapping_mul(number));
            }
            macswap(packet)
        };
        let station = Station::start(application, &traffic.frames, log2_places)?;
        Ok(Self { station, traffic, order: Order::default(), causes: None })
    }

    /// Measures the capacity: the UE packets per second that the lane forwards when its ring is
    /// never empty. If turns that received packets received fewer than 32, the sender was too slow.
    ///
    /// # Errors
    /// Returns an error if the accounts do not add up.
    pub fn capacity(&mut self, length: Duration) -> Result<(f64, Passed)> {
        self.pass(|sender| {
            sender.saturated(SETTLE);
            Ok(sender.saturated(length))
        })
    }

    /// Sends at a load for `length`.
    ///
    /// # Errors
    /// Returns an error if the accounts do not add up.
    pub fn flood(&mut self, load: Load, length: Duration) -> Result<Passed> {
        let start = Instant::now();
        let (_, passed) = self.pass(|sender| sender.paced(load, SETTLE, SETTLE + length))?;
        within(&passed.account, start.elapsed())?;
        Ok(passed)
    }

    fn pass<T>(&mut self, send: impl FnOnce(&mut Sender<'_>) -> Result<T>) -> Result<(T, Passed)> {
        std::thread::sleep(REST);
        let Self { station, traffic, order, causes } = self;
        let (causes, heartbeat) = (causes.as_ref(), Arc::clone(&station.heartbeat));
        let before = Counted::now(station, causes);
        let mut tally = Tally::default();
        let ((result, until), turned) = station.during(|station| {
            station.turns(1)?;
            let (client, tally) = (&mut station.client, &mut tally);
            let result =
                send(&mut Sender { client, traffic, order, tally, heartbeat: &heartbeat })?;
            let until = Instant::now();
            // If a frame does not arrive, the account describes the loss.
            let _ = wait("the last frames", || {
                let client = &mut station.client;
                Sender { client, traffic, order, tally, heartbeat: &heartbeat }.take(true);
                Ok(before.is_over(station, tally) && {
                    station.turns(2)?;
                    before.is_over(station, tally)
                })
            });
            Ok((result, until))
        })?;
        let after = Counted::now(station, causes);
        let account = Account::of(&tally, &before, &after)?;
        let (times, time) = (tally.times, Duration::from_nanos(tally.time));
        Ok((result, Passed { account, times, time, until, turned }))
    }

    /// Ends the lane.
    ///
    /// # Errors
    /// Returns an error if a frame of its pool did not come back.
    pub fn end(self) -> Result<()> {
        self.station.end()
    }
}

/// Checks that the response rates are within the configured rates. Up to a tenth of a second's
/// credit may be saved.
fn within(account: &Account, time: Duration) -> Result<()> {
    let configured = answers();
    let most = |rate: u32| f64::from(rate) * (time.as_secs_f64() + 0.1) + 1.0;
    let (echoes, errors) = (most(configured.echoes_per_s), most(configured.errors_per_s));
    match account.echoes as f64 <= echoes && account.errors as f64 <= errors {
        true => Ok(()),
        false => {
            Err(format!("responses exceed the configured rates in {time:?}: {account:?}").into())
        }
    }
}

/// Returns the GTP-U settings of these measurements: the defaults of a configuration, but without
/// the quiet time at the start.
#[must_use]
pub fn answers() -> Gtp {
    Gtp { quiet_s: 0, ..Gtp::default() }
}
