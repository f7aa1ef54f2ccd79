//! Configuration of the agent: strict JSON, resolved into pools.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastlane::config::raw::AGENT_SOCKET;
use fastlane::config::{Rule, address_and_length};
use fastlane_steer::Rules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::owner::is_grant_name;

mod kubernetes;

pub use kubernetes::{KubernetesApi, KubernetesSettings};

/// Configuration of the agent.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Configuration {
    /// Location of this schema, for editors.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The pools by name: what some users may use. Without `kubernetes` there must be one.
    #[serde(default)]
    pub pools: BTreeMap<String, PoolSettings>,
    /// Pools that pods of this Kubernetes node may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesSettings>,
    /// Path of the socket on which applications find the agent.
    #[serde(default = "socket")]
    pub socket: PathBuf,
    /// Directory in a BPF file system in which steering programs are pinned, so that traffic goes
    /// on while the agent is restarted.
    #[serde(default = "pins")]
    pub pins: PathBuf,
}

impl Default for Configuration {
    /// Returns a configuration without pools.
    fn default() -> Self {
        let (pools, kubernetes) = (BTreeMap::new(), None);
        Self { schema: None, pools, kubernetes, socket: socket(), pins: pins() }
    }
}

/// Interfaces and steering rules that some users may use.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolSettings {
    /// The interfaces by name. One application at a time has an interface.
    #[serde(default)]
    pub interfaces: BTreeMap<String, QueueLimit>,
    /// Addresses of PCI devices, such as `0000:3b:02.0`, that an application may drive by DPDK
    /// through VFIO. They are bound to vfio-pci and alone in their IOMMU groups, or with others of
    /// the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pci: Vec<String>,
    /// Steering rules. Each rule of an application must be as narrow as one of them, or narrower.
    /// With an empty list an application may claim every frame, also those of remote logins.
    pub steer: Vec<Rule>,
    /// TAP devices by name: the names under which an application may have one, each with the
    /// addresses that it may have. Default: none.
    #[serde(default)]
    pub taps: BTreeMap<String, TapLimit>,
    /// Path of a socket that serves the handshake of Intel's AF_XDP device plugin, for CNDP and
    /// DPDK (`use_cni`). The agent attaches steering programs with the rules of `steer` to the
    /// interfaces at once, and hands the descriptors of their maps out: a client can take the
    /// frames of all queues, and makes its sockets itself, for which it needs CAP_NET_RAW. The
    /// interfaces cannot be used otherwise. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<PathBuf>,
    /// True if an application may have AF_PACKET sockets. It can then send on every interface of
    /// the agent's network namespace, and make any of them promiscuous.
    #[serde(default)]
    pub af_packet: bool,
    /// Numeric user ids whose processes may use the pool.
    #[serde(default)]
    pub users: Vec<u32>,
    /// Numeric group ids: processes whose effective group is one of them may use the pool.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// Maximum memory of the lanes of one application, in MiB. The kernel pins it.
    #[serde(default = "memory")]
    pub memory_mib: u64,
}

/// Limit of a TAP device of a pool.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct TapLimit {
    /// Addresses with prefix lengths, such as `10.45.0.1/16`, that an application may set.
    pub addresses: Vec<String>,
}

/// Limit of an interface of a pool.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct QueueLimit {
    /// Number of queues, from queue 0 on, that an application may have. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
}

fn socket() -> PathBuf {
    PathBuf::from(AGENT_SOCKET)
}

fn pins() -> PathBuf {
    PathBuf::from("/sys/fs/bpf/fastlane")
}

fn memory() -> u64 {
    256
}

/// Resolved configuration.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) socket: PathBuf,
    pub(crate) pins: PathBuf,
    pub(crate) pools: Vec<Arc<Pool>>,
}

/// Resolved pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) interfaces: BTreeMap<String, QueueLimit>,
    /// Addresses of PCI devices for VFIO.
    pub(crate) pci: Vec<String>,
    /// Rules within which those of clients must be.
    pub(crate) rules: Rules,
    /// Addresses that TAP devices may have, by name.
    pub(crate) taps: BTreeMap<String, Vec<(IpAddr, u8)>>,
    /// Path of the socket of the handshake.
    pub(crate) handshake: Option<PathBuf>,
    /// True if clients may have AF_PACKET sockets.
    pub(crate) af_packet: bool,
    /// Maximum memory of a client in bytes.
    pub(crate) memory: u64,
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl Pool {
    /// Returns true if processes of this user or group may use the pool.
    pub(crate) fn admits(&self, user: u32, group: u32) -> bool {
        self.users.contains(&user) || self.groups.contains(&group)
    }

    /// Returns which interface or device two pools share, with the remedy, or `None` if they share
    /// none.
    pub(crate) fn shared_with(&self, other: &Self) -> Option<String> {
        let mut interfaces = self.interfaces.keys();
        let shared = interfaces.find(|name| other.interfaces.contains_key(*name));
        let shared = shared.or_else(|| self.pci.iter().find(|it| other.pci.contains(it)))?;
        let other = &other.name;
        Some(format!("`{shared}` is in pool `{other}` too; name each interface in one pool"))
    }
}

/// Reads and checks a configuration, which must have pools.
///
/// # Errors
/// Names the first mistake.
pub fn read(path: &Path) -> Result<Configuration, Error> {
    let raw: Configuration = fastlane::config::read_as(path)?;
    let refuse = |what: String| Error::Configuration { path: path.to_owned(), what };
    if raw.pools.is_empty() && raw.kubernetes.is_none() {
        return Err(refuse("pools: there is none, so nobody could use the agent".to_owned()));
    }
    resolve(raw.clone()).map_err(refuse)?;
    Ok(raw)
}

/// Resolves a configuration.
pub(crate) fn resolve(raw: Configuration) -> Result<Plan, String> {
    let mut pools = Vec::<Arc<Pool>>::new();
    for (name, pool) in raw.pools {
        if pool.users.is_empty() && pool.groups.is_empty() {
            let what = "there are no `users` and no `groups`, so nobody could use it";
            return Err(format!("pools.{name}: {what}; write at least one"));
        }
        let pool = resolve_pool(&name, pool)?;
        if pool.handshake.is_some() && !is_grant_name(&name) {
            return Err(format!(
                "pools.{name}: with a `handshake` its name must have 1 to 64 letters, digits, `-` \
                 and `_`"
            ));
        }
        if let Some(what) = pools.iter().find_map(|other| pool.shared_with(other)) {
            return Err(format!("pools.{name}.interfaces: {what}"));
        }
        pools.push(Arc::new(pool));
    }
    if let Some(kubernetes) = raw.kubernetes {
        kubernetes.check(&pools).map_err(|what| format!("kubernetes.{what}"))?;
    }
    Ok(Plan { socket: raw.socket, pins: raw.pins, pools })
}

/// Resolves a pool, of the configuration or of a grant.
pub(crate) fn resolve_pool(name: &str, pool: PoolSettings) -> Result<Pool, String> {
    let PoolSettings { interfaces, pci, steer, taps, handshake, .. } = pool;
    let PoolSettings { af_packet, users, groups, memory_mib, .. } = pool;
    let rules = fastlane::config::resolve_rules(&steer)
        .map_err(|what| format!("pools.{name}.steer: {what}"))?;
    if interfaces.is_empty() && taps.is_empty() && pci.is_empty() {
        return Err(format!(
            "pools.{name}: there are no `interfaces`, no `taps` and no `pci`; write at least one"
        ));
    }
    if let Some(wrong) = pci.iter().find(|address| !is_pci_address(address)) {
        return Err(format!(
            "pools.{name}.pci: `{wrong}` is no address of a PCI device; write `0000:3b:00.0`"
        ));
    }
    let taps = taps.into_iter().map(|(tap, limit)| {
        if tap.is_empty() || tap.len() > 15 || tap.contains(['%', '/', '\0', ' ']) {
            return Err(format!("pools.{name}.taps: `{tap}` cannot be the name of an interface"));
        }
        let parse = |text: &String| {
            address_and_length(text).ok_or_else(|| {
                format!("pools.{name}.taps.{tap}: `{text}` is no address; write `10.45.0.1/16`")
            })
        };
        let addresses = limit.addresses.iter().map(parse).collect::<Result<_, _>>()?;
        Ok((tap.clone(), addresses))
    });
    let taps = taps.collect::<Result<_, String>>()?;
    let memory = memory_mib.saturating_mul(1 << 20);
    let name = name.to_owned();
    Ok(Pool { name, interfaces, pci, rules, taps, handshake, af_packet, memory, users, groups })
}

/// Returns true for the form `0000:3b:00.0`.
fn is_pci_address(text: &str) -> bool {
    let form = |byte: u8| match byte {
        b'0'..=b'9' | b'a'..=b'f' => b'0',
        other => other,
    };
    text.bytes().map(form).eq(*b"0000:00:00.0")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn loaded(configuration: &serde_json::Value) -> Result<Plan, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.json");
        std::fs::write(&path, configuration.to_string()).unwrap();
        let read = read(&path).map_err(|error| error.to_string())?;
        resolve(read)
    }

    #[test]
    fn a_pool_admits_its_users_and_groups_only() {
        let pool = json!({"interfaces": {"eth1": {}}, "steer": [], "users": [5], "groups": [6]});
        let plan = loaded(&json!({"pools": {"a": pool}})).unwrap();
        let pool = &plan.pools[0];
        assert!(pool.admits(5, 0) && pool.admits(0, 6));
        assert!(!pool.admits(0, 0) && !pool.admits(6, 5));
        assert_eq!(plan.socket, Path::new("/run/fastlane/agent.sock"));
    }

    #[test]
    fn mistakes_are_named_with_the_remedy() {
        let pool = |key: &str, value: serde_json::Value| {
            let mut pool = json!({"interfaces": {"eth1": {}}, "steer": [], "users": [5]});
            pool[key] = value;
            json!({"pools": {"a": pool}})
        };
        for (configuration, words) in [
            (pool("usres", json!([1])), "did you mean `users`?"),
            (pool("users", json!([])), "no `users` and no `groups`"),
            (pool("interfaces", json!({})), "no `interfaces`, no `taps` and no `pci`"),
            (pool("pci", json!(["3b:00.0"])), "pools.a.pci: `3b:00.0` is no address"),
            (pool("taps", json!({"a/b": {}})), "cannot be the name of an interface"),
            (pool("taps", json!({"t": {"addresses": ["1.2.3.4"]}})), "`1.2.3.4` is no address"),
            (pool("steer", json!([{"udp-port": 1, "tcp-port": 2}])), "pools.a.steer: rule 1"),
            (json!({"pools": {}}), "pools: there is none"),
            (json!({"pools": {"a": {"interfaces": {"x": {}}, "users": [1]}}}), "`steer`"),
        ] {
            let error = loaded(&configuration).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let mut twice = pool("users", json!([5]));
        twice["pools"]["b"] = twice["pools"]["a"].clone();
        assert!(loaded(&twice).unwrap_err().contains("name each interface in one pool"));
    }

    #[test]
    fn an_address_has_one_form() {
        assert!(is_pci_address("0000:3b:00.0") && is_pci_address("10de:ff:1f.7"));
        for text in ["", "3b:00.0", "0000:3B:00.0", "0000:3b:00.0 ", "../../../x:1", "0000:3b:00:0"]
        {
            assert!(!is_pci_address(text), "{text}");
        }
    }
}
