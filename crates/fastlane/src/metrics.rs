//! The metrics: an HTTP endpoint that renders the counters for Prometheus.
//!
//! It answers `GET /metrics` in the OpenMetrics text format. The counters are read when they are
//! asked for, on the endpoint's own thread: the lanes do nothing for it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fastlane_table::counters::Counters;
use prometheus_client::registry::Registry;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::describe::Application;

mod collector;
mod http;

use collector::Collector;

/// The type of what `/metrics` gives (OpenMetrics 1.0, section 4.1).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// The address cannot be listened on.
    #[error("metrics {address}: cannot listen there: {source}; choose another address")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// A resource of the endpoint could not be made.
    #[error("metrics {address}: {what}: {source}")]
    Start {
        /// The address asked for.
        address: SocketAddr,
        /// What was being made.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The metrics endpoint of this application, on a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Serves the counters of this process on `address`; port 0 lets the kernel choose one. Whoever
    /// can reach the address can read them: there is no authentication, so loopback is the wise
    /// choice.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn serve(
        address: SocketAddr,
        application: &Application,
        counters: &Counters,
    ) -> Result<Self, MetricsError> {
        Self::serve_with(address, application, counters, vec![])
    }

    /// As [`serve`](Self::serve), with more than the counters.
    pub(crate) fn serve_with(
        address: SocketAddr,
        application: &Application,
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
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(io::Error::from).map_err(failed("no event descriptor"))?);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Collector::new(application, counters)));
        more.into_iter().for_each(|collector| registry.register_collector(collector));
        let endpoint = Endpoint { listener, wake: Arc::clone(&wake), registry };
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let thread = thread.spawn(move || endpoint.run()).map_err(failed("no thread"))?;
        Ok(Self { address: local, wake, thread: Some(thread) })
    }

    /// Where the metrics are served.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Endpoint {
    listener: TcpListener,
    wake: Arc<OwnedFd>,
    registry: Registry,
}

impl Endpoint {
    /// Serves one client after the other until the endpoint is dropped. A client has a second.
    fn run(&self) {
        while self.wait() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // A client that goes away or is too slow gets no answer; nobody else is
                    // concerned.
                    let _ = http::Exchange::new(stream, &self.wake).run(|path| self.page(path));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Out of descriptors, most likely: try again later, but do not spin meanwhile.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Waits for a client; false when the endpoint shall end.
    fn wait(&self) -> bool {
        let wake = PollFd::new(&*self.wake, PollFlags::IN);
        let mut events = [wake, PollFd::new(&self.listener, PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) => events[0].revents().is_empty(),
            Err(error) => error == rustix::io::Errno::INTR,
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
