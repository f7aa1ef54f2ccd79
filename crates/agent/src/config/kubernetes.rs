//! Section `kubernetes` of the configuration: the pools that pods of this node may use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Pool, PoolSettings, resolve_pool};

/// Maximum length of the name of a pool. It is part of names of Kubernetes.
const MAX_NAME: usize = 27;
/// Maximum number of memif links. A ResourceSlice has 128 devices at most, pools among them.
const MAX_LINKS: u32 = 64;

/// Name that no pool may have: claims of `memif.fastlane.dev` are memif links.
const MEMIF: &str = "memif";

/// Pools that pods of this node may use, and how kubelet learns of them.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KubernetesSettings {
    /// The pools by name. A pod has an interface of pool `upf` by a limit of `fastlane.dev/upf: 1`.
    /// A pool has neither `users` nor `groups`.
    pub pools: BTreeMap<String, PoolSettings>,
    /// Interface of kubelet by which it learns of the pools.
    #[serde(default)]
    pub api: KubernetesApi,
    /// Number of memif links: claims by which two pods exchange packets. They need `dra`.
    #[serde(default)]
    pub memif_links: u32,
    /// Directory of kubelet.
    #[serde(default = "kubelet")]
    pub kubelet: PathBuf,
    /// Directory in which container runtimes look for devices (Container Device Interface).
    #[serde(default = "cdi")]
    pub cdi: PathBuf,
}

/// Interface of kubelet by which it learns of pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KubernetesApi {
    /// `dra` if the cluster has a DeviceClass with `extendedResourceName` for each pool, which
    /// takes Kubernetes 1.36, otherwise `device-plugin`.
    #[default]
    Auto,
    /// Device plugin v1beta1, which every cluster has.
    DevicePlugin,
    /// Dynamic resource allocation (`resource.k8s.io/v1`), for Kubernetes 1.34 and later.
    Dra,
}

fn kubelet() -> PathBuf {
    PathBuf::from("/var/lib/kubelet")
}

fn cdi() -> PathBuf {
    PathBuf::from("/var/run/cdi")
}

impl KubernetesSettings {
    /// Checks the pools, also against those of users.
    ///
    /// # Errors
    /// Names the first mistake.
    pub(crate) fn check(&self, others: &[Arc<Pool>]) -> Result<(), String> {
        if self.pools.is_empty() {
            return Err("pools: there is none, so no pod could have one; write one".to_owned());
        }
        let mut resolved = Vec::<Arc<Pool>>::new();
        if self.memif_links > MAX_LINKS {
            return Err(format!(
                "memif-links: {} are too many; write at most {MAX_LINKS}",
                self.memif_links
            ));
        }
        for (name, pool) in &self.pools {
            if !is_label(name) {
                return Err(format!(
                    "pools: `{name}` cannot be part of the name of a resource; use at most \
                     {MAX_NAME} small letters, digits and `-`, which is neither first nor last"
                ));
            }
            if name == MEMIF {
                return Err(format!(
                    "pools: `{MEMIF}` is the name of memif links; use another one"
                ));
            }
            if pool.interfaces.is_empty() && pool.pci.is_empty() {
                return Err(format!(
                    "pools.{name}: there are no `interfaces` and no `pci`; write at least one"
                ));
            }
            if !pool.users.is_empty() || !pool.groups.is_empty() {
                return Err(format!(
                    "pools.{name}: `users` and `groups` are for pools outside of Kubernetes; \
                     remove them"
                ));
            }
            let pool = resolve_pool(name, pool.clone())?;
            let mut others = others.iter().chain(&resolved);
            if let Some(what) = others.find_map(|other| pool.shared_with(other)) {
                return Err(format!("pools.{name}.interfaces: {what}"));
            }
            resolved.push(Arc::new(pool));
        }
        Ok(())
    }
}

/// Returns true if a name is a DNS label (RFC 1123) of limited length.
fn is_label(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(pools: &serde_json::Value) -> Result<(), String> {
        let settings: KubernetesSettings = serde_json::from_value(json!({"pools": pools})).unwrap();
        settings.check(&[])
    }

    #[test]
    fn a_pool_of_pods_is_checked() {
        let pool = |key: &str, value: serde_json::Value| {
            let mut pool = json!({"interfaces": {"eth1": {}}, "steer": []});
            pool[key] = value;
            pool
        };
        assert_eq!(checked(&json!({"n3-n6": pool("steer", json!([]))})), Ok(()));
        for (pools, words) in [
            (json!({}), "pools: there is none"),
            (json!({"N3": pool("steer", json!([]))}), "`N3` cannot be part"),
            (json!({"-": pool("steer", json!([]))}), "`-` cannot be part"),
            (json!({"memif": pool("steer", json!([]))}), "is the name of memif links"),
            (json!({"x".repeat(28): pool("steer", json!([]))}), "at most 27"),
            (
                json!({"a": pool("interfaces", json!({}))}),
                "pools.a: there are no `interfaces` and no `pci`",
            ),
            (json!({"a": pool("users", json!([5]))}), "outside of Kubernetes"),
            (json!({"a": pool("groups", json!([5]))}), "outside of Kubernetes"),
            (json!({"a": pool("steer", json!([{"udp-port": 1, "tcp-port": 2}]))}), "rule 1"),
            (
                json!({"a": pool("steer", json!([])), "b": pool("steer", json!([]))}),
                "pools.b.interfaces: `eth1` is in pool `a` too",
            ),
        ] {
            let error = checked(&pools).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
