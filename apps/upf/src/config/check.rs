//! Validation of the settings. Each error names the path, the reason and the remedy.

use std::fmt::Display;
use std::net::IpAddr;

use fastlane::Error;
use fastlane::config::{nearest, raw::Configuration};

use super::addresses::unfit;
use super::{Limits, N4, Predefined, Settings};
use crate::session::FlowDescription;

mod interfaces;

/// Maximum number of sessions: the session index takes 22 of the 32 bits of a TEID.
const MAX_SESSIONS: u32 = 1 << 22;
/// Maximum number of interfaces, pools and addresses: lanes search them linearly.
const MAX_ENTRIES: usize = 64;

/// Returns the error for an invalid value.
pub(super) fn refuse(path: impl Into<String>, what: impl Into<String>) -> Error {
    Error::Value { path: path.into(), what: what.into(), meant: None }
}

/// Returns the error for an unknown name.
fn unknown<'a>(
    path: String,
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Error {
    let meant = nearest(name, names.clone());
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    let what = format!("there is no {what} `{name}`; there are {}", names.join(", "));
    Error::Value { path, what, meant }
}

fn within<T: PartialOrd + Display>(path: &str, value: T, low: T, high: T) -> Result<(), Error> {
    if (&low..=&high).contains(&&value) {
        return Ok(());
    }
    Err(refuse(path, format!("{value} is not allowed; write {low} to {high}")))
}

/// Checks all settings.
pub(super) fn check(settings: &Settings, written: &Configuration) -> Result<(), Error> {
    check_node_id(&settings.node_id)?;
    check_n4(&settings.n4)?;
    interfaces::check(&settings.interfaces, written)?;
    interfaces::check_pools(settings)?;
    within("app.sessions", settings.sessions, 1, MAX_SESSIONS)?;
    check_limits(&settings.limits, settings.sessions)?;
    for (name, rule) in &settings.predefined {
        check_predefined(name, rule)?;
    }
    Ok(())
}

fn check_limits(limits: &Limits, sessions: u32) -> Result<(), Error> {
    let rules = [
        ("pdrs", limits.pdrs, 2, 256),
        ("fars", limits.fars, 1, 256),
        ("qers", limits.qers, 1, 64),
        ("urrs", limits.urrs, 1, 64),
        ("filters", limits.filters, 1, 64),
    ];
    for (key, value, low, high) in rules {
        within(&format!("app.limits.{key}"), value, low, high)?;
    }
    if let Some(complex) = limits.complex_sessions {
        within("app.limits.complex-sessions", complex, 1, sessions)?;
    }
    let most = limits.held_packets_per_lane;
    within("app.limits.held-packets-per-lane", most, 0, 1 << 20)?;
    within("app.limits.held-ms", limits.held_ms, 1, 86_400_000)?;
    if limits.held_packets > most {
        let what = format!(
            "{} exceeds the limit of a lane, {most} \
             (held-packets-per-lane); write at most that",
            limits.held_packets
        );
        return Err(refuse("app.limits.held-packets", what));
    }
    Ok(())
}

/// Checks the Node ID: an address or a domain name (TS 29.244 clause 8.2.38, RFC 1035 clause
/// 2.3.1).
fn check_node_id(id: &str) -> Result<(), Error> {
    if id.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(plain);
    // Digits and dots alone are a mistyped address.
    let digits = id.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    if id.len() <= 253 && !digits && id.split('.').all(label) {
        return Ok(());
    }
    let what = format!("`{id}` is neither an IP address nor a domain name; write one of them");
    Err(refuse("app.node-id", what))
}

/// Checks a predefined rule.
fn check_predefined(name: &str, rule: &Predefined) -> Result<(), Error> {
    let at = |key: &str| format!("app.predefined.{name}.{key}");
    if rule.qfi.is_some_and(|qfi| qfi > 63) {
        return Err(refuse(at("qfi"), "a QoS flow identifier has 6 bits; write 0 to 63"));
    }
    for (place, flow) in rule.flows.iter().enumerate() {
        FlowDescription::parse(flow).map_err(|error| {
            refuse(format!("{}.{place}", at("flows")), format!("`{flow}`: {error}"))
        })?;
    }
    Ok(())
}

fn check_n4(n4: &N4) -> Result<(), Error> {
    if n4.addresses.is_empty() || n4.addresses.len() > MAX_ENTRIES {
        let what = format!(
            "peers need an address to send to; {} are configured; write 1 to {MAX_ENTRIES}",
            n4.addresses.len()
        );
        return Err(refuse("app.n4.addresses", what));
    }
    check_addresses("app.n4.addresses", &n4.addresses)?;
    check_addresses("app.n4.peers", &n4.peers)?;
    if n4.port == 0 {
        return Err(refuse("app.n4.port", "0 is no port; leave it out for 8805"));
    }
    within("app.n4.t1-ms", n4.t1_ms, 10, 60_000)?;
    within("app.n4.n1", n4.n1, 1, 10)?;
    within("app.n4.heartbeat-s", n4.heartbeat_s, 1, 3600)?;
    if n4.establishments_per_s == Some(0) {
        let what = "0 would refuse every session; write a number of at least 1, or leave it out";
        return Err(refuse("app.n4.establishments-per-s", what));
    }
    Ok(())
}

fn check_addresses(path: &str, addresses: &[IpAddr]) -> Result<(), Error> {
    for (place, address) in addresses.iter().enumerate() {
        if let Some(reason) = unfit(*address) {
            return Err(refuse(path, format!("{address} {reason}")));
        }
        if addresses[..place].contains(address) {
            return Err(refuse(path, format!("{address} is named twice; name it once")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
