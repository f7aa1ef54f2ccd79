//! Device plugin v1beta1: one for each pool, registered at kubelet.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::allocations::{Allocation, Allocations, Holder};
use crate::changes::Changes;
use crate::container::Container;
use crate::inventory::{Device, Devices, vfio_nodes};
use crate::preference::choose;
use crate::protocol::device_plugin::{
    self as api, device_plugin_server::DevicePluginServer, registration_client::RegistrationClient,
};
use crate::{DRIVER, unix};

/// Time between two attempts to register.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum length of a request of kubelet in bytes.
const MAX_REQUEST: usize = 1 << 20;

/// Device plugin of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolPlugin {
    pub(crate) pool: String,
    pub(crate) devices: watch::Receiver<Devices>,
    pub(crate) allocations: Arc<Allocations>,
}

impl PoolPlugin {
    /// Serves kubelet; registers again whenever kubelet was restarted. Does not return.
    pub(crate) async fn run(self, directory: PathBuf) {
        let mut reported = String::new();
        loop {
            match self.serve(&directory).await {
                Ok(()) => {
                    reported.clear();
                    tracing::info!("pool `{}`: kubelet was restarted", self.pool);
                }
                Err(error) if error == reported => {}
                Err(error) => {
                    tracing::warn!("pool `{}` is not registered at kubelet: {error}", self.pool);
                    reported = error;
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Registers the pool and serves it until kubelet is restarted.
    async fn serve(&self, directory: &Path) -> Result<(), String> {
        let endpoint = format!("{DRIVER}-{}.sock", self.pool);
        let socket = directory.join(&endpoint);
        let connections = unix::listen(&socket).map_err(|error| error.to_string())?;
        let service = DevicePluginServer::new(self.clone()).max_decoding_message_size(MAX_REQUEST);
        let served = Server::builder().add_service(service).serve_with_incoming(connections);
        let registered = async {
            let mut changes = Changes::of_directory(directory);
            let kubelet = directory.join("kubelet.sock");
            let before = unix::identity(&kubelet);
            self.register(&kubelet, endpoint).await?;
            tracing::info!("pool `{}` is registered as {}", self.pool, self.resource());
            let own = unix::identity(&socket);
            // Kubelet removes all sockets when it starts.
            while unix::identity(&socket) == own && unix::identity(&kubelet) == before {
                changes.next().await;
            }
            Ok(())
        };
        tokio::select! {
            served = served => match served {
                Ok(()) => Err("its socket was closed".to_owned()),
                Err(error) => Err(error.to_string()),
            },
            registered = registered => registered,
        }
    }

    /// Returns the name of the resource in the limits of a container.
    fn resource(&self) -> String {
        format!("{DRIVER}/{}", self.pool)
    }

    async fn register(&self, kubelet: &Path, endpoint: String) -> Result<(), String> {
        let channel = unix::connect(kubelet).await?;
        let request = api::RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint,
            resource_name: self.resource(),
            options: Some(options()),
        };
        let registered = RegistrationClient::new(channel).register(request).await;
        registered.map(drop).map_err(|status| status.message().to_owned())
    }

    /// Returns the devices of the pool.
    fn own(&self) -> Devices {
        let devices = self.devices.borrow();
        devices.iter().filter(|device| device.pool == self.pool).cloned().collect()
    }

    /// Allocates devices, which kubelet names, to a container.
    fn allocate_devices(&self, names: &[String]) -> Result<api::ContainerAllocateResponse, String> {
        let own = self.own();
        let (mut interfaces, mut nodes) = (Vec::new(), BTreeSet::new());
        for name in names {
            let device = own.iter().find(|device| device.name == *name);
            let device = device.ok_or_else(|| {
                format!("pool `{}` has no device `{name}`; see the log of the agent", self.pool)
            })?;
            if !interfaces.contains(&device.interface) {
                interfaces.push(device.interface.clone());
            }
            nodes.extend(vfio_nodes(device)?);
        }
        if interfaces.is_empty() {
            return Err("kubelet names no device".to_owned());
        }
        interfaces.sort();
        let name = allocation_name(&self.pool, &interfaces);
        let container = Container::new(&self.pool, &interfaces);
        let (directory, variables) = (container.directory(), container.variables());
        let (pool, holder) = (self.pool.clone(), Holder::Container { pod: None });
        self.allocations.allocate(&name, Allocation { pool, interfaces, holder })?;
        tracing::info!("allocation `{name}`: {} to a container", names.join(", "));
        let mount = api::Mount {
            container_path: directory,
            host_path: self.allocations.mount(&name).display().to_string(),
            read_only: true,
        };
        let envs: HashMap<String, String> = variables.into_iter().collect();
        let devices = nodes.into_iter().map(device_spec).collect();
        let mounts = vec![mount];
        Ok(api::ContainerAllocateResponse { envs, mounts, devices, ..Default::default() })
    }
}

/// Returns the name of the allocation of some interfaces: the same for the same ones.
fn allocation_name(pool: &str, interfaces: &[String]) -> String {
    // FNV-1a, 64 bit.
    let bytes = interfaces.iter().flat_map(|interface| interface.bytes().chain([b'/']));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{pool}-{hash:016x}")
}

/// Returns a device node for a container, under the path that it has on the node.
fn device_spec(path: PathBuf) -> api::DeviceSpec {
    let path = path.display().to_string();
    api::DeviceSpec { container_path: path.clone(), host_path: path, permissions: "rw".to_owned() }
}

fn options() -> api::DevicePluginOptions {
    api::DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true }
}

/// Returns a device as kubelet sees it.
fn description(device: &Device) -> api::Device {
    let health = if device.trouble.is_none() { "Healthy" } else { "Unhealthy" };
    let node = device.properties.as_ref().and_then(|properties| properties.numa_node);
    let topology = node.map(|node| {
        let nodes = vec![api::NumaNode { id: i64::from(node) }];
        api::TopologyInfo { nodes }
    });
    api::Device { id: device.name.clone(), health: health.to_owned(), topology }
}

/// Lists of devices, one for each change.
type Lists = Pin<Box<dyn Stream<Item = Result<api::ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl api::device_plugin_server::DevicePlugin for PoolPlugin {
    type ListAndWatchStream = Lists;

    async fn get_device_plugin_options(
        &self,
        _: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(options()))
    }

    async fn list_and_watch(&self, _: Request<api::Empty>) -> Result<Response<Lists>, Status> {
        let pool = self.pool.clone();
        let lists = WatchStream::new(self.devices.clone()).map(move |devices| {
            let own = devices.iter().filter(|device| device.pool == pool);
            Ok(api::ListAndWatchResponse { devices: own.map(description).collect() })
        });
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        let own = self.own();
        let node_of = |name: &str| {
            let device = own.iter().find(|device| device.name == name)?;
            device.properties.as_ref()?.numa_node
        };
        let prefer = |container: &api::ContainerPreferredAllocationRequest| {
            let available: Vec<&str> =
                container.available_device_i_ds.iter().map(String::as_str).collect();
            let required: Vec<&str> =
                container.must_include_device_i_ds.iter().map(String::as_str).collect();
            let count = usize::try_from(container.allocation_size).unwrap_or(0);
            let chosen = choose(&available, &required, count, node_of);
            let device_i_ds = chosen.into_iter().map(str::to_owned).collect();
            api::ContainerPreferredAllocationResponse { device_i_ds }
        };
        let container_responses = request.get_ref().container_requests.iter().map(prefer).collect();
        Ok(Response::new(api::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let plugin = self.clone();
        let requests = request.into_inner().container_requests;
        let allocate = move || -> Result<Vec<_>, String> {
            requests.iter().map(|it| plugin.allocate_devices(&it.devices_ids)).collect()
        };
        let done = tokio::task::spawn_blocking(allocate).await;
        let done = done.map_err(|error| Status::internal(error.to_string()))?;
        let container_responses = done.map_err(|reason| {
            tracing::warn!("pool `{}`: an allocation fails: {reason}", self.pool);
            Status::failed_precondition(reason)
        })?;
        Ok(Response::new(api::AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        Ok(Response::new(api::PreStartContainerResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_has_the_same_name_again_and_no_other_one() {
        let name = |interfaces: &[&str]| {
            let interfaces: Vec<String> = interfaces.iter().map(|it| (*it).to_owned()).collect();
            allocation_name("upf", &interfaces)
        };
        assert_eq!(name(&["eth1"]), name(&["eth1"]));
        assert_ne!(name(&["eth1"]), name(&["eth2"]));
        assert_ne!(name(&["a", "b"]), name(&["ab"]));
        assert!(name(&["eth1"]).starts_with("upf-"));
    }

    #[test]
    fn kubelet_sees_health_and_numa_node() {
        let properties = crate::inventory::Properties { numa_node: Some(1), ..Default::default() };
        let mut device = Device {
            pool: "upf".to_owned(),
            interface: "eth1".to_owned(),
            name: "eth1".to_owned(),
            properties: Some(properties),
            trouble: None,
        };
        let seen = description(&device);
        assert_eq!((seen.id.as_str(), seen.health.as_str()), ("eth1", "Healthy"));
        assert_eq!(seen.topology.unwrap().nodes[0].id, 1);
        device.trouble = Some("it has no carrier".to_owned());
        device.properties = None;
        let seen = description(&device);
        assert_eq!((seen.health.as_str(), seen.topology), ("Unhealthy", None));
    }
}
