//! Table of allocations: which pods may use which interfaces of a pool.
//!
//! An allocation is a grant of the agent and a file, so it survives restarts of kubelet, of the
//! agent and of the node. Containers mount the directory with its socket.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastlane_agent::{Admission, Agent, Grant, Peer, PoolSettings};
use serde::{Deserialize, Serialize};

use crate::pod::pod_of;

/// Name of the socket in the directory of an allocation.
pub(crate) const SOCKET: &str = "agent.sock";
/// Maximum length of a file of the table in bytes.
const MAX_FILE: u64 = 1 << 16;

/// Allocation of interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Allocation {
    pub(crate) pool: String,
    /// Interfaces by name, and PCI devices by address.
    pub(crate) interfaces: Vec<String>,
    pub(crate) holder: Holder,
}

/// Holder of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) enum Holder {
    /// Container to which the device plugin gave it. Kubelet does not tell its pod: the first one
    /// that connects has it, and no other can mount the socket.
    Container {
        /// UID of the pod; `None` until it connects.
        pod: Option<String>,
    },
    /// Claim, which pods may share.
    Claim {
        /// Namespace of the claim.
        namespace: String,
        /// Name of the claim.
        name: String,
        /// UID of the claim.
        uid: String,
        /// UIDs of the pods for which it is reserved, as known so far.
        pods: Vec<String>,
    },
}

/// Source of the pods for which a claim is reserved.
pub(crate) trait Claims: std::fmt::Debug + Send + Sync {
    /// Returns the UIDs of the pods for which a claim is reserved now.
    ///
    /// # Errors
    /// The reason why it cannot be told, with the remedy.
    fn reserved_for(&self, namespace: &str, name: &str, uid: &str) -> Result<Vec<String>, String>;
}

/// The table, with the grants of the agent.
#[derive(Debug)]
pub(crate) struct Allocations {
    agent: Agent,
    pools: BTreeMap<String, PoolSettings>,
    directory: PathBuf,
    entries: Mutex<BTreeMap<String, Arc<Entry>>>,
    claims: Option<Arc<dyn Claims>>,
}

/// Entry of the table; it admits the processes that connect.
#[derive(Debug)]
struct Entry {
    /// Path of its file.
    file: PathBuf,
    allocation: Mutex<Allocation>,
    claims: Option<Arc<dyn Claims>>,
}

impl Allocations {
    /// Opens the table in a directory and gives all grants again.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be used.
    pub(crate) fn open(
        agent: Agent,
        pools: BTreeMap<String, PoolSettings>,
        directory: PathBuf,
        claims: Option<Arc<dyn Claims>>,
    ) -> io::Result<Self> {
        let (files, entries) = (directory.join("allocations"), Mutex::default());
        // Users of the node have no business there. Container runtimes mount as root.
        for folder in [&files, &directory.join("pods")] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let table = Self { agent, pools, directory, entries, claims };
        for file in fs::read_dir(files)? {
            let file = file?.path();
            let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
            let Some(name) = name.strip_suffix(".json") else { continue };
            let restored =
                read(&file).and_then(|allocation| table.enter(&mut table.lock(), name, allocation));
            if let Err(reason) = restored {
                tracing::warn!(
                    "allocation {}: {reason}; its pod must be created anew",
                    file.display()
                );
            }
        }
        Ok(table)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the directory of an allocation that containers mount.
    pub(crate) fn mount(&self, name: &str) -> PathBuf {
        self.directory.join("pods").join(name)
    }

    /// Makes an allocation under a name. Nothing changes if a claim has it already. What containers
    /// had of its interfaces is released: kubelet gives a device anew only after its pod has ended.
    ///
    /// # Errors
    /// Names the claim that has an interface, or why the agent refuses.
    pub(crate) fn allocate(&self, name: &str, allocation: Allocation) -> Result<(), String> {
        let mut entries = self.lock();
        if let Some(entry) = entries.get(name).cloned() {
            let mut known = entry.lock();
            if known.pool == allocation.pool && known.interfaces == allocation.interfaces {
                known.holder = allocation.holder;
                return write(&entry.file, &known);
            }
        }
        let known = entries.iter().map(|(name, entry)| (name.clone(), entry.lock().clone()));
        let known: Vec<(String, Allocation)> = known.collect();
        for other in replaced_by(&known, name, &allocation.interfaces)? {
            self.remove(&mut entries, &other);
        }
        self.enter(&mut entries, name, allocation).inspect_err(|_| {
            // Nobody has it; what is absent already need not be removed.
            let _ = fs::remove_file(self.file(name));
            let _ = fs::remove_dir_all(self.mount(name));
        })
    }

    /// Returns the path of the file of an allocation.
    fn file(&self, name: &str) -> PathBuf {
        self.directory.join("allocations").join(format!("{name}.json"))
    }

    /// Ends an allocation. Nothing happens if there is none.
    pub(crate) fn release(&self, name: &str) {
        self.remove(&mut self.lock(), name);
    }

    /// Returns the names of the allocations of a claim.
    pub(crate) fn of_claim(&self, claim: &str) -> Vec<String> {
        let entries = self.lock();
        let is_of_claim = |entry: &Entry| match &entry.lock().holder {
            Holder::Claim { uid, .. } => uid == claim,
            Holder::Container { .. } => false,
        };
        let names = entries.iter().filter(|(_, entry)| is_of_claim(entry));
        names.map(|(name, _)| name.clone()).collect()
    }

    fn enter(
        &self,
        entries: &mut BTreeMap<String, Arc<Entry>>,
        name: &str,
        allocation: Allocation,
    ) -> Result<(), String> {
        let pool = self.pools.get(&allocation.pool).ok_or_else(|| {
            format!("pool `{}` is not in the configuration any more", allocation.pool)
        })?;
        let mut granted = pool.clone();
        granted.interfaces.retain(|interface, _| allocation.interfaces.contains(interface));
        granted.pci.retain(|address| allocation.interfaces.contains(address));
        if granted.interfaces.len() + granted.pci.len() != allocation.interfaces.len() {
            return Err(format!(
                "pool `{}` does not have all of its interfaces: {}",
                allocation.pool,
                allocation.interfaces.join(", ")
            ));
        }
        let file = self.file(name);
        write(&file, &allocation)?;
        let (allocation, claims) = (Mutex::new(allocation), self.claims.clone());
        let entry = Arc::new(Entry { file, allocation, claims });
        let socket = self.mount(name).join(SOCKET);
        let grant = Grant { pool: granted, socket, admission: Some(Arc::clone(&entry) as _) };
        self.agent.grant(name, grant).map_err(|error| error.to_string())?;
        entries.insert(name.to_owned(), entry);
        Ok(())
    }

    fn remove(&self, entries: &mut BTreeMap<String, Arc<Entry>>, name: &str) {
        let Some(entry) = entries.remove(name) else { return };
        self.agent.revoke(name);
        for removed in [fs::remove_file(&entry.file), fs::remove_dir_all(self.mount(name))] {
            if let Err(error) = removed {
                tracing::warn!("allocation `{name}`: {error}");
            }
        }
    }
}

impl Entry {
    fn lock(&self) -> MutexGuard<'_, Allocation> {
        self.allocation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that a pod may use the allocation.
    fn admit_pod(&self, pod: String) -> Result<(), String> {
        let mut allocation = self.lock();
        let claim = match &mut allocation.holder {
            Holder::Container { pod: Some(holder) } if *holder == pod => return Ok(()),
            Holder::Container { pod: Some(holder) } => {
                return Err(format!("pod {holder} has this allocation, not pod {pod}"));
            }
            Holder::Container { pod: holder @ None } => {
                *holder = Some(pod);
                return write(&self.file, &allocation);
            }
            Holder::Claim { pods, .. } if pods.contains(&pod) => return Ok(()),
            Holder::Claim { namespace, name, uid, .. } => {
                (namespace.clone(), name.clone(), uid.clone())
            }
        };
        // Another pod may share the claim since it was prepared.
        drop(allocation);
        let (namespace, name, uid) = claim;
        let claims = self.claims.as_ref().ok_or("the API server is not asked about claims")?;
        let reserved = claims.reserved_for(&namespace, &name, &uid)?;
        if !reserved.contains(&pod) {
            return Err(format!("claim {namespace}/{name} is not reserved for pod {pod}"));
        }
        let mut allocation = self.lock();
        if let Holder::Claim { pods, .. } = &mut allocation.holder {
            *pods = reserved;
        }
        write(&self.file, &allocation)
    }
}

impl Admission for Entry {
    fn admit(&self, peer: &Peer) -> Result<(), String> {
        let cgroups = peer.cgroups().map_err(|error| {
            format!("the pod of process {} cannot be told: {error}", peer.process)
        })?;
        let pod = pod_of(&cgroups).ok_or_else(|| {
            format!(
                "process {} is in no pod, and only that of the allocation may use it",
                peer.process
            )
        })?;
        self.admit_pod(pod)
    }
}

/// Returns the names of the allocations that end because their interfaces are allocated anew.
///
/// # Errors
/// Names the claim that has an interface.
fn replaced_by(
    known: &[(String, Allocation)],
    name: &str,
    interfaces: &[String],
) -> Result<Vec<String>, String> {
    let mut replaced = Vec::new();
    for (other, allocation) in known {
        let is_shared = allocation.interfaces.iter().any(|it| interfaces.contains(it));
        match &allocation.holder {
            _ if other == name => replaced.push(other.clone()),
            _ if !is_shared => {}
            Holder::Container { .. } => replaced.push(other.clone()),
            Holder::Claim { namespace, name, .. } => {
                let interfaces = allocation.interfaces.join(", ");
                return Err(format!("claim {namespace}/{name} has {interfaces}; delete it first"));
            }
        }
    }
    Ok(replaced)
}

fn read(file: &Path) -> Result<Allocation, String> {
    use std::io::Read;
    let mut text = String::new();
    let opened = fs::File::open(file).map_err(|error| error.to_string())?;
    opened.take(MAX_FILE).read_to_string(&mut text).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("its file is damaged: {error}"))
}

/// Writes an allocation so that its file is the old or the new one, also after a crash.
fn write(file: &Path, allocation: &Allocation) -> Result<(), String> {
    let failed = |error: io::Error| format!("{} cannot be written: {error}", file.display());
    let text = serde_json::to_string(allocation).map_err(|error| error.to_string())?;
    let temporary = file.with_extension("new");
    let written = fs::File::create(&temporary).and_then(|mut new| {
        io::Write::write_all(&mut new, text.as_bytes())?;
        new.sync_all()
    });
    written.and_then(|()| fs::rename(&temporary, file)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "3b0e2d2c-5a4a-4d34-9b1e-1f2f3a4b5c6d";
    const OTHER: &str = "00000000-0000-4000-8000-000000000000";

    /// Claims that are reserved for these pods.
    #[derive(Debug)]
    struct Reserved(&'static [&'static str]);

    impl Claims for Reserved {
        fn reserved_for(&self, _: &str, _: &str, uid: &str) -> Result<Vec<String>, String> {
            assert_eq!(uid, "claim-1");
            Ok(self.0.iter().map(|pod| (*pod).to_owned()).collect())
        }
    }

    fn claim(pods: &[&str]) -> Holder {
        Holder::Claim {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
            uid: "claim-1".to_owned(),
            pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        }
    }

    fn allocation(interfaces: &[&str], holder: Holder) -> Allocation {
        let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
        Allocation { pool: "upf".to_owned(), interfaces, holder }
    }

    fn entry(directory: &Path, holder: Holder, claims: Option<Arc<dyn Claims>>) -> Entry {
        let allocation = Mutex::new(allocation(&["eth1"], holder));
        Entry { file: directory.join("a.json"), allocation, claims }
    }

    #[test]
    fn the_first_pod_of_a_container_has_its_allocation_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let entry = entry(directory.path(), Holder::Container { pod: None }, None);
        assert_eq!(entry.admit_pod(POD.to_owned()), Ok(()));
        assert_eq!(entry.admit_pod(POD.to_owned()), Ok(()));
        assert!(entry.admit_pod(OTHER.to_owned()).unwrap_err().contains("has this allocation"));
        let restored = read(&entry.file).unwrap();
        assert_eq!(restored.holder, Holder::Container { pod: Some(POD.to_owned()) });
    }

    #[test]
    fn a_claim_admits_the_pods_for_which_it_is_reserved() {
        let directory = tempfile::tempdir().unwrap();
        let claims: Arc<dyn Claims> = Arc::new(Reserved(&[POD, OTHER]));
        let shared = entry(directory.path(), claim(&[POD]), Some(claims));
        assert_eq!(shared.admit_pod(POD.to_owned()), Ok(()));
        // It shares the claim since it was prepared.
        assert_eq!(shared.admit_pod(OTHER.to_owned()), Ok(()));
        assert_eq!(read(&shared.file).unwrap().holder, claim(&[POD, OTHER]));
        let refused = shared.admit_pod("foreign".to_owned()).unwrap_err();
        assert!(refused.contains("claim n/c is not reserved for pod foreign"), "{refused}");
        // A pod that is known comes back while the API server is away.
        let known = entry(directory.path(), claim(&[POD]), None);
        assert_eq!(known.admit_pod(POD.to_owned()), Ok(()));
        assert!(known.admit_pod(OTHER.to_owned()).is_err());
    }

    #[test]
    fn interfaces_are_allocated_anew_after_a_container_but_not_away_from_a_claim() {
        let container = |interfaces: &[&str]| {
            (interfaces.join("-"), allocation(interfaces, Holder::Container { pod: None }))
        };
        let known = [container(&["eth1"]), container(&["eth2", "eth3"])];
        let wanted = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let replaced =
            |known: &[_], name: &str, names: &[&str]| replaced_by(known, name, &wanted(names));
        assert_eq!(replaced(&known, "new", &["eth4"]).unwrap(), wanted(&[]));
        assert_eq!(replaced(&known, "new", &["eth1", "eth3"]).unwrap(), ["eth1", "eth2-eth3"]);
        assert_eq!(replaced(&known, "eth1", &["eth9"]).unwrap(), ["eth1"]);
        let claimed = [("c".to_owned(), allocation(&["eth1"], claim(&[])))];
        assert!(replaced(&claimed, "new", &["eth1"]).unwrap_err().contains("claim n/c has eth1"));
        assert_eq!(replaced(&claimed, "new", &["eth2"]).unwrap(), wanted(&[]));
        assert_eq!(replaced(&claimed, "c", &["eth1"]).unwrap(), ["c"]);
    }

    #[test]
    fn a_damaged_file_is_named_and_no_allocation() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.json");
        for text in ["", "{}", "[1]", "{\"pool\": \"x\", \"interfaces\": []}"] {
            fs::write(&file, text).unwrap();
            assert!(read(&file).unwrap_err().contains("damaged"), "{text}");
        }
        fs::write(&file, vec![b' '; 1 << 20]).unwrap();
        assert!(read(&file).is_err());
    }
}
