//! Files for the containers of a claim: those of the Container Device Interface, and the metadata
//! of the devices (KEP-5304) that they mount.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::DRIVER;
use crate::claim::Claim;

/// Version of the interface.
const VERSION: &str = "0.6.0";
/// Class of the devices of a claim.
const CLASS: &str = "claim";
/// Directory in containers with the metadata of their devices.
const METADATA: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// Edits of the containers that use a request of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edits {
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) mounts: Vec<Mount>,
    /// Device nodes of the node, at the same paths in the container.
    pub(crate) nodes: Vec<PathBuf>,
}

/// Directory or file of the node in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) host: PathBuf,
    pub(crate) container: String,
    pub(crate) is_writable: bool,
}

impl Edits {
    /// Adds those of another request or pool.
    pub(crate) fn extend(&mut self, other: Self) {
        self.variables.extend(other.variables);
        self.mounts.extend(other.mounts);
        self.nodes.extend(other.nodes);
        self.nodes.sort();
        self.nodes.dedup();
    }

    fn to_json(&self) -> Value {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}"));
        let mounts = self.mounts.iter().map(|mount| {
            let mode = if mount.is_writable { "rw" } else { "ro" };
            json!({
                "hostPath": mount.host,
                "containerPath": mount.container,
                "options": [mode, "nosuid", "nodev", "noexec", "bind"],
            })
        });
        // Only the container sees them, whatever user it runs as.
        let nodes = self
            .nodes
            .iter()
            .map(|path| json!({"path": path, "permissions": "rw", "fileMode": 0o666}));
        json!({
            "env": variables.collect::<Vec<_>>(),
            "mounts": mounts.collect::<Vec<_>>(),
            "deviceNodes": nodes.collect::<Vec<_>>(),
        })
    }
}

/// Directories in which the files are.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// Directory that container runtimes watch.
    pub(crate) cdi: PathBuf,
    /// Directory of the metadata.
    pub(crate) metadata: PathBuf,
}

impl Files {
    /// Writes the file for the containers of a claim, with the edits of each request. Container
    /// runtimes see the whole file or none.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn write(&self, claim: &str, edits: &BTreeMap<String, Edits>) -> io::Result<()> {
        let devices = edits.iter().map(|(request, edits)| {
            json!({"name": format!("{claim}-{request}"), "containerEdits": edits.to_json()})
        });
        let devices: Vec<Value> = devices.collect();
        let file = json!({
            "cdiVersion": VERSION,
            "kind": format!("{DRIVER}/{CLASS}"),
            "devices": devices,
        });
        fs::create_dir_all(&self.cdi)?;
        write_whole(&self.file(claim), &file.to_string())
    }

    /// Writes the metadata of a request and returns its mount.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn write_metadata(
        &self,
        claim: &Claim,
        request: &str,
        devices: &[Value],
    ) -> io::Result<Mount> {
        let directory = self.metadata.join(claim.uid());
        fs::create_dir_all(&directory)?;
        let mut metadata = json!({
            "kind": "DeviceMetadata",
            "apiVersion": "metadata.resource.k8s.io/v1beta1",
            "metadata": {
                "name": claim.name(),
                "namespace": claim.namespace(),
                "uid": claim.uid(),
                "generation": 1,
            },
            "requests": [{"name": request, "devices": devices}],
        });
        let folder = match claim.pod_claim() {
            Some(name) => {
                metadata["podClaimName"] = json!(name);
                format!("resourceclaimtemplates/{name}")
            }
            None => format!("resourceclaims/{}", claim.name()),
        };
        let host = directory.join(format!("{request}.json"));
        write_whole(&host, &format!("{metadata:#}\n"))?;
        let container = format!("{METADATA}/{folder}/{request}/{DRIVER}-metadata.json");
        Ok(Mount { host, container, is_writable: false })
    }

    /// Removes all files of a claim.
    pub(crate) fn remove(&self, claim: &str) {
        let removed =
            [fs::remove_file(self.file(claim)), fs::remove_dir_all(self.metadata.join(claim))];
        for error in removed.into_iter().filter_map(Result::err) {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!("files of claim {claim}: {error}");
            }
        }
    }

    fn file(&self, claim: &str) -> PathBuf {
        self.cdi.join(format!("{DRIVER}-{CLASS}_{claim}.json"))
    }
}

/// Returns the name by which kubelet tells the container runtime about a request of a claim.
pub(crate) fn device_id(claim: &str, request: &str) -> String {
    format!("{DRIVER}/{CLASS}={claim}-{request}")
}

/// Writes a file so that readers see all of it or the one before.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Runtimes ignore files that begin with a dot.
    let temporary = path.with_file_name(format!(".{name}"));
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::tests::claim;

    #[test]
    fn a_claim_has_a_file_with_a_device_for_each_request() {
        let directory = tempfile::tempdir().unwrap();
        let (cdi, metadata) = (directory.path().join("cdi"), directory.path().join("metadata"));
        let files = Files { cdi: cdi.clone(), metadata };
        let mount = Mount {
            host: PathBuf::from("/node"),
            container: "/pod".to_owned(),
            is_writable: false,
        };
        let nodes = vec![PathBuf::from("/dev/vfio/12")];
        let edits =
            Edits { variables: vec![("A".to_owned(), "b".to_owned())], mounts: vec![mount], nodes };
        files.write("u-1", &BTreeMap::from([("nic".to_owned(), edits)])).unwrap();
        let entries: Vec<_> = fs::read_dir(&cdi).unwrap().flatten().collect();
        assert_eq!(entries.len(), 1);
        let file: Value = serde_json::from_slice(&fs::read(entries[0].path()).unwrap()).unwrap();
        assert_eq!(file["kind"], "fastlane.dev/claim");
        assert_eq!(file["devices"][0]["name"], "u-1-nic");
        let edits = &file["devices"][0]["containerEdits"];
        assert_eq!(edits["env"], json!(["A=b"]));
        assert_eq!(edits["mounts"][0]["containerPath"], "/pod");
        assert_eq!(edits["mounts"][0]["options"][0], "ro");
        let node = json!({"path": "/dev/vfio/12", "permissions": "rw", "fileMode": 438});
        assert_eq!(edits["deviceNodes"][0], node);
        assert_eq!(device_id("u-1", "nic"), "fastlane.dev/claim=u-1-nic");
        files.remove("u-1");
        assert_eq!(fs::read_dir(&cdi).unwrap().count(), 0);
        files.remove("u-1");
    }

    #[test]
    fn metadata_is_where_programs_look_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files { cdi: directory.path().into(), metadata: directory.path().into() };
        let claim = claim(&[]);
        let mount = files.write_metadata(&claim, "q", &[json!({"name": "eth1"})]).unwrap();
        assert_eq!(
            mount.container,
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/nic/q/\
             fastlane.dev-metadata.json"
        );
        let written: Value = serde_json::from_slice(&fs::read(mount.host).unwrap()).unwrap();
        assert_eq!(written["podClaimName"], "nic");
        assert_eq!(written["requests"][0]["devices"][0]["name"], "eth1");
    }
}
