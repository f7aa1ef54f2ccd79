//! Packets of users, each of which is told from all others, at a pace.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{Host, eventually, mac};

use crate::frames::{self, Seen, Stamp};
use crate::smf::Session;

/// Nothing has come for so long: nothing is under way any more. Twice what the UPF's slowest part
/// takes to look again.
const QUIET: Duration = Duration::from_millis(700);
/// The same while not all has come that was sent: on a machine with other work it may be late.
const LOST: Duration = Duration::from_secs(5);

/// A packet that came, and when.
pub(crate) type Arrival = (Instant, Seen);

/// What came out of one side of the UPF.
#[derive(Debug)]
struct Listener {
    stop: Arc<AtomicBool>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn new(mut wire: Wire) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let arrivals = Arc::<Mutex<Vec<Arrival>>>::default();
        let (stopped, into) = (Arc::clone(&stop), Arc::clone(&arrivals));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let frame = wire.receive(Duration::from_millis(50));
                let seen = frame.as_deref().and_then(frames::read);
                let Some(seen) = seen else { continue };
                into.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), seen));
            }
        });
        Self { stop, arrivals, thread: Some(thread) }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|it| it.is_ok()), "see above");
    }
}

/// Both sides of the UPF.
#[derive(Debug)]
pub(crate) struct Traffic {
    wires: [Wire; 2],
    macs: [[u8; 6]; 2],
    listeners: [Listener; 2],
    number: u64,
    /// Packets that were sent, up and down.
    pub(crate) offered: [u64; 2],
    /// Of these, what was sent before the last [`take`](Self::take).
    settled: [u64; 2],
    /// Written into packets: what the rules are that were last said to be in force.
    pub(crate) version: Arc<AtomicU32>,
}

impl Traffic {
    /// On these interfaces of a host, towards these addresses of the UPF.
    pub(crate) fn new(host: &Host, interfaces: [&str; 2], macs: [&str; 2]) -> Self {
        let open = |name: &str| host.enter(|| Wire::open(name)).expect("a raw socket");
        Self {
            wires: interfaces.map(open),
            macs: macs.map(mac),
            listeners: interfaces.map(|name| Listener::new(open(name))),
            number: 0,
            offered: [0; 2],
            settled: [0; 2],
            version: Arc::default(),
        }
    }

    fn stamp(&mut self, session: &Session) -> Stamp {
        self.number += 1;
        let version = self.version.load(Ordering::SeqCst);
        Stamp { session: session.cp_seid, number: self.number, version }
    }

    /// A packet of a user.
    pub(crate) fn up(&mut self, session: &Session) {
        self.offered[0] += u64::from(self.send_up(session, frames::DATA));
    }

    /// A packet of a user to another one, where it comes as all that comes to users; its octets.
    pub(crate) fn across(&mut self, from: &Session, to: &Session) -> u64 {
        assert!(self.send_up(from, to.user), "the wire takes it");
        self.offered[1] += 1;
        frames::octets(self.number)
    }

    fn send_up(&mut self, session: &Session, to: Ipv4Addr) -> bool {
        let stamp = self.stamp(session);
        let frame = frames::uplink(self.macs[0], session, to, &stamp);
        self.wires[0].send(&frame)
    }

    /// A packet to a user.
    pub(crate) fn down(&mut self, session: &Session) {
        let stamp = self.stamp(session);
        let frame = frames::downlink(self.macs[1], session.user, &stamp);
        self.offered[1] += u64::from(self.wires[1].send(&frame));
    }

    /// How many packets to users have come since [`take`](Self::take).
    pub(crate) fn arrived(&self) -> u64 {
        let arrivals = &self.listeners[0].arrivals;
        arrivals.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// A packet to a user, which is waited for: what was sent to users before has been dealt with.
    #[track_caller]
    pub(crate) fn fence(&mut self, session: &Session) {
        self.down(session);
        let number = self.number;
        let arrivals = &self.listeners[0].arrivals;
        eventually("a packet to a user arrives", || {
            let arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            arrivals.iter().rev().any(|(_, seen)| seen.stamp.number == number)
        });
    }

    /// So many packets in each direction, in turn of the sessions, so many in a second and
    /// direction; while `goes_on`.
    pub(crate) fn pace(
        &mut self,
        sessions: &[Session],
        each: u64,
        rate: u32,
        mut goes_on: impl FnMut() -> bool,
    ) {
        let begin = Instant::now();
        let interval = Duration::from_secs(1) / rate;
        for (number, session) in (0..each).zip(sessions.iter().cycle()) {
            if !goes_on() {
                return;
            }
            self.up(session);
            self.down(session);
            let next = begin + interval * u32::try_from(number + 1).expect("not so long");
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// Waits until nothing more comes, and takes what came: up and down, each packet once.
    #[track_caller]
    pub(crate) fn take(&mut self) -> [Vec<Arrival>; 2] {
        let count =
            |of: &Listener| of.arrivals.lock().unwrap_or_else(PoisonError::into_inner).len();
        let now = || self.listeners.iter().map(count).sum::<usize>();
        let sent: u64 = self.offered.iter().sum::<u64>() - self.settled.iter().sum::<u64>();
        let (mut before, mut since) = (now(), Instant::now());
        while since.elapsed() < if before as u64 >= sent { QUIET } else { LOST } {
            std::thread::sleep(Duration::from_millis(20));
            let count = now();
            if count != before {
                (before, since) = (count, Instant::now());
            }
        }
        self.settled = self.offered;
        // What came by N6 came up.
        [1, 0].map(|side| {
            let arrivals = &self.listeners[side].arrivals;
            let taken =
                std::mem::take(&mut *arrivals.lock().unwrap_or_else(PoisonError::into_inner));
            let mut stamps: Vec<Stamp> = taken.iter().map(|(_, seen)| seen.stamp).collect();
            stamps.sort_unstable();
            stamps.dedup();
            assert_eq!(stamps.len(), taken.len(), "a packet came twice");
            assert!(taken.iter().all(|(_, seen)| seen.outer.is_some() == (side == 0)), "the way");
            taken
        })
    }
}

/// The longest time between two arrivals.
pub(crate) fn gap(arrivals: &[Arrival]) -> Duration {
    let pairs = arrivals.windows(2).map(|pair| pair[1].0 - pair[0].0);
    pairs.max().unwrap_or_default()
}

/// Octets of the packets of a session.
pub(crate) fn octets(arrivals: &[Arrival], session: &Session) -> u64 {
    let of = arrivals.iter().filter(|(_, seen)| seen.stamp.session == session.cp_seid);
    of.map(|(_, seen)| seen.octets).sum()
}
