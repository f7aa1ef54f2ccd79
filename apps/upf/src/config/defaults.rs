//! Derived defaults: the part of the configuration that follows from the settings.

use fastlane::Error;
use fastlane::config::raw::Configuration;
use serde_json::{Map, Value, json};

use super::Settings;
use super::check::{check, refuse};

/// Linux's main routing table.
const MAIN: u32 = 254;
/// Name of the port for packets between UEs, if none is configured.
const HAIRPIN: &str = "user-to-user";
/// Maximum number of routing tables in the mirror.
const ROUTE_TABLES: usize = 16;

/// Returns the Linux routing tables that packets leave by, main first, which interfaces without a
/// table use.
fn route_tables(settings: &Settings) -> Vec<u32> {
    let mut named: Vec<u32> =
        settings.interfaces.values().filter_map(|it| it.route_table).collect();
    named.retain(|table| *table != MAIN);
    named.sort_unstable();
    named.dedup();
    [vec![MAIN], named].concat()
}

/// Checks the settings against the `written` configuration and returns the rest of the
/// configuration. `tables` are the capacities of the tables by name.
///
/// # Errors
/// Returns the first error with its path.
pub fn defaults(
    settings: &Settings,
    written: &Configuration,
    tables: &[(&'static str, usize)],
) -> Result<Value, Error> {
    check(settings, written)?;
    if let Some((name, _)) = tables.iter().find(|(name, _)| written.tables.contains_key(*name)) {
        let what = "its capacity follows from `app.sessions` and `app.limits`; remove it";
        return Err(refuse(format!("tables.{name}"), what));
    }
    let routes = route_tables(settings);
    if routes.len() > ROUTE_TABLES {
        let count = routes.len();
        let what = format!("they use {count} routing tables, main included; use at most 16");
        return Err(refuse("app.interfaces", what));
    }
    let capacity = |(name, most): &(&str, usize)| ((*name).to_owned(), json!({ "capacity": most }));
    let tables: Map<String, Value> = tables.iter().map(capacity).collect();
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
