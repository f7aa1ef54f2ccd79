//! Accounts of frames: every sent frame is received, dropped or lost, and has been counted.

use fastlane_table::counters::PortCounter;
use fastlane_table::{EntryId, State};
use upf::datapath::DROP_REASON_WORDS;
use upf::rules::layout::drop_reason::{DROP_REASONS, DropReason};

use crate::Result;
use crate::device::lane_thread::Station;
use crate::scenarios::upf_flood::flood::flood_traffic::{Kind, ReceivedKind};
use crate::scenarios::upf_flood::flood::sender::Tally;

/// Counters of a lane at one time.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    received: u64,
    sent: u64,
    /// Packets labelled to be sent.
    to_send: u64,
    dropped: u64,
    /// Packets in the drop counters of the port.
    lost: u64,
    /// Packet counts by outcome, if the lane runs a user plane.
    causes: Vec<u64>,
}

impl Counted {
    /// Reads the counters.
    pub(super) fn now(station: &Station, causes: Option<&State<DROP_REASON_WORDS>>) -> Self {
        let of = |counter| station.count(counter);
        let cause = |causes: &State<DROP_REASON_WORDS>| {
            DROP_REASONS.iter().map(|cause| causes.read(EntryId(*cause as u32))[0]).collect()
        };
        Self {
            received: of(PortCounter::ReceivedPackets),
            sent: of(PortCounter::SentPackets),
            to_send: of(PortCounter::VerdictReflect) + of(PortCounter::VerdictForward),
            dropped: of(PortCounter::VerdictDrop),
            lost: PortCounter::ALL.into_iter().filter(|one| one.is_drop()).map(of).sum(),
            causes: causes.map(cause).unwrap_or_default(),
        }
    }

    /// Returns the difference to earlier counters.
    fn since(&self, before: &Self) -> Self {
        let causes = self.causes.iter().zip(&before.causes).map(|(now, then)| now - then);
        Self {
            received: self.received - before.received,
            sent: self.sent - before.sent,
            to_send: self.to_send - before.to_send,
            dropped: self.dropped - before.dropped,
            lost: self.lost - before.lost,
            causes: causes.collect(),
        }
    }

    fn cause(&self, cause: DropReason) -> u64 {
        self.causes.get(cause as usize).copied().unwrap_or_default()
    }

    /// Returns true if all frames sent to the lane, and by the lane, since then have arrived.
    pub(super) fn is_over(&self, station: &Station, tally: &Tally) -> bool {
        let since = |counter, before| station.count(counter) - before;
        since(PortCounter::ReceivedPackets, self.received) == tally.all_written()
            && since(PortCounter::SentPackets, self.sent) == tally.all_came()
    }
}

/// Account of UE packets and responses of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// UE packets that were due.
    pub good: u64,
    /// UE packets lost because the lane's ring was full.
    pub refused: u64,
    /// UE packets dropped by the application.
    pub dropped: u64,
    /// UE packets lost in the return direction because the ring was full.
    pub lost_back: u64,
    /// Junk packets that were due.
    pub junk: u64,
    /// Junk packets for which the lane's ring was full.
    pub junk_refused: u64,
    /// Echo responses.
    pub echoes: u64,
    /// Error indications.
    pub errors: u64,
}

impl Account {
    /// Returns the number of frames that the lane received.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.good + self.junk - self.refused - self.junk_refused
    }

    /// Returns the number of UE packets lost at any point.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.refused + self.dropped + self.lost_back
    }

    /// Adds another account.
    pub fn add(&mut self, other: &Self) {
        let Self { good, refused, dropped, lost_back, junk, junk_refused, echoes, errors } = other;
        self.good += good;
        self.refused += refused;
        self.dropped += dropped;
        self.lost_back += lost_back;
        self.junk += junk;
        self.junk_refused += junk_refused;
        self.echoes += echoes;
        self.errors += errors;
    }

    /// Computes the account of the sent frames.
    ///
    /// # Errors
    /// Returns an error if the counters do not add up: a lost frame was not counted, or a frame was
    /// counted twice.
    pub(super) fn of(tally: &Tally, before: &Counted, after: &Counted) -> Result<Self> {
        let lane = after.since(before);
        let same = |what: &str, one: u64, other: u64| match one == other {
            true => Ok(()),
            false => Err(format!("{what}: {one} and {other}; {tally:?}; {lane:?}")),
        };
        same("sent to the lane, received by it", tally.all_written(), lane.received)?;
        same("received, labelled", lane.received, lane.to_send + lane.dropped)?;
        same("labelled to be sent, sent or lost", lane.to_send, lane.sent + lane.lost)?;
        same("sent by the lane, come", lane.sent, tally.all_came())?;
        same("strange frames", tally.came(ReceivedKind::Strange), 0)?;
        let written = tally.written(Kind::Good);
        let forwarded = match lane.causes.is_empty() {
            true => {
                same("dropped by macswap", lane.dropped, 0)?;
                written
            }
            false => forwarded(tally, &lane, same)?,
        };
        let good = tally.came(ReceivedKind::Good);
        let (Some(dropped), Some(lost_back)) =
            (written.checked_sub(forwarded), forwarded.checked_sub(good))
        else {
            return Err(format!("more frames were received than sent: {tally:?}; {lane:?}").into());
        };
        if lost_back > lane.lost {
            return Err(format!(
                "{lost_back} UE packets were lost without being counted; {lane:?}"
            )
            .into());
        }
        let sum = |of: [u64; 3]| of[Kind::Echo as usize] + of[Kind::Unknown as usize];
        Ok(Self {
            good: tally.offered[Kind::Good as usize],
            refused: tally.refused[Kind::Good as usize],
            dropped,
            lost_back,
            junk: sum(tally.offered),
            junk_refused: sum(tally.refused),
            echoes: tally.came(ReceivedKind::EchoResponse),
            errors: tally.came(ReceivedKind::ErrorIndication),
        })
    }
}

/// Returns the number of UE packets that a user plane has forwarded, after checking that its counts
/// by outcome add up.
fn forwarded(
    tally: &Tally,
    lane: &Counted,
    same: impl Fn(&str, u64, u64) -> std::result::Result<(), String>,
) -> Result<u64> {
    let all =
        DROP_REASONS.iter().filter(|cause| !cause.is_additional()).map(|cause| lane.cause(*cause));
    same("received, by cause", lane.received, all.sum())?;
    let echoes = lane.cause(DropReason::EchoAnswered) + lane.cause(DropReason::EchoSuppressed);
    same("echo requests", tally.written(Kind::Echo), echoes)?;
    same("unknown tunnels", tally.written(Kind::Unknown), lane.cause(DropReason::UnknownTunnel))?;
    let told = lane.cause(DropReason::ErrorIndicationSent)
        + lane.cause(DropReason::ErrorIndicationSuppressed);
    same("unknown tunnels, told or not", tally.written(Kind::Unknown), told)?;
    let answers =
        lane.cause(DropReason::EchoAnswered) + lane.cause(DropReason::ErrorIndicationSent);
    let came = tally.came(ReceivedKind::EchoResponse) + tally.came(ReceivedKind::ErrorIndication);
    if came > answers || answers > came + lane.lost {
        return Err(format!("{came} of {answers} responses were received; {lane:?}").into());
    }
    Ok(lane.cause(DropReason::ForwardedUplink) + lane.cause(DropReason::ForwardedDownlink))
}
