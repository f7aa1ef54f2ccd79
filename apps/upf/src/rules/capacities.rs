//! Capacities of the tables, which follow from the settings.

use super::layout::{drop_reason, table};
use crate::config::{Settings, TeidChoice};

/// Up to this number all sessions may have complex rules; of those beyond, a quarter.
const ALL_COMPLEX: u32 = 65_536;
/// Responses stored per ms: more than one thread sends. Even with few sessions, a peer that waits
/// for each response may send requests at this rate.
const ANSWERS_PER_MS: usize = 80;
/// One in this number of responses may need an overflow part.
const LONG_ANSWERS: usize = 4;
/// Minimum capacity for responses.
const FEWEST_ANSWERS: usize = 4096;
/// Maximum number of associations (TS 29.244 clause 6.2.6).
const PEERS: usize = 1024;

/// Capacities of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// Sessions: records, rules, events.
    pub sessions: usize,
    /// Sessions with complex rules.
    pub complex: usize,
    /// Counter slots: one per session, three more per complex session.
    pub lines: usize,
    /// Blocks of rules.
    pub blocks: usize,
    /// Tunnels whose TEID does not contain the session index.
    pub tunnels: usize,
    /// UE addresses: per session one IPv4 address and one IPv6 prefix.
    pub users: usize,
    /// Networks behind UEs.
    pub framed: usize,
    /// Overflow parts of session records.
    pub parts: usize,
    /// Stored responses to retransmitted requests.
    pub answers: usize,
}

impl Capacities {
    /// Returns the capacities with room for `answers` responses, for tests, which create new tables
    /// often.
    #[must_use]
    pub const fn with_answers(self, answers: usize) -> Self {
        let parts = self.parts - self.answers / LONG_ANSWERS + answers / LONG_ANSWERS;
        Self { answers, parts, ..self }
    }

    /// Returns the capacities for these settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let Settings { sessions, limits, .. } = settings;
        let most = (*sessions).min(ALL_COMPLEX) + sessions.saturating_sub(ALL_COMPLEX) / 4;
        let complex = limits.complex_sessions.unwrap_or(most).clamp(1, (*sessions).max(1));
        let (sessions, complex) = (*sessions as usize, complex as usize);
        Self {
            sessions,
            complex,
            lines: sessions + 3 * complex,
            blocks: 2 * complex + 64,
            tunnels: match settings.teid {
                TeidChoice::Upf => sessions / 4 + 1024,
                TeidChoice::Smf => 2 * sessions + 1024,
            },
            users: 2 * sessions + 64,
            framed: sessions / 16 + 1024,
            parts: 4 * complex + 256,
            answers: 0,
        }
        .with_answers(answers(settings))
    }

    /// Returns the capacities by table name.
    #[must_use]
    pub const fn by_table(self) -> [(&'static str, usize); 15] {
        [
            (table::RULES, self.sessions),
            (table::BLOCKS, self.blocks),
            (table::TUNNELS, self.tunnels),
            (table::USERS, self.users),
            (table::FRAMED4, self.framed),
            (table::FRAMED6, self.framed),
            (table::FRAMED, self.framed),
            (table::STATE, self.lines),
            (table::EVENTS, self.sessions),
            (table::CAUSES, drop_reason::ENTRIES),
            (table::SESSIONS, self.sessions),
            (table::SESSION_PARTS, self.parts),
            (table::ANSWERS, self.answers),
            (table::PEERS, PEERS),
            (table::NODE, 1),
        ]
    }
}

/// Returns the number of responses that are sent in N1 times T1, the time during which they can be
/// requested again.
fn answers(settings: &Settings) -> usize {
    let life_ms = settings.n4.t1_ms.saturating_mul(settings.n4.n1.into()).min(60_000) as usize;
    (ANSWERS_PER_MS * life_ms).clamp(FEWEST_ANSWERS, 1 << 20)
}
