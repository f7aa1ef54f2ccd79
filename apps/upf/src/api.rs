//! What operators see: an HTTP API and metrics, on a thread of its own.
//!
//! The slow half is one thread, and sessions are its alone. So each request becomes a [`Query`] in
//! a short queue, which the loop of the slow half answers between datagrams by [`answer`]; when the
//! queue is full the request is refused (503). Every answer is bounded.
//!
//! ```text
//! HTTP ─► server (thread `api`) ── Query, bell ──► loop of the slow half: answer(question, facts)
//!                               ◄── oneshot ──────
//! ```

pub(crate) mod backend;
mod bounded;
pub mod client;
mod explain;
mod facts;
mod metrics;
mod openapi;
mod query;
mod server;
pub mod view;

pub use facts::{Facts, Leading, answer};
pub use metrics::Numbers;
pub use query::{Answer, Inbox, Query, Question, Who};
pub use server::{Api, ApiError, serve};

#[cfg(test)]
mod tests;
