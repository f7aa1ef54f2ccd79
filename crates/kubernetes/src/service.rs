//! The agent with its front doors, as a program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastlane_agent::{Agent, Configuration, KubernetesApi, KubernetesSettings, PoolSettings};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tonic::transport::Server;

use crate::allocations::{Allocations, Claims};
use crate::api_server::ApiServer;
use crate::cdi::Files;
use crate::changes::Changes;
use crate::device_plugin::PoolPlugin;
use crate::dra::Driver;
use crate::dra_health::Health;
use crate::inventory::Devices;
use crate::plugin_watcher::Registration;
use crate::protocol::dra::dra_plugin_server::DraPluginServer;
use crate::protocol::dra_health::dra_resource_health_server::DraResourceHealthServer;
use crate::resource_slice::{Publisher, withdraw};
use crate::{DRIVER, Error, inventory, unix};

/// Variable with the name of the node.
const NODE_NAME: &str = "NODE_NAME";
/// Time between two attempts to ask the API server.
const RETRY: Duration = Duration::from_secs(2);
/// Maximum length of a request of kubelet in bytes.
const MAX_REQUEST: usize = 1 << 20;

/// Runs the agent and gives the pools of the section `kubernetes` to pods, until SIGINT or SIGTERM.
/// Allocations stay, and the traffic of pods goes on.
///
/// # Errors
/// Returns an error if the start fails.
pub fn run(configuration: Configuration) -> Result<(), Error> {
    let settings = configuration.kubernetes.clone().ok_or(Error::NoSection)?;
    let server = ApiServer::of_pod().map_err(Error::ApiServer)?.map(Arc::new);
    let agent = Agent::start(configuration)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(agent, settings, server))
}

async fn serve(
    agent: Agent,
    settings: KubernetesSettings,
    server: Option<Arc<ApiServer>>,
) -> Result<(), Error> {
    let mut signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let directory = settings.kubelet.join("plugins").join(DRIVER);
    let (pools, path) = (settings.pools.clone(), directory.clone());
    let claims = server.clone().map(|server| server as Arc<dyn Claims>);
    // First of all: applications of an agent that has ended come back within seconds.
    let table = Allocations::open(agent, pools.clone(), path.clone(), claims);
    let allocations = Arc::new(table.map_err(|error| Error::Table { path, error })?);
    // What changes while they are read is seen afterwards.
    let changes = Changes::of_interfaces();
    let (sender, devices) = watch::channel(inventory::read(&pools));
    let front = FrontDoor { settings, directory, allocations, devices };
    tokio::spawn(inventory::watch(pools, sender, changes));
    let open = async {
        match front.chosen(server.as_ref()).await? {
            None => front.open_device_plugin(server),
            Some(node) => front.open_dra(node, server.ok_or(Error::NoApiServer)?)?,
        }
        std::future::pending().await
    };
    tokio::select! {
        failed = open => failed,
        _ = signals.0.recv() => Ok(()),
        _ = signals.1.recv() => Ok(()),
    }
}

/// Removes a slice of an agent that served the node by DRA before.
fn withdraw_slice(server: &ApiServer) {
    let Ok(node) = std::env::var(NODE_NAME) else { return };
    if let Err(error) = withdraw(server, &node) {
        tracing::debug!("no slice is removed: {error}");
    }
}

/// State that both front doors need.
struct FrontDoor {
    settings: KubernetesSettings,
    /// Directory of this driver in that of kubelet.
    directory: PathBuf,
    allocations: Arc<Allocations>,
    devices: watch::Receiver<Devices>,
}

impl FrontDoor {
    /// Returns the name of the node if it is served by DRA, `None` if by the device plugin. If that
    /// is for the API server to say, waits until it can be asked: a node must not change its
    /// interface because of an outage.
    async fn chosen(&self, server: Option<&Arc<ApiServer>>) -> Result<Option<String>, Error> {
        let dra = match self.settings.api {
            KubernetesApi::DevicePlugin => false,
            KubernetesApi::Dra => true,
            KubernetesApi::Auto => self.is_served_by_dra(server).await,
        };
        match (dra, std::env::var(NODE_NAME)) {
            (false, _) => Ok(None),
            (true, Ok(node)) => Ok(Some(node)),
            (true, Err(_)) => Err(Error::NoNode { variable: NODE_NAME }),
        }
    }

    async fn is_served_by_dra(&self, server: Option<&Arc<ApiServer>>) -> bool {
        let Some(server) = server else {
            tracing::info!("pods get the pools by device plugin: there is no service account");
            return false;
        };
        let mut reported = String::new();
        loop {
            let (server, pools) = (Arc::clone(server), self.settings.pools.clone());
            let asked = tokio::task::spawn_blocking(move || missing_class(&server, &pools)).await;
            match asked.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(None) => {
                    tracing::info!("pods get the pools by DRA");
                    return true;
                }
                Ok(Some(reason)) => {
                    tracing::info!("pods get the pools by device plugin: {reason}");
                    return false;
                }
                Err(error) if error == reported => {}
                Err(error) => {
                    tracing::warn!("no pod gets a pool before the API server responds: {error}");
                    reported = error;
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Opens the device plugin of each pool. A slice that the node had by DRA is removed.
    fn open_device_plugin(&self, server: Option<Arc<ApiServer>>) {
        if let Some(server) = server {
            tokio::task::spawn_blocking(move || withdraw_slice(&server));
        }
        for pool in self.settings.pools.keys() {
            let (pool, devices) = (pool.clone(), self.devices.clone());
            let plugin = PoolPlugin { pool, devices, allocations: Arc::clone(&self.allocations) };
            tokio::spawn(plugin.run(self.settings.kubelet.join("device-plugins")));
        }
    }

    fn open_dra(&self, node: String, server: Arc<ApiServer>) -> Result<(), Error> {
        let socket = self.directory.join("dra.sock");
        let connections = unix::listen(&socket)?;
        let kubelet = Arc::new(Notify::new());
        let driver = Driver {
            node: node.clone(),
            server: Arc::clone(&server),
            devices: self.devices.clone(),
            memif_links: self.settings.memif_links,
            allocations: Arc::clone(&self.allocations),
            files: Files {
                cdi: self.settings.cdi.clone(),
                metadata: self.directory.join("metadata"),
            },
            memif_directory: self.directory.join("memif"),
        };
        let health = Health { node: node.clone(), devices: self.devices.clone() };
        let router = Server::builder()
            .add_service(DraPluginServer::new(driver).max_decoding_message_size(MAX_REQUEST))
            .add_service(DraResourceHealthServer::new(health));
        tokio::spawn(router.serve_with_incoming(connections));
        let endpoint = socket.display().to_string();
        let registration = Registration { endpoint, kubelet: Arc::clone(&kubelet) };
        let registry = self.settings.kubelet.join("plugins_registry");
        tokio::spawn(register(registration, registry));
        let (memif_links, devices) = (self.settings.memif_links, self.devices.clone());
        tokio::spawn(Publisher { server, node, memif_links, devices, kubelet }.run());
        Ok(())
    }
}

async fn register(registration: Registration, directory: PathBuf) {
    if let Err(error) = registration.run(Path::new(&directory)).await {
        tracing::error!("kubelet does not find the driver: {error}");
    }
}

/// Returns why the cluster does not serve the limits of all pools by DRA, or `None` if it does.
///
/// # Errors
/// The API server cannot be asked.
fn missing_class(
    server: &ApiServer,
    pools: &BTreeMap<String, PoolSettings>,
) -> Result<Option<String>, String> {
    for pool in pools.keys() {
        let path = format!("/apis/resource.k8s.io/v1/deviceclasses/{pool}.{DRIVER}");
        let Some(class) = server.get(&path)? else {
            return Ok(Some(format!("there is no DeviceClass {pool}.{DRIVER}")));
        };
        if class["spec"]["extendedResourceName"] != format!("{DRIVER}/{pool}") {
            let reason = format!("DeviceClass {pool}.{DRIVER} has no `extendedResourceName`");
            return Ok(Some(reason));
        }
    }
    Ok(None)
}
