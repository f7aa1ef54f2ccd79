//! HTTP API for operators, with metrics, on a thread of its own.
//!
//! The control plane process has one thread, and only it accesses sessions. Each request therefore
//! becomes a [`PendingQuery`] in a short queue. The control plane's loop answers it between
//! datagrams by [`answer`]; if the queue is full the request is refused (503). Every reply is
//! bounded.
//!
//! ```text
//! HTTP ─► server (thread `api`) ── Query, eventfd ──► control plane loop: answer(question, node)
//!                               ◄── oneshot ─────────
//! ```

pub(crate) mod backend;
pub mod client;
pub mod drain_client;
mod drain_control;
mod listener;
mod metrics;
mod query;
mod rate_sampler;
mod refusal;
pub mod reload_client;
mod reload_control;
mod server;
mod slice_counts;
pub mod top_client;
pub mod view;

pub use metrics::Snapshot;
pub use query::{PendingQuery, Query, QueryReceiver, Reply, answer};
pub use server::{Api, ApiError, serve};
pub use view::{NodeView, RouteSource, TraceSubject};

#[cfg(test)]
mod tests;
