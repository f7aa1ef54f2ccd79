//! Registration of the DRA driver at kubelet, which watches a directory for sockets of drivers.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::protocol::plugin_registration::{self as api, registration_server::RegistrationServer};
use crate::{DRIVER, unix};

/// Registration of the driver.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// Path of the driver's socket.
    pub(crate) endpoint: String,
    /// Told when kubelet asks, which it does after each of its starts.
    pub(crate) kubelet: Arc<Notify>,
}

impl Registration {
    /// Offers the driver in the directory that kubelet watches. Returns only on an error.
    pub(crate) async fn run(self, directory: &Path) -> Result<(), String> {
        // Kubelet sends the percent-encoded path of the socket as the name of the server, which is
        // no valid one (RFC 9113, 8.3.1), and the connection would be refused. With an `@` the path
        // becomes the user of a name, in which `%` is valid.
        let socket = directory.join(format!("{DRIVER}@registration.sock"));
        let connections = unix::listen(&socket).map_err(|error| error.to_string())?;
        let service = RegistrationServer::new(self);
        let served = Server::builder().add_service(service).serve_with_incoming(connections).await;
        served.map_err(|error| error.to_string())
    }
}

#[tonic::async_trait]
impl api::registration_server::Registration for Registration {
    async fn get_info(
        &self,
        _: Request<api::InfoRequest>,
    ) -> Result<Response<api::PluginInfo>, Status> {
        self.kubelet.notify_one();
        let versions = ["v1.DRAPlugin", "v1.DRAResourceHealth"];
        Ok(Response::new(api::PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: versions.map(str::to_owned).to_vec(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<api::RegistrationStatus>,
    ) -> Result<Response<api::RegistrationStatusResponse>, Status> {
        match request.into_inner() {
            status if status.plugin_registered => {
                tracing::info!("the driver {DRIVER} is registered at kubelet");
            }
            status => tracing::warn!("kubelet refuses the driver {DRIVER}: {}", status.error),
        }
        Ok(Response::new(api::RegistrationStatusResponse {}))
    }
}
