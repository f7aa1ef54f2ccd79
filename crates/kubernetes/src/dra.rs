//! DRA driver (`resource.k8s.io/v1`): prepares claims for the containers of pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::DRIVER;
use crate::allocations::{Allocation, Allocations, Holder};
use crate::api_server::ApiServer;
use crate::cdi::{self, Edits, Files, Mount};
use crate::claim::{AllocatedDevice, Claim, is_name};
use crate::container::Container;
use crate::inventory::{Device, Devices, is_pci, vfio_nodes};
use crate::protocol::dra as api;
use crate::resource_slice::link_name;

/// Maximum number of claims of a request.
const MAX_CLAIMS: usize = 1024;

/// Driver of a node.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub(crate) node: String,
    pub(crate) server: Arc<ApiServer>,
    pub(crate) devices: watch::Receiver<Devices>,
    pub(crate) memif_links: u32,
    pub(crate) allocations: Arc<Allocations>,
    pub(crate) files: Files,
    /// Directory with a directory for each claim of memif links.
    pub(crate) memif_directory: PathBuf,
}

/// Device of a claim on this node.
enum Prepared {
    Interface(Box<Device>),
    MemifLink,
}

impl Driver {
    /// Prepares a claim, also one that is prepared already.
    ///
    /// # Errors
    /// The reason, for the events of the pod. Kubelet tries again.
    fn prepare(&self, claim: &api::Claim) -> Result<Vec<api::Device>, String> {
        let claim = Claim::read(&self.server, &claim.namespace, &claim.name, &claim.uid)?;
        let mut devices = Vec::new();
        for allocated in claim.devices() {
            devices.push((allocated, self.find(allocated)?));
        }
        let mut edits = BTreeMap::<String, Edits>::new();
        self.allocate(&claim, &devices, &mut edits)?;
        let failed = |error: std::io::Error| format!("the files of the claim: {error}");
        let requests: BTreeSet<&str> = devices.iter().map(|(it, _)| it.main_request()).collect();
        for request in requests {
            let own = devices.iter().filter(|(it, _)| it.main_request() == request);
            let described: Vec<Value> = own.map(|(it, device)| metadata(it, device)).collect();
            let mount = self.files.write_metadata(&claim, request, &described).map_err(failed)?;
            edits.entry(request.to_owned()).or_default().mounts.push(mount);
        }
        self.files.write(claim.uid(), &edits).map_err(failed)?;
        self.report(&claim, &devices);
        tracing::info!("claim {}/{} is prepared", claim.namespace(), claim.name());
        let mut seen = BTreeSet::new();
        let answered = devices.iter().map(|(allocated, _)| {
            // The edits of a request are in one device of the runtime.
            let is_first = seen.insert(allocated.main_request());
            let id = cdi::device_id(claim.uid(), allocated.main_request());
            api::Device {
                request_names: vec![allocated.request.clone()],
                pool_name: allocated.pool.clone(),
                device_name: allocated.device.clone(),
                cdi_device_ids: is_first.then_some(id).into_iter().collect(),
                share_id: None,
            }
        });
        Ok(answered.collect())
    }

    fn find(&self, allocated: &AllocatedDevice) -> Result<Prepared, String> {
        let devices = self.devices.borrow();
        if let Some(device) = devices.iter().find(|device| device.name == allocated.device) {
            return Ok(Prepared::Interface(Box::new(device.clone())));
        }
        match (0..self.memif_links).any(|number| link_name(number) == allocated.device) {
            true => Ok(Prepared::MemifLink),
            false => Err(format!(
                "node `{}` has no device `{}` any more; delete the claim",
                self.node, allocated.device
            )),
        }
    }

    /// Makes the allocations of a claim: one for each pool.
    fn allocate(
        &self,
        claim: &Claim,
        devices: &[(&AllocatedDevice, Prepared)],
        edits: &mut BTreeMap<String, Edits>,
    ) -> Result<(), String> {
        let mut pools = BTreeMap::<&str, Vec<String>>::new();
        for (_, prepared) in devices {
            if let Prepared::Interface(device) = prepared {
                pools.entry(&device.pool).or_default().push(device.interface.clone());
            }
        }
        for (pool, interfaces) in &mut pools {
            interfaces.sort();
            interfaces.dedup();
            let holder = Holder::Claim {
                namespace: claim.namespace().to_owned(),
                name: claim.name().to_owned(),
                uid: claim.uid().to_owned(),
                pods: claim.pods(),
            };
            let (pool, interfaces) = ((*pool).to_owned(), interfaces.clone());
            let name = format!("{}-{pool}", claim.uid());
            self.allocations.allocate(&name, Allocation { pool, interfaces, holder })?;
        }
        for (allocated, prepared) in devices {
            let own = match prepared {
                Prepared::MemifLink => self.link(claim, allocated)?,
                Prepared::Interface(device) => {
                    let interfaces = &pools[device.pool.as_str()];
                    let container = Container::new(&device.pool, interfaces);
                    let name = format!("{}-{}", claim.uid(), device.pool);
                    let mount = Mount {
                        host: self.allocations.mount(&name),
                        container: container.directory(),
                        is_writable: false,
                    };
                    let nodes = vfio_nodes(device)?;
                    Edits { variables: container.variables(), mounts: vec![mount], nodes }
                }
            };
            let request = edits.entry(allocated.main_request().to_owned()).or_default();
            match request.mounts.iter().any(|mount| own.mounts.contains(mount)) {
                false => request.extend(own),
                true => request.extend(Edits { nodes: own.nodes, ..Edits::default() }),
            }
        }
        Ok(())
    }

    /// Makes the directory of a memif link, in which all pods of the claim meet.
    fn link(&self, claim: &Claim, allocated: &AllocatedDevice) -> Result<Edits, String> {
        let request = allocated.main_request();
        let host = self.memif_directory.join(claim.uid()).join(request);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&host);
        // Each pod has a user of its own; none can remove what another one has made.
        let opened = made.and_then(|()| fs::set_permissions(&host, Permissions::from_mode(0o1777)));
        opened.map_err(|error| format!("{}: {error}", host.display()))?;
        let container = format!("/run/{DRIVER}/memif/{request}");
        let mounts = vec![Mount { host, container, is_writable: true }];
        Ok(Edits { mounts, ..Edits::default() })
    }

    /// Reports the devices in the status of the claim (KEP-4817). A failure is only logged: the pod
    /// can run.
    fn report(&self, claim: &Claim, devices: &[(&AllocatedDevice, Prepared)]) {
        let reported = devices.iter().filter_map(|(allocated, prepared)| {
            let Prepared::Interface(device) = prepared else { return None };
            let mut reported = json!({
                "driver": DRIVER, "pool": allocated.pool, "device": allocated.device,
            });
            set_network_data(&mut reported, device);
            Some(reported)
        });
        let reported: Vec<Value> = reported.collect();
        if reported.is_empty() {
            return;
        }
        let object = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": claim.name(), "namespace": claim.namespace(), "uid": claim.uid(),
            },
            "status": {"devices": reported},
        });
        if let Err(error) = self.server.apply(&format!("{}/status", claim.path()), &object) {
            tracing::warn!("the status of claim {}: {error}", claim.name());
        }
    }

    /// Takes back what a claim has. Nothing happens if it has nothing.
    fn unprepare(&self, claim: &api::Claim) -> Result<(), String> {
        if !is_name(&claim.uid) {
            return Err("kubelet names a claim by something that is no UID".to_owned());
        }
        for name in self.allocations.of_claim(&claim.uid) {
            self.allocations.release(&name);
        }
        self.files.remove(&claim.uid);
        match fs::remove_dir_all(self.memif_directory.join(&claim.uid)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("the directory of the memif link: {error}"));
            }
            _ => {}
        }
        tracing::info!("claim {}/{} is released", claim.namespace, claim.name);
        Ok(())
    }
}

/// Adds the network data of an interface (KEP-4817) to an object. A PCI device has none.
fn set_network_data(object: &mut Value, device: &Device) {
    if is_pci(&device.interface) {
        return;
    }
    let mut data = json!({"interfaceName": device.interface});
    let link = device.properties.as_ref().and_then(|properties| properties.link.as_ref());
    if let Some(link) = link {
        data["hardwareAddress"] = json!(link.mac);
    }
    object["networkData"] = data;
}

/// Returns the metadata of a device (KEP-5304).
fn metadata(allocated: &AllocatedDevice, prepared: &Prepared) -> Value {
    let mut device = json!({"driver": DRIVER, "pool": allocated.pool, "name": allocated.device});
    if let Prepared::Interface(known) = prepared {
        device["attributes"] = json!({
            "interface": {"string": known.interface},
            "pool": {"string": known.pool},
        });
        if let Some(address) = known.properties.as_ref().and_then(|it| it.pci_address.as_ref()) {
            let address = json!({"string": address});
            device["attributes"]["resource.kubernetes.io/pciBusID"] = address;
        }
        set_network_data(&mut device, known);
    }
    device
}

/// Runs a function for each claim, which may block, and collects the results by UID.
async fn each<T: Send + 'static>(
    claims: Vec<api::Claim>,
    run: impl Fn(&api::Claim) -> T + Send + 'static,
) -> Result<HashMap<String, T>, Status> {
    if claims.len() > MAX_CLAIMS {
        return Err(Status::invalid_argument(format!("more than {MAX_CLAIMS} claims")));
    }
    let run_all = move || claims.into_iter().map(|it| (it.uid.clone(), run(&it))).collect();
    let done = tokio::task::spawn_blocking(run_all).await;
    done.map_err(|error| Status::internal(error.to_string()))
}

#[tonic::async_trait]
impl api::dra_plugin_server::DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<api::NodePrepareResourcesRequest>,
    ) -> Result<Response<api::NodePrepareResourcesResponse>, Status> {
        let driver = self.clone();
        let prepare = move |claim: &api::Claim| match driver.prepare(claim) {
            Ok(devices) => api::NodePrepareResourceResponse { devices, error: String::new() },
            Err(error) => {
                tracing::warn!("claim {}/{}: {error}", claim.namespace, claim.name);
                api::NodePrepareResourceResponse { devices: vec![], error }
            }
        };
        let claims = each(request.into_inner().claims, prepare).await?;
        Ok(Response::new(api::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<api::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<api::NodeUnprepareResourcesResponse>, Status> {
        let driver = self.clone();
        let unprepare = move |claim: &api::Claim| {
            let error = driver.unprepare(claim).err().unwrap_or_default();
            api::NodeUnprepareResourceResponse { error }
        };
        let claims = each(request.into_inner().claims, unprepare).await?;
        Ok(Response::new(api::NodeUnprepareResourcesResponse { claims }))
    }
}
