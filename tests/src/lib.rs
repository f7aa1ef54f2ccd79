//! Shared support of the stories: two hosts joined by a veth pair, programs, their output.
//!
//! * [`Lab`]: two network namespaces, `left` and `right`, an interface `wire0` in each. They are
//!   held by a file descriptor only, so nothing is left behind when a test ends.
//! * [`Process`]: a program in one of them. Dropping it kills the program; its output is recorded.
//! * [`Agent`]: the agent, for applications that have no privilege; [`GrantingAgent`]: one that
//!   takes grants.
//! * [`Cluster`]: a Kubernetes cluster of one node.
//! * [`Application`]: a Fastlane application with its configuration and session, and its
//!   [`Totals`].
//! * [`Vlan`]: a VLAN interface of a host.
//! * [`Guest`]: an emulated machine with [`Nic`]s, in which a story runs.

#![forbid(unsafe_code)]

mod agent;
mod application;
pub mod cluster;
mod drop_flag;
mod echo;
mod generator;
mod granting_agent;
mod guest;
mod host;
mod http;
mod lab;
mod mechanism;
mod nic;
mod pcap;
mod ping;
mod process;
mod programs;
pub mod routed;
mod totals;
pub mod upf;
mod vlan_interface;

pub use agent::{Agent, NOBODY, Pins, assert_unprivileged, unprivileged};
pub use application::Application;
pub use cluster::{Cluster, IMAGE, POD_USER, UPDATED_IMAGE};
pub use drop_flag::DropFlag;
pub use echo::{Echo, mac};
pub use generator::{Generator, Report, measure};
pub use granting_agent::{GrantingAgent, pool_of};
pub use guest::{Guest, Kernel};
pub use host::Host;
pub use http::{Page, serve};
pub use lab::{LEFT, LEFT_MAC, Lab, RIGHT, RIGHT_MAC};
pub use mechanism::{Mechanism, eventually, uninterrupted};
pub use nic::{Nic, Side, load_modules};
pub use pcap::capture;
pub use ping::assert_responses;
pub use process::{Ended, PATIENCE, Process};
pub use programs::{binary, build_as_release, repository, test_program};
pub use totals::Totals;
pub use vlan_interface::Vlan;
