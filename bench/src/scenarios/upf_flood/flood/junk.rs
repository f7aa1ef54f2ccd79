//! The cost of a junk packet against that of a UE packet: on a memory port, in pairs.

use std::time::{Duration, Instant};

use fastlane::Turn;
use fastlane_core::{App, Packet, Verdict};
use fastlane_table::{EntryId, State};
use upf::config::Gtp;
use upf::datapath::DROP_REASON_WORDS;
use upf::rules::layout::drop_reason::DropReason;

use crate::Result;
use crate::device::memory_lane::MemoryLane;
use crate::loops::user_plane::{BURST, RouteMirror, Sessions, lane};
use crate::scenarios::upf_flood::flood::answers;
use crate::scenarios::upf_flood::flood::flood_traffic::{Kind, Traffic};
use crate::slices::{Contender, Effort, Pairs, pair};

/// Response rate that no flood reaches.
const ALL: u32 = 1_000_000_000;
/// Length of a listed frame in octets.
const SLOT: usize = 128;

/// Kind of junk, and whether the user plane responds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Junk {
    /// Echo requests that all get a response.
    EchoAnswered,
    /// Echo requests beyond the configured rate.
    EchoSuppressed,
    /// Packets for unknown tunnels that all get an error indication.
    UnknownAnswered,
    /// Packets for unknown tunnels beyond the configured rate.
    UnknownSuppressed,
    /// Equal numbers of UE packets, echo requests and packets for unknown tunnels in one burst. The
    /// junk is beyond the configured rates.
    Mixed,
}

impl Junk {
    /// All kinds of junk.
    pub const ALL: [Self; 5] = [
        Self::EchoSuppressed,
        Self::EchoAnswered,
        Self::UnknownSuppressed,
        Self::UnknownAnswered,
        Self::Mixed,
    ];

    /// Returns the name used in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EchoAnswered => "echo request, answered",
            Self::EchoSuppressed => "echo request beyond the rate",
            Self::UnknownAnswered => "unknown TEID, answered",
            Self::UnknownSuppressed => "unknown TEID beyond the rate",
            Self::Mixed => "a third each: user's packet, echo request, unknown TEID",
        }
    }

    const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::EchoAnswered | Self::EchoSuppressed => &[Kind::Echo],
            Self::UnknownAnswered | Self::UnknownSuppressed => &[Kind::Unknown],
            Self::Mixed => &Kind::ALL,
        }
    }

    /// Returns the GTP-U settings for these packets.
    fn answered(self) -> Gtp {
        match self.is_answered() {
            true => Gtp { errors_per_s: ALL, echoes_per_s: ALL, ..answers() },
            false => answers(),
        }
    }

    const fn is_answered(self) -> bool {
        matches!(self, Self::EchoAnswered | Self::UnknownAnswered)
    }

    /// Returns the expected outcomes of these packets. The configured rates permit some responses.
    const fn becomes(self) -> &'static [DropReason] {
        use DropReason::{
            EchoAnswered, EchoSuppressed, ErrorIndicationSent, ErrorIndicationSuppressed,
            ForwardedDownlink, ForwardedUplink, UnknownTunnel,
        };
        match self {
            Self::EchoAnswered => &[EchoAnswered],
            Self::EchoSuppressed => &[EchoSuppressed, EchoAnswered],
            Self::UnknownAnswered => &[ErrorIndicationSent],
            Self::UnknownSuppressed => &[ErrorIndicationSuppressed, ErrorIndicationSent],
            Self::Mixed => {
                &[ForwardedUplink, ForwardedDownlink, EchoSuppressed, EchoAnswered, UnknownTunnel]
            }
        }
    }
}

/// Application that replaces each packet with a frame of a list. Dropped packets return to the port
/// too, so that the port never runs empty and junk includes the cost of sending, as other packets
/// do.
struct Shown<A> {
    app: A,
    frames: Vec<([u8; SLOT], usize)>,
    next: usize,
    /// Headroom of a frame before headers are added or removed.
    front: Option<usize>,
}

impl<A> Shown<A> {
    fn new(app: A, traffic: &Traffic, kinds: &[Kind]) -> Self {
        let length = Traffic::range(Kind::Echo).len();
        let frame = |number: usize| {
            let range = Traffic::range(kinds[number % kinds.len()]);
            let frame = &traffic.frames[range.start + number % range.len()];
            let mut bytes = [0; SLOT];
            bytes[..frame.len()].copy_from_slice(frame);
            (bytes, frame.len())
        };
        Self { app, frames: (0..length).map(frame).collect(), next: 0, front: None }
    }
}

impl<A: App> App for Shown<A> {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets.iter_mut() {
            let (bytes, length) = &self.frames[self.next];
            let front = *self.front.get_or_insert_with(|| packet.headroom());
            // Copies the whole slot whatever the frame's length, so that the copy costs the same
            // for all.
            restore(packet, front);
            if let Some(slot) = packet.bytes_mut().first_chunk_mut() {
                *slot = *bytes;
            }
            let _ = packet.truncate(*length); // the slot is longer
            self.next = if self.next + 1 == self.frames.len() { 0 } else { self.next + 1 };
        }
        self.app.process(packets, turn);
        for packet in packets {
            if packet.verdict() == Verdict::Drop.into() {
                packet.set_verdict(Verdict::Reflect);
            }
        }
    }
}

/// Restores the start of a packet and sets its length to that of a slot.
#[inline]
fn restore(packet: &mut Packet, front: usize) {
    let begins = match packet.headroom().checked_sub(front) {
        Some(more) => packet.prepend(more).is_some(),
        None => packet.trim_front(front - packet.headroom()),
    };
    let ends = match SLOT.checked_sub(packet.len()) {
        Some(more) => packet.append(more).is_some(),
        None => packet.truncate(SLOT),
    };
    debug_assert!(begins && ends, "the frame has headroom and tailroom");
}

/// Compares the CPU time per junk packet with that per UE packet. Half of the UE packets are
/// uplink.
///
/// # Errors
/// Returns an error if there is not enough memory or the packets have an unexpected outcome.
pub fn compare_junk(
    ways: &RouteMirror,
    sessions: &mut Sessions,
    junk: Junk,
    effort: Effort,
) -> Result<Pairs> {
    sessions.answer(junk.answered());
    let traffic = Traffic::new(sessions);
    let mut pairs = Pairs::default();
    for _ in 0..effort.pairs {
        let mut ours = shown(ways, sessions, &traffic, junk.kinds())?;
        let mut rival = shown(ways, sessions, &traffic, &[Kind::Good])?;
        let warm_up = effort.slice / 5;
        check(sessions, junk, || Ok(ours.run(warm_up)?.packets))?;
        rival.run(warm_up)?;
        pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
    }
    Ok(pairs)
}

/// Sends about `packets` junk packets through the user plane and checks their outcomes.
///
/// # Errors
/// Returns an error if there is not enough memory or the packets have an unexpected outcome.
pub fn check_junk(
    ways: &RouteMirror,
    sessions: &mut Sessions,
    junk: Junk,
    packets: u64,
) -> Result<()> {
    sessions.answer(junk.answered());
    let traffic = Traffic::new(sessions);
    let mut lane = shown(ways, sessions, &traffic, junk.kinds())?;
    check(sessions, junk, || Ok(lane.turns(packets)))
}

/// Creates a lane that receives these kinds of packets.
fn shown(
    ways: &RouteMirror,
    sessions: &Sessions,
    traffic: &Traffic,
    kinds: &[Kind],
) -> Result<MemoryLane<Shown<impl App>>> {
    let app = Shown::new(sessions.user_plane(lane(ways)?)?, traffic, kinds);
    MemoryLane::new(app, BURST, traffic.frames[0].len())
}

/// Checks the outcomes of the packets that `run` moves.
fn check(sessions: &Sessions, junk: Junk, run: impl FnOnce() -> Result<u64>) -> Result<()> {
    let causes = sessions.causes()?;
    let (before, start) = (Totals::of(&causes, junk), Instant::now());
    let moved = run()?;
    Totals::of(&causes, junk).check(&before, moved, start.elapsed(), junk)
}

/// Packet counts so far: with an expected outcome, and with a response.
struct Totals([u64; 2]);

impl Totals {
    fn of(causes: &State<DROP_REASON_WORDS>, junk: Junk) -> Self {
        const ANSWERED: [DropReason; 2] =
            [DropReason::EchoAnswered, DropReason::ErrorIndicationSent];
        let sum = |all: &[DropReason]| {
            all.iter().map(|cause| causes.read(EntryId(*cause as u32))[0]).sum::<u64>()
        };
        Self([sum(junk.becomes()), sum(&ANSWERED)])
    }

    /// Checks that all packets had the expected outcome and that the responses are within the
    /// rates.
    fn check(&self, before: &Self, packets: u64, time: Duration, junk: Junk) -> Result<()> {
        let [expected, answered] = [0, 1].map(|place| self.0[place] - before.0[place]);
        let Gtp { echoes_per_s, errors_per_s, .. } = answers();
        let most = f64::from(echoes_per_s + errors_per_s) * (time.as_secs_f64() + 0.1) + 2.0;
        match expected == packets && (junk.is_answered() || answered as f64 <= most) {
            true => Ok(()),
            false => {
                let name = junk.name();
                Err(format!("{name}: {expected} of {packets} as expected, {answered} responses")
                    .into())
            }
        }
    }
}
