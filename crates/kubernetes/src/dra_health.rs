//! Health of devices, which kubelet reports in the status of pods.

use std::pin::Pin;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio_stream::wrappers::{IntervalStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::inventory::{Device, Devices};
use crate::protocol::dra_health as api;

/// Time after which kubelet takes the health of a device as unknown, in seconds.
const VALID: i64 = 90;
/// Time after which unchanged health is reported again.
const PERIOD: Duration = Duration::from_secs(30);

/// Health of the devices of a node.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    pub(crate) node: String,
    pub(crate) devices: watch::Receiver<Devices>,
}

/// Reports, one for each change and each period.
type Reports = Pin<Box<dyn Stream<Item = Result<api::NodeWatchResourcesResponse, Status>> + Send>>;

#[tonic::async_trait]
impl api::dra_resource_health_server::DraResourceHealth for Health {
    type NodeWatchResourcesStream = Reports;

    async fn node_watch_resources(
        &self,
        _: Request<api::NodeWatchResourcesRequest>,
    ) -> Result<Response<Reports>, Status> {
        let (node, devices) = (self.node.clone(), self.devices.clone());
        let period = tokio::time::interval(PERIOD);
        let again = IntervalStream::new(period).map(|_| ());
        let changes = WatchStream::new(self.devices.clone()).map(|_| ());
        let reports = changes.merge(again).map(move |()| {
            let devices = devices.borrow();
            let reports = devices.iter().map(|device| report(&node, device));
            Ok(api::NodeWatchResourcesResponse { devices: reports.collect() })
        });
        Ok(Response::new(Box::pin(reports)))
    }
}

fn report(node: &str, device: &Device) -> api::DeviceHealth {
    let health = match device.trouble {
        None => api::HealthStatus::Healthy,
        Some(_) => api::HealthStatus::Unhealthy,
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (pool_name, device_name) = (node.to_owned(), device.name.clone());
    api::DeviceHealth {
        device: Some(api::DeviceIdentifier { pool_name, device_name }),
        health: health.into(),
        last_updated_time: i64::try_from(now.as_secs()).unwrap_or(0),
        health_check_timeout_seconds: VALID,
        message: device.trouble.clone().unwrap_or_default(),
    }
}
