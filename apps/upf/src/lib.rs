//! A 5G User Plane Function whose fast path runs on any packet I/O mechanism and whose slow path
//! stays on Linux.
//!
//! The modules, from the bottom to the top: [`session`] has the rules of a PFCP session as the
//! control plane means them, [`config`] the configuration, [`rules`] what the user plane reads,
//! [`datapath`] the application on the lanes, [`transactions`] the PFCP transactions, [`store`] the
//! sessions that outlive the process, [`alloc`] the allocation of SEIDs, TEIDs and UE addresses,
//! [`usage`] usage reporting, [`pfcp`] the PFCP server, [`export`] the stream of usage records,
//! [`api`] what operators see, [`capture`] the capture of a session, [`supervisor`] the command
//! line and the processes. Without the feature `control-plane` there are only the model, the rules
//! and the datapath.

#![forbid(unsafe_code)]
// Sessions are read from PFCP by functions that only the control plane calls.
#![cfg_attr(not(feature = "control-plane"), allow(dead_code))]

#[cfg(feature = "control-plane")]
pub mod alloc;
#[cfg(feature = "control-plane")]
pub mod api;
#[cfg(feature = "control-plane")]
pub mod capture;
pub mod config;
pub mod datapath;
#[cfg(feature = "control-plane")]
pub mod export;
#[cfg(feature = "control-plane")]
pub mod pfcp;
pub mod rules;
pub mod session;
#[cfg(feature = "control-plane")]
pub mod store;
#[cfg(feature = "control-plane")]
pub mod supervisor;
#[cfg(test)]
mod tests;
pub mod time;
#[cfg(feature = "control-plane")]
pub mod transactions;
#[cfg(feature = "control-plane")]
pub mod usage;
