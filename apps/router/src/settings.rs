//! Settings: the object `app` of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fastlane::config::raw::Tier;
use fastlane::mirror::flows::FlowPolicy;
use fastlane::{Error, Program};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::CAUSES;

/// Settings of a router.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// True if there is an access list, in the table `acl`.
    pub acl: bool,
    /// True if the access list may have `police` rules, whose meters are in the table `police`.
    pub police: bool,
    /// True if packets are forwarded that leave by their ingress interface. Otherwise Linux
    /// forwards them and sends ICMP redirects.
    pub same_interface: bool,
    /// Flows: only packets of connections that Linux has established and marked are forwarded.
    pub flows: Option<FlowsSettings>,
}

/// Settings of flows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct FlowsSettings {
    /// Maximum number of flows. Further ones stay with Linux.
    pub capacity: usize,
    /// Value of `ct mark` within the mask for connections that may be fast.
    pub mark: u32,
    /// Bits of `ct mark` that count. The router clears them when the rules change.
    pub mask: u32,
    /// True if UDP may be fast before the other side has replied.
    pub one_way: bool,
    /// True if a change of the nftables rules clears the marks, so that the rules decide again.
    pub rejudge: bool,
    /// True if connections may be fast although a rule of nftables acts on each of their packets:
    /// limits, logs, queues or changes them.
    pub ignore_packet_rules: bool,
    /// Zone of the connection tracking by port, where it is not 0.
    pub zones: BTreeMap<String, u16>,
    /// True if lanes prefetch the flows of a burst, so that their cache misses overlap.
    pub prefetch: bool,
    /// Time after the death of `router offload` in which flows stay fast, in milliseconds.
    pub grace: u32,
    /// Directory for the pins of the kernel tier, in a BPF file system. Default:
    /// `/sys/fs/bpf/fastlane-flows/NAME`.
    pub pins: Option<PathBuf>,
}

impl Default for FlowsSettings {
    fn default() -> Self {
        Self {
            capacity: 1 << 16,
            mark: 1,
            mask: 1,
            one_way: false,
            rejudge: true,
            ignore_packet_rules: false,
            zones: BTreeMap::new(),
            prefetch: true,
            grace: 5000,
            pins: None,
        }
    }
}

impl FlowsSettings {
    /// Returns the conditions for connections that may be fast.
    #[must_use]
    pub fn policy(&self) -> FlowPolicy {
        FlowPolicy { mark: self.mark, mask: self.mask, one_way: self.one_way }
    }
}

/// Returns the program: its settings and the tables that follow from them.
#[must_use]
pub fn program() -> Program {
    let program = Program::with_settings(|settings: &Settings, raw| {
        let mut tables = json!({ "causes": { "capacity": CAUSES } });
        let mut ports = raw.ports.values();
        if settings.flows.is_none() && ports.any(|port| port.tier.is_some_and(Tier::has_program)) {
            let what = "the kernel tier forwards flows; write `\"flows\": {}` in `app`";
            return wrong("flows", what);
        }
        if let Some(flows) = &settings.flows {
            check(settings, flows)?;
            if let Some(name) = flows.zones.keys().find(|name| !raw.ports.contains_key(*name)) {
                return wrong(&format!("flows.zones.{name}"), "there is no port of this name");
            }
            // Both directions have an entry.
            tables["flows"] = json!({ "capacity": flows.capacity * 2 });
            tables["offload"] = json!({ "capacity": 1 });
        }
        let mut defaults = json!({ "tables": tables });
        if raw.mirror.is_some() {
            defaults["mirror"] = json!({ "honour-traffic-control": true });
        }
        Ok(defaults)
    });
    program.offloading_flows()
}

/// Returns the error of a value in `app`.
fn wrong<T>(key: &str, what: &str) -> Result<T, Error> {
    let (path, what) = (format!("app.{key}"), what.to_owned());
    Err(Error::Value { path, what, meant: None })
}

/// Checks settings that contradict each other.
fn check(settings: &Settings, flows: &FlowsSettings) -> Result<(), Error> {
    if settings.acl || settings.police {
        return wrong(
            "acl",
            "with `flows` the rules of Linux decide, and an access list would be a second opinion; \
             write it as nftables rules",
        );
    }
    if flows.mask == 0 {
        return wrong("flows.mask", "at least one bit of `ct mark` must select what may be fast");
    }
    if flows.mark & !flows.mask != 0 || flows.mark == 0 {
        return wrong(
            "flows.mark",
            "it must have bits of `mask` and no others: an unmarked connection is never fast",
        );
    }
    if !(1..=1 << 28).contains(&flows.capacity) {
        return wrong("flows.capacity", "1 to 268435456 flows are possible");
    }
    Ok(())
}
