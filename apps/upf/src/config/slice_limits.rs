//! Limits of network slices (`app.slices`) and of control plane functions (`app.n4.limits`).
//!
//! A session counts for the slice of its S-NSSAI and for the first entry of `n4.limits` that covers
//! the SMF of its association. All SMFs that one entry covers share its limits.

use std::net::IpAddr;

use fastlane::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Settings;
use super::addresses::{contains, prefix};
use super::check::{check_node_name, refuse, within};
use crate::session::{Prefix, SNssai};

/// Maximum number of slices with limits, and of entries of `n4.limits`.
pub const MAX_LIMITED: usize = 64;

/// Network slice with limits of its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SliceLimits {
    /// S-NSSAI (TS 23.003 clause 28.4).
    pub s_nssai: SliceName,
    /// Maximum number of sessions. Default: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// Maximum rate of establishments per second, above which they are rejected (cause 74).
    /// Default: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub establishments_per_s: Option<u32>,
    /// Maximum number of held packets of all its sessions on a lane. Default: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_packets_per_lane: Option<u32>,
}

/// S-NSSAI as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SliceName {
    /// Slice or service type.
    pub sst: u8,
    /// Slice differentiator: six hexadecimal digits, as `010203`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<String>,
}

/// Control plane functions that have limits in common.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SmfLimits {
    /// Control plane functions: a Node ID (an address or a domain name), an address that
    /// associations are set up from, or a prefix of such addresses, as `10.40.0.0/24`.
    pub smf: String,
    /// Maximum number of sessions. Default: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// Maximum rate of establishments per second, above which they are rejected (cause 74).
    /// Default: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub establishments_per_s: Option<u32>,
    /// Maximum number of held packets of all their sessions on a lane. Default: no limit of its
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_packets_per_lane: Option<u32>,
}

impl SliceName {
    /// Returns the S-NSSAI of a checked configuration; one of no slice if the SD is invalid.
    #[must_use]
    pub fn s_nssai(&self) -> SNssai {
        let sd = self.sd.as_deref().map_or(Some(SNssai::NO_SD), differentiator);
        SNssai { sst: self.sst, sd: sd.unwrap_or(u32::MAX) }
    }
}

/// Parses a slice differentiator: six hexadecimal digits.
fn differentiator(text: &str) -> Option<u32> {
    let is_hex = text.len() == 6 && text.bytes().all(|octet| octet.is_ascii_hexdigit());
    u32::from_str_radix(text, 16).ok().filter(|_| is_hex)
}

impl SmfLimits {
    /// Returns true if the entry covers a control plane function with this Node ID, as text, whose
    /// association was set up from this address.
    #[must_use]
    pub fn covers(&self, node_id: &str, address: IpAddr) -> bool {
        if let Ok(prefix) = prefix(&self.smf) {
            return contains(prefix, address);
        }
        self.smf.eq_ignore_ascii_case(node_id) || self.smf.parse() == Ok(address)
    }
}

/// Checks the limits of slices and of control plane functions.
pub(super) fn check(settings: &Settings) -> Result<(), Error> {
    let most_held = settings.limits.held_packets_per_lane;
    check_slices(&settings.slices, most_held)?;
    check_smfs(&settings.n4.limits, most_held)
}

/// Checks the limits of slices.
fn check_slices(slices: &[SliceLimits], most_held: u32) -> Result<(), Error> {
    check_count("app.slices", slices.len())?;
    for (index, slice) in slices.iter().enumerate() {
        let path = format!("app.slices.{index}");
        if let Some(sd) = slice.s_nssai.sd.as_deref().filter(|sd| differentiator(sd).is_none()) {
            let what = format!("`{sd}` is no slice differentiator; write six hexadecimal digits");
            return Err(refuse(format!("{path}.s-nssai.sd"), what));
        }
        let s_nssai = slice.s_nssai.s_nssai();
        if slices[..index].iter().any(|other| other.s_nssai.s_nssai() == s_nssai) {
            let what = format!("the slice {s_nssai} is named twice; name it once");
            return Err(refuse(format!("{path}.s-nssai"), what));
        }
        let SliceLimits { sessions, establishments_per_s, held_packets_per_lane, .. } = *slice;
        let limits = [sessions, establishments_per_s, held_packets_per_lane];
        check_limits(&path, limits, most_held)?;
    }
    Ok(())
}

/// Checks the limits of control plane functions.
fn check_smfs(entries: &[SmfLimits], most_held: u32) -> Result<(), Error> {
    check_count("app.n4.limits", entries.len())?;
    for (index, entry) in entries.iter().enumerate() {
        let path = format!("app.n4.limits.{index}");
        let name = format!("{path}.smf");
        if entry.smf.contains('/') {
            let _: Prefix = prefix(&entry.smf).map_err(|what| refuse(&name, what))?;
        } else {
            check_node_name(&name, &entry.smf)?;
        }
        if entries[..index].iter().any(|other| other.smf.eq_ignore_ascii_case(&entry.smf)) {
            let what = format!("{} is named twice; name it once", entry.smf);
            return Err(refuse(name, what));
        }
        let SmfLimits { sessions, establishments_per_s, held_packets_per_lane, .. } = *entry;
        let limits = [sessions, establishments_per_s, held_packets_per_lane];
        check_limits(&path, limits, most_held)?;
    }
    Ok(())
}

fn check_count(path: &str, count: usize) -> Result<(), Error> {
    if count <= MAX_LIMITED {
        return Ok(());
    }
    Err(refuse(path, format!("{count} are configured; write at most {MAX_LIMITED}")))
}

/// Checks the limits of sessions, of establishments per second and of held packets.
fn check_limits(path: &str, limits: [Option<u32>; 3], most_held: u32) -> Result<(), Error> {
    let [sessions, rate, held] = limits;
    if limits == [None; 3] {
        let what = "it has no limit; write `sessions`, `establishments-per-s` or \
                    `held-packets-per-lane`, or remove the entry";
        return Err(refuse(path, what));
    }
    within(&format!("{path}.sessions"), sessions.unwrap_or(0), 0, 1 << 22)?;
    within(&format!("{path}.establishments-per-s"), rate.unwrap_or(1), 1, 1 << 20)?;
    within(&format!("{path}.held-packets-per-lane"), held.unwrap_or(0), 0, most_held)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slices(value: Value) -> Vec<SliceLimits> {
        serde_json::from_value(value).unwrap()
    }

    fn smfs(value: Value) -> Vec<SmfLimits> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_slice_has_a_type_and_perhaps_a_differentiator() {
        let all = slices(json!([
            { "s-nssai": { "sst": 1 }, "sessions": 1 },
            { "s-nssai": { "sst": 1, "sd": "01AbcD" }, "establishments-per-s": 1 },
            { "s-nssai": { "sst": 2, "sd": "ffffff" }, "held-packets-per-lane": 0 },
        ]));
        check_slices(&all, 1024).unwrap();
        let names: Vec<String> = all.iter().map(|it| it.s_nssai.s_nssai().to_string()).collect();
        assert_eq!(names, ["1", "1-01abcd", "2"]);
    }

    #[test]
    fn mistakes_are_named() {
        let of = |value: Value| check_slices(&slices(value), 1024).unwrap_err().to_string();
        for sd in ["", "12345", "1234567", "x12345", "+12345"] {
            let error = of(json!([{ "s-nssai": { "sst": 1, "sd": sd }, "sessions": 1 }]));
            assert!(error.contains("six hexadecimal digits"), "{error}");
        }
        let one = json!({ "s-nssai": { "sst": 1 }, "sessions": 1 });
        let same = json!({ "s-nssai": { "sst": 1, "sd": "FFFFFF" }, "sessions": 1 });
        assert!(of(json!([one, same])).contains("the slice 1 is named twice"));
        assert!(of(json!([{ "s-nssai": { "sst": 1 } }])).contains("it has no limit"));
        let error = of(json!([{ "s-nssai": { "sst": 1 }, "held-packets-per-lane": 1025 }]));
        assert!(error.contains("write 0 to 1024"), "{error}");
        let error = of(json!([{ "s-nssai": { "sst": 1 }, "establishments-per-s": 0 }]));
        assert!(error.contains("write 1 to"), "{error}");
        let of = |value: Value| check_smfs(&smfs(value), 1024).unwrap_err().to_string();
        assert!(of(json!([{ "smf": "10.0.0.1/8", "sessions": 1 }])).contains("10.0.0.0/8"));
        assert!(of(json!([{ "smf": "a b", "sessions": 1 }])).contains("neither"));
        let error = of(json!([{ "smf": "A.b", "sessions": 1 }, { "smf": "a.B", "sessions": 1 }]));
        assert!(error.contains("named twice"), "{error}");
        let many: Vec<Value> =
            (0..65).map(|number| json!({ "smf": format!("smf{number}"), "sessions": 1 })).collect();
        assert!(of(json!(many)).contains("write at most 64"));
    }

    #[test]
    fn smfs_are_covered_by_name_address_or_prefix() {
        let covers = |smf: &str, node_id: &str, address: &str| {
            let entry = smfs(json!([{ "smf": smf, "sessions": 1 }])).remove(0);
            entry.covers(node_id, address.parse().unwrap())
        };
        assert!(covers("smf.Example", "smf.example", "10.4.0.2"));
        assert!(covers("10.4.0.2", "smf.example", "10.4.0.2"));
        assert!(covers("192.0.2.7", "192.0.2.7", "10.4.0.2"));
        assert!(covers("10.4.0.0/16", "smf.example", "10.4.0.2"));
        assert!(covers("::/0", "smf.example", "2001:db8::1"));
        assert!(!covers("10.4.0.0/16", "10.4.0.9", "10.5.0.2"), "the address is what counts");
        assert!(!covers("smf2.example", "smf.example", "10.4.0.2"));
        assert!(!covers("0.0.0.0/0", "smf.example", "2001:db8::1"));
    }
}
