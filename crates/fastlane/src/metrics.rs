//! Metrics: an HTTP endpoint that renders the counters for Prometheus.
//!
//! It replies to `GET /metrics` in the OpenMetrics text format. Counters are read at each scrape on
//! the endpoint's own thread; the lanes do no work for it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fastlane_table::Doorbell;
use fastlane_table::counters::Counters;
use prometheus_client::registry::Registry;
use rustix::event::{PollFd, PollFlags, poll};

use crate::describe::{Application, Description};

mod application_metrics;
mod collector;
mod http;
mod outcome_metrics;

pub use application_metrics::{ApplicationMetric, MetricKind, MetricSample};
pub(crate) use application_metrics::{ApplicationMetrics, MetricSource};
use collector::Collector;
pub use outcome_metrics::OutcomeCounts;
pub(crate) use outcome_metrics::{OutcomeMetrics, OutcomeSource, Outcomes};

/// Media type of `/metrics` (OpenMetrics 1.0, section 4.1).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Error of starting the metrics endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// The address cannot be bound.
    #[error("metrics {address}: cannot listen there: {source}; choose another address")]
    Bind {
        /// Requested address.
        address: SocketAddr,
        /// Error of the system call.
        source: io::Error,
    },
    /// A resource of the endpoint could not be created.
    #[error("metrics {address}: {what}: {source}")]
    Start {
        /// Requested address.
        address: SocketAddr,
        /// Resource that failed.
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

/// Metrics endpoint of this application. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    wake: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Serves the counters of this process on `address`; port 0 lets the kernel select one. There
    /// is no authentication, so prefer a loopback address.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    pub fn serve(
        address: SocketAddr,
        application: &Application,
        counters: &Counters,
    ) -> Result<Self, MetricsError> {
        Self::serve_with(address, Description::new(application.clone()), counters, vec![])
    }

    /// Serves the counters and further collectors.
    pub(crate) fn serve_with(
        address: SocketAddr,
        description: Description,
        counters: &Counters,
        more: Vec<Box<dyn prometheus_client::collector::Collector>>,
    ) -> Result<Self, MetricsError> {
        let failed = |what| move |source| MetricsError::Start { address, what, source };
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        };
        let (local, listener) = bind().map_err(|source| MetricsError::Bind { address, source })?;
        let wake = Arc::new(Doorbell::create().map_err(failed("no event descriptor"))?);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Collector::new(description, counters)));
        more.into_iter().for_each(|collector| registry.register_collector(collector));
        let endpoint = Endpoint { listener, wake: Arc::clone(&wake), registry };
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let thread = thread.spawn(move || endpoint.run()).map_err(failed("no thread"))?;
        Ok(Self { address: local, wake, thread: Some(thread) })
    }

    /// Returns the bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.wake.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Endpoint {
    listener: TcpListener,
    wake: Arc<Doorbell>,
    registry: Registry,
}

impl Endpoint {
    /// Serves one client after the other until the endpoint is dropped. Each has one second.
    fn run(&self) {
        while self.wait() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // A client that disconnects or is too slow gets no reply.
                    let _ = http::Exchange::new(stream, &self.wake).run(|path| self.page(path));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Most likely EMFILE: try again later without spinning.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Waits for a client. Returns false if the endpoint ends.
    fn wait(&self) -> bool {
        let wake = PollFd::new(&*self.wake, PollFlags::IN);
        let mut events = [wake, PollFd::new(&self.listener, PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) => events[0].revents().is_empty(),
            Err(rustix::io::Errno::INTR) => true,
            Err(error) => {
                tracing::error!("the endpoint of the metrics ends: {error}; restart to have it");
                false
            }
        }
    }

    fn page(&self, path: &str) -> Option<http::Page> {
        if path != "/metrics" {
            return None;
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).ok()?;
        Some(http::Page { kind: OPEN_METRICS, text })
    }
}

#[cfg(test)]
mod tests;
