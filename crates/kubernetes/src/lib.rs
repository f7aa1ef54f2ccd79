//! The agent's front doors to Kubernetes: they give the pools of a node to its pods.
//!
//! A pod that asks for `fastlane.dev/POOL` gets a directory with a socket of the agent. Which pod
//! gets which interface is in one table; two interfaces of kubelet lead to it:
//!
//! * `device_plugin`: the device plugin v1beta1, which every cluster has.
//! * `dra`: dynamic resource allocation (`resource.k8s.io/v1`). `resource_slice` publishes the
//!   devices, `plugin_watcher` registers the driver, `claim` reads claims, `cdi` tells container
//!   runtimes about them.
//!
//! Both use these:
//!
//! * `inventory`: the interfaces of the node, their properties and their health.
//! * `allocations`: the table. Each entry is a [grant](fastlane_agent::Grant) of the agent, and
//!   outlives kubelet and the agent.
//! * `pod`: the pod of a process that connects.
//! * `changes`: changes of interfaces and directories, which nothing polls.
//!
//! Requests of kubelet and texts about processes are bounded before they are parsed.

#![forbid(unsafe_code)]

mod allocations;
mod api_server;
mod cdi;
mod changes;
mod claim;
mod container;
mod device_plugin;
mod dra;
mod dra_health;
mod error;
mod inventory;
mod plugin_watcher;
mod pod;
mod preference;
mod protocol;
mod resource_slice;
mod service;
mod unix;

pub use error::Error;
pub use service::run;

/// Name of the driver, and prefix of its resources.
pub const DRIVER: &str = "fastlane.dev";
