//! Established traffic while others flood the user plane with echo requests and with packets for
//! tunnels that there are not; and the same flood at macswap.
//!
//! The lane has CPU 1, who sends and takes has CPU 0, with a native memif between them: what is
//! measured is a lane on a driver as it is used, and who offers more than the lane takes is another
//! CPU. (A memory port in the lane's own thread would take the lane's time to make frames, and
//! knows no full ring.) Each user's packet says when it was sent, so the time that it takes is that
//! of one way through the lane: both ends are one thread. A frame that is due while the lane's ring
//! has no place is lost, and counted by who sends, as a device counts what it drops; 16 frames, or
//! those of 3 µs, may be late by the sender's own fault, more are not sent.
//!
//! All contenders and loads run in turns of a fifth of a slice. Nothing of a turn is left when the
//! next begins, and the accounts of each must add up: [`Account`].

mod accounts;
mod flood_traffic;
mod junk;
mod lane_thread;
mod sender;

use std::time::{Duration, Instant};

use fastlane_table::State;
use upf::config::Gtp;
use upf::datapath::DROP_REASON_WORDS;

pub use accounts::Account;
pub use junk::{Junk, check_junk, compare_junk};
pub use lane_thread::Turned;
pub use sender::Load;

use crate::Result;
use crate::device::memory_lane::macswap;
use crate::scenarios::upf::user_plane::{Sessions, Ways, lane};
use accounts::Counted;
use flood_traffic::Traffic;
use lane_thread::{Station, wait};
use sender::{Order, Sender, Tally};

/// Of a turn, in which the load grows and nobody looks how long frames take: caches fill.
const SETTLE: Duration = Duration::from_millis(20);
/// Rest before a turn. Linux takes the CPU from who has it for more than 95 % of the time.
const REST: Duration = Duration::from_millis(15);

/// A lane that is flooded.
pub struct Flooded {
    station: Station,
    traffic: Traffic,
    order: Order,
    causes: Option<State<DROP_REASON_WORDS>>,
    start: Instant,
}

/// What a turn has shown.
#[derive(Clone, Debug)]
pub struct Passed {
    /// What became of the frames.
    pub account: Account,
    /// How long users' packets took, in nanoseconds.
    pub times: Vec<u32>,
    /// For how long frames were due.
    pub time: Duration,
    /// When the last was sent.
    pub until: Instant,
    /// What the lane did.
    pub turned: Turned,
}

impl Flooded {
    /// A lane with the user plane.
    ///
    /// # Errors
    /// When there is no memory, or memif does not connect.
    pub fn user_plane(ways: &Ways, sessions: &Sessions) -> Result<Self> {
        let traffic = Traffic::new(sessions);
        let station = Station::start(sessions.user_plane(lane(ways)?)?, &traffic)?;
        let causes = Some(sessions.causes()?);
        Ok(Self { station, traffic, order: Order::default(), causes, start: Instant::now() })
    }

    /// A lane with macswap.
    ///
    /// # Errors
    /// When there is no memory, or memif does not connect.
    pub fn macswap(sessions: &Sessions) -> Result<Self> {
        let traffic = Traffic::new(sessions);
        let station = Station::start(macswap, &traffic)?;
        let (order, start) = (Order::default(), Instant::now());
        Ok(Self { station, traffic, order, causes: None, start })
    }

    /// Users' packets in a second that the lane forwards when it never runs out of them, and what
    /// it did: in each turn that found packets it found 32, or the sender was not fast enough.
    ///
    /// # Errors
    /// When the accounts do not add up.
    pub fn capacity(&mut self, length: Duration) -> Result<(f64, Passed)> {
        self.pass(|sender| {
            sender.saturated(SETTLE);
            Ok(sender.saturated(length))
        })
    }

    /// Sends at a load for `length`.
    ///
    /// # Errors
    /// When the accounts do not add up.
    pub fn flood(&mut self, load: Load, length: Duration) -> Result<Passed> {
        let start = Instant::now();
        let (_, passed) = self.pass(|sender| sender.paced(load, SETTLE, SETTLE + length))?;
        within(&passed.account, start.elapsed())?;
        Ok(passed)
    }

    fn pass<T>(&mut self, send: impl FnOnce(&mut Sender<'_>) -> Result<T>) -> Result<(T, Passed)> {
        std::thread::sleep(REST);
        let Self { station, traffic, order, causes, start } = self;
        let (causes, start) = (causes.as_ref(), *start);
        let before = Counted::now(station, causes);
        let mut tally = Tally::default();
        let ((result, until), turned) = station.during(|station| {
            station.turns(1)?;
            let (client, tally) = (&mut station.client, &mut tally);
            let result = send(&mut Sender { client, traffic, order, tally, start })?;
            let until = Instant::now();
            // If something does not come, the account says what.
            let _ = wait("the last frames", || {
                let client = &mut station.client;
                Sender { client, traffic, order, tally, start }.take(true);
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
    /// When a frame of its pool did not come back.
    pub fn end(self) -> Result<()> {
        self.station.end()
    }
}

/// No more is answered than is configured, besides a tenth of a second's worth that may be saved
/// up.
fn within(account: &Account, time: Duration) -> Result<()> {
    let configured = answers();
    let most = |rate: u32| f64::from(rate) * (time.as_secs_f64() + 0.1) + 1.0;
    let (echoes, errors) = (most(configured.echoes_per_s), most(configured.errors_per_s));
    match account.echoes as f64 <= echoes && account.errors as f64 <= errors {
        true => Ok(()),
        false => {
            Err(format!("more was answered in {time:?} than is configured: {account:?}").into())
        }
    }
}

/// What is answered in these measurements: as a configuration that names nothing, but from the
/// start on.
#[must_use]
pub fn answers() -> Gtp {
    Gtp { quiet_s: 0, ..Gtp::default() }
}
