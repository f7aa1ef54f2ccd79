//! Stamped packets through the UPF, each distinguishable from all others, at a fixed rate.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;

use super::frames::{self, ReceivedPacket, Stamp};
use super::smf::Session;
use crate::{Host, eventually, mac};

/// Silence after which all packets count as delivered: twice the longest poll interval of the UPF.
const QUIET: Duration = Duration::from_millis(700);
/// Silence after which missing packets count as lost. A busy machine may deliver late.
const LOST: Duration = Duration::from_secs(5);

/// Delay of the sender that it catches up.
const LATE: Duration = Duration::from_millis(2);

/// A received packet and its time of arrival.
pub type Arrival = (Instant, ReceivedPacket);

/// A thread that receives on one interface of the UPF.
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
                let packet = frame.as_deref().and_then(frames::parse);
                let Some(packet) = packet else { continue };
                into.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), packet));
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

/// The gNB and the data network on both sides of the UPF.
///
/// Arrays of two hold N3 and N6, or uplink and downlink.
#[derive(Debug)]
pub struct Traffic {
    wires: [Wire; 2],
    macs: [[u8; 6]; 2],
    listeners: [Listener; 2],
    number: u64,
    /// Packets sent: uplink, downlink.
    pub offered: [u64; 2],
    /// Packets sent before the last [`collect`](Self::collect).
    settled: [u64; 2],
    /// Version of the rules that the SMF knows to be in force. Each packet carries it.
    pub version: Arc<AtomicU32>,
    /// External address and port of each session that NAT translates, by CP-SEID: downlink packets
    /// are sent there.
    pub externals: BTreeMap<u64, SocketAddrV4>,
}

impl Traffic {
    /// Opens the interfaces of hosts towards these MAC addresses of the UPF, N3 first.
    ///
    /// # Panics
    /// When there is no such interface.
    #[must_use]
    pub fn new(interfaces: [(&Host, &str); 2], macs: [&str; 2]) -> Self {
        let open = |(host, name): (&Host, &str)| {
            host.enter(|| Wire::open(name)).expect("a raw socket") //
        };
        Self {
            wires: interfaces.map(open),
            macs: macs.map(mac),
            listeners: interfaces.map(|interface| Listener::new(open(interface))),
            number: 0,
            offered: [0; 2],
            settled: [0; 2],
            version: Arc::default(),
            externals: BTreeMap::new(),
        }
    }

    fn next_stamp(&mut self, session: &Session) -> Stamp {
        self.number += 1;
        let version = self.version.load(Ordering::SeqCst);
        Stamp { session: session.cp_seid, number: self.number, version }
    }

    /// Sends an uplink packet to the data network.
    pub fn send_uplink(&mut self, session: &Session) {
        self.offered[0] += u64::from(self.send_from_gnb(session, frames::DATA_NETWORK));
    }

    /// Sends a packet from one UE to another and returns the length of its inner IP packet. It
    /// counts as a downlink packet, because it arrives as one.
    ///
    /// # Panics
    /// When the interface does not take it.
    pub fn send_ue_to_ue(&mut self, from: &Session, to: &Session) -> u64 {
        assert!(self.send_from_gnb(from, to.ue), "the interface takes the packet");
        self.offered[1] += 1;
        frames::ip_length(self.number)
    }

    fn send_from_gnb(&mut self, session: &Session, to: Ipv4Addr) -> bool {
        let stamp = self.next_stamp(session);
        let frame = frames::uplink(self.macs[0], session, to, &stamp);
        self.wires[0].send(&frame)
    }

    /// Sends a downlink packet.
    pub fn send_downlink(&mut self, session: &Session) {
        let stamp = self.next_stamp(session);
        let external = self.externals.get(&session.cp_seid).copied();
        let to = external.unwrap_or(SocketAddrV4::new(session.ue, frames::PORT));
        let frame = frames::downlink(self.macs[1], to, &stamp);
        self.offered[1] += u64::from(self.wires[1].send(&frame));
    }

    /// Sends an uplink packet of each session, and records the external address and port from which
    /// it comes.
    ///
    /// # Panics
    /// When one does not arrive.
    #[track_caller]
    pub fn learn_externals(&mut self, sessions: &[Session]) {
        sessions.iter().for_each(|session| self.send_uplink(session));
        let [uplink, _] = self.collect();
        assert_eq!(uplink.len(), sessions.len(), "packets of sessions");
        for (_, packet) in uplink {
            let external = SocketAddrV4::new(packet.ue, packet.port);
            self.externals.insert(packet.stamp.session, external);
        }
    }

    /// Returns the number of downlink packets received since the last [`collect`](Self::collect).
    #[must_use]
    pub fn received_downlink(&self) -> u64 {
        let arrivals = &self.listeners[0].arrivals;
        arrivals.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// Sends a downlink packet and waits for it, so that all earlier downlink packets of the lane
    /// have been processed.
    #[track_caller]
    pub fn flush_downlink(&mut self, session: &Session) {
        self.send_downlink(session);
        let number = self.number;
        let arrivals = &self.listeners[0].arrivals;
        eventually("a downlink packet arrives", || {
            let arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            arrivals.iter().rev().any(|(_, packet)| packet.stamp.number == number)
        });
    }

    /// Sends up to `each` packets in each direction, round robin over the sessions, at no more than
    /// `rate` packets per second and direction. Stops early when `goes_on` returns false.
    pub fn send_paced(
        &mut self,
        sessions: &[Session],
        each: u64,
        rate: u32,
        mut goes_on: impl FnMut() -> bool,
    ) {
        let interval = Duration::from_secs(1) / rate;
        let mut next = Instant::now();
        for (_, session) in (0..each).zip(sessions.iter().cycle()) {
            if !goes_on() {
                return;
            }
            self.send_uplink(session);
            self.send_downlink(session);
            let now = Instant::now();
            // What a busy machine has delayed is not caught up: veth pairs have short queues.
            next = (next + interval).max(now.checked_sub(LATE).unwrap_or(now));
            std::thread::sleep(next.saturating_duration_since(now));
        }
    }

    /// Waits until no more packets arrive and returns those received: uplink, downlink.
    ///
    /// # Panics
    /// When a packet has arrived twice or on the wrong interface.
    #[track_caller]
    pub fn collect(&mut self) -> [Vec<Arrival>; 2] {
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
        // Uplink packets arrive on N6.
        [1, 0].map(|side| {
            let arrivals = &self.listeners[side].arrivals;
            let taken =
                std::mem::take(&mut *arrivals.lock().unwrap_or_else(PoisonError::into_inner));
            let mut stamps: Vec<Stamp> = taken.iter().map(|(_, packet)| packet.stamp).collect();
            stamps.sort_unstable();
            stamps.dedup();
            assert_eq!(stamps.len(), taken.len(), "a packet has arrived twice");
            let is_right = |(_, packet): &Arrival| packet.outer.is_some() == (side == 0);
            assert!(taken.iter().all(is_right), "a packet on the wrong interface");
            taken
        })
    }
}

/// Returns the longest time between two arrivals.
#[must_use]
pub fn longest_gap(arrivals: &[Arrival]) -> Duration {
    let pairs = arrivals.windows(2).map(|pair| pair[1].0 - pair[0].0);
    pairs.max().unwrap_or_default()
}

/// Returns the octets of a session's packets.
#[must_use]
pub fn octets(arrivals: &[Arrival], session: &Session) -> u64 {
    let of = arrivals.iter().filter(|(_, packet)| packet.stamp.session == session.cp_seid);
    of.map(|(_, packet)| packet.octets).sum()
}
