//! Derived defaults: the part of the configuration that follows from the settings.

use fastlane::Error;
use fastlane::config::raw::Configuration;
use serde_json::{Map, Value, json};

use super::check::refuse;
use super::{Settings, TeidChoice};
use crate::rules::layout::{drop_reason, table};

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
/// Linux's main routing table.
const MAIN: u32 = 254;
/// Name of the port for packets between UEs, if none is configured.
const HAIRPIN: &str = "user-to-user";
/// Maximum number of routing tables in the mirror.
const ROUTE_TABLES: usize = 16;

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
}

impl Settings {
    /// Returns the capacities of the tables.
    #[must_use]
    pub fn capacities(&self) -> Capacities {
        let beyond = self.sessions.saturating_sub(ALL_COMPLEX) / 4;
        let most = self.sessions.min(ALL_COMPLEX) + beyond;
        let complex = self.limits.complex_sessions.unwrap_or(most).clamp(1, self.sessions.max(1));
        let (sessions, complex) = (self.sessions as usize, complex as usize);
        Capacities {
            sessions,
            complex,
            lines: sessions + 3 * complex,
            blocks: 2 * complex + 64,
            tunnels: match self.teid {
                TeidChoice::Upf => sessions / 4 + 1024,
                TeidChoice::Smf => 2 * sessions + 1024,
            },
            users: 2 * sessions + 64,
            framed: sessions / 16 + 1024,
            parts: 4 * complex + 256,
            answers: 0,
        }
        .with_answers(self.answers())
    }

    /// Returns the number of responses that are sent in N1 times T1, the time during which they can
    /// be requested again.
    fn answers(&self) -> usize {
        let life_ms = self.n4.t1_ms.saturating_mul(self.n4.n1.into()).min(60_000) as usize;
        (ANSWERS_PER_MS * life_ms).clamp(FEWEST_ANSWERS, 1 << 20)
    }

    /// Returns the capacities by table name.
    fn tables(&self) -> [(&'static str, usize); 15] {
        let them = self.capacities();
        [
            (table::RULES, them.sessions),
            (table::BLOCKS, them.blocks),
            (table::TUNNELS, them.tunnels),
            (table::USERS, them.users),
            (table::FRAMED4, them.framed),
            (table::FRAMED6, them.framed),
            (table::FRAMED, them.framed),
            (table::STATE, them.lines),
            (table::EVENTS, them.sessions),
            (table::CAUSES, drop_reason::ENTRIES),
            (table::SESSIONS, them.sessions),
            (table::SESSION_PARTS, them.parts),
            (table::ANSWERS, them.answers),
            (table::PEERS, PEERS),
            (table::NODE, 1),
        ]
    }

    /// Returns the Linux routing tables that packets leave by, main first, which interfaces without
    /// a table use.
    fn route_tables(&self) -> Vec<u32> {
        let mut named: Vec<u32> =
            self.interfaces.values().filter_map(|it| it.route_table).collect();
        named.retain(|table| *table != MAIN);
        named.sort_unstable();
        named.dedup();
        [vec![MAIN], named].concat()
    }
}

/// Checks the settings against the `written` configuration and returns the rest of the
/// configuration.
///
/// # Errors
/// Returns the first error with its path.
pub fn defaults(settings: &Settings, written: &Configuration) -> Result<Value, Error> {
    settings.check(written)?;
    let tables = settings.tables();
    if let Some((name, _)) = tables.iter().find(|(name, _)| written.tables.contains_key(*name)) {
        let what = "its capacity follows from `app.sessions` and `app.limits`; remove it";
        return Err(refuse(format!("tables.{name}"), what));
    }
    let routes = settings.route_tables();
    if routes.len() > ROUTE_TABLES {
        let count = routes.len();
        let what = format!("they use {count} routing tables, main included; use at most 16");
        return Err(refuse("app.interfaces", what));
    }
    let capacity = |(name, most): (&str, usize)| (name.to_owned(), json!({ "capacity": most }));
    let tables: Map<String, Value> = tables.into_iter().map(capacity).collect();
    let limits = &settings.limits;
    let hold = json!({
        "packets": limits.held_packets_per_lane,
        "per-key": limits.held_packets.max(1),
    });
    let mut defaults = json!({
        "tables": tables,
        "messages": { "ring-kib": 256 },
        "mirror": { "tables": routes },
        "lanes": { "hold": hold },
    });
    let mut ports = Map::new();
    let is_alone = written.lanes.cpus.as_ref().is_none_or(|cpus| cpus.len() < 2);
    if !is_alone {
        // A session has one lane, whichever port its packets arrive on.
        let of = |port: &String| (port.clone(), json!({ "lane-by": "application" }));
        ports.extend(settings.interfaces.values().map(|it| of(&it.port)));
    }
    if settings.hairpin.is_none() {
        let mut between = json!({ "driver": { "memory": {} } });
        if !is_alone {
            between["lane-by"] = json!("application");
        }
        ports.insert(HAIRPIN.to_owned(), between);
        defaults["app"] = json!({ "hairpin": HAIRPIN });
    }
    if !ports.is_empty() {
        defaults["ports"] = Value::Object(ports);
    }
    Ok(defaults)
}
