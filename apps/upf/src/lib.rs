//! A 5G User Plane Function whose fast path runs on any packet I/O mechanism and whose slow path
//! stays on Linux.
//!
//! The modules, from the bottom to the top: [`session`] has the rules of a PFCP session as the
//! control plane means them, [`config`] the configuration, [`rules`] what the user plane reads,
//! [`datapath`] the application on the lanes, [`transactions`] the PFCP transactions, [`store`] the
//! sessions that outlive the process, [`alloc`] the allocation of SEIDs, TEIDs and UE addresses,
//! [`usage`] usage reporting, [`pfcp`] the PFCP server, [`api`] what operators see, [`supervisor`]
//! the command line and the processes.

#![forbid(unsafe_code)]

pub mod alloc;
pub mod api;
pub mod config;
pub mod datapath;
#[cfg(test)]
mod failpoint;
pub mod pfcp;
pub mod rules;
pub mod session;
pub mod store;
pub mod supervisor;
pub mod time;
pub mod transactions;
pub mod usage;
