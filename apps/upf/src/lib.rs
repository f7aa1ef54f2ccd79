//! A 5G User Plane Function whose fast path runs on any packet I/O mechanism and whose slow path
//! stays on Linux.
//!
//! The folders are in the order of the data: [`session`] has the rules of a PFCP session as the
//! control plane means them, [`pfcp`] the PFCP server, [`usage`] usage reporting, [`alloc`] the
//! allocation of SEIDs, TEIDs and UE addresses, [`store`] the sessions that outlive the process,
//! [`rules`] what the user plane reads, [`datapath`] the application on the lanes. [`api`] is what
//! operators see, [`config`] the configuration, [`supervisor`] the command line and the processes.

#![forbid(unsafe_code)]

pub mod alloc;
pub mod api;
pub mod config;
pub mod datapath;
pub mod pfcp;
pub mod rules;
pub mod session;
pub mod store;
pub mod supervisor;
pub mod time;
pub mod usage;
