//! Reflects every packet whose source port has an account, and counts it there: the fast path of
//! the stories `slow_path`. `ledger_slow` opens the accounts.

use fastlane::table::{EntryId, HashReader, LanePending, LaneState};
use fastlane::{App, Error, LaneInfo, Packet, Shape, Turn, Verdict, wire::Ethernet};

/// Offset of the UDP source port in a frame with IPv4 without options.
const SOURCE_PORT: std::ops::Range<usize> = 34..36;
/// Type of the message that announces an event.
const EVENT: u32 = 1;
/// Entry of the totals: packets without an account, accounts read while they changed.
const TOTALS: EntryId = EntryId(0);

struct Ledger {
    /// Accounts. All words of an account are equal.
    accounts: HashReader<[u8; 2], [u64; 8]>,
    packets: LaneState<1>,
    totals: LaneState<2>,
    /// Pending events, one per packet, if enabled.
    events: Option<LanePending>,
}

impl Ledger {
    fn new(lane: &LaneInfo<'_>) -> Result<Self, Error> {
        let settings: std::collections::BTreeMap<String, bool> = lane.settings()?;
        let events = settings.get("events") == Some(&true);
        Ok(Self {
            accounts: lane.hash("accounts")?,
            packets: lane.state("accounts", Shape::PerLane)?,
            totals: lane.state("totals", Shape::PerLane)?,
            events: events.then(|| lane.pending("accounts")).transpose()?,
        })
    }

    fn account(&mut self, packet: &Packet, turn: &mut Turn) -> Option<()> {
        let key: [u8; 2] = packet.bytes().get(SOURCE_PORT)?.try_into().ok()?;
        let Some(found) = self.accounts.get(turn, &key) else {
            self.totals.at(TOTALS).add(0, 1);
            return None;
        };
        let torn = found.value.iter().any(|word| *word != found.value[0]);
        self.totals.at(TOTALS).add(1, u64::from(torn));
        let entry = found.entry;
        self.packets.at(entry).add(0, 1);
        if let Some(events) = &self.events {
            events.raise(entry);
            turn.send(EVENT, &key);
        }
        Some(())
    }
}

impl App for Ledger {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets {
            if self.account(packet, turn).is_none() {
                packet.set_verdict(Verdict::Drop);
                continue;
            }
            if let Some(ethernet) = packet.header::<Ethernet>() {
                std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
            }
            packet.set_verdict(Verdict::Reflect);
        }
    }
}

fn main() -> std::process::ExitCode {
    fastlane::main(Ledger::new)
}
