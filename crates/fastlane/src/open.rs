//! Opening of ports: turns a resolved configuration into queues and assigns them to lanes.
//!
//! Each driver has a module with free functions that take the [`OpenContext`]. The result is
//! [`OpenPorts`].

mod af_packet;
mod af_xdp;
mod agent_lanes;
mod context;
mod devices;
mod dpdk;
mod dpdk_environment;
mod exchange;
#[cfg(test)]
pub(crate) mod fake_steering;
mod kernel_path;
mod kernel_peer;
mod lane_filter;
mod link_state;
mod local;
mod memif;
mod port_device;
mod port_handover;
mod port_reentry;
mod port_tap;
mod preflight;
mod reopen;
mod reopened;
mod tap;
mod vlan;

use std::sync::Arc;

use crate::agent::{AgentClient, Interfaces};
use crate::config::plan::Plan;
use crate::config::raw::Driver;
use crate::{Error, privileges};

use context::{Hardware, OpenContext};
pub(crate) use context::{OpenPorts, warn_of_missing_queues};
pub(crate) use devices::Devices;
pub(crate) use exchange::{LaneExchanges, connect};
pub(crate) use port_handover::{InheritedPorts, PortHandover, PortManifest};
pub(crate) use preflight::examine;
pub(crate) use reopen::{open_beside, reopen};
pub(crate) use reopened::{LaneMemory, Reopened, ReopenedDevice};

/// Opens all ports of `plan`. Inherited ports are taken over; if that fails, `discard` makes those
/// who hold their descriptors close them, and all ports are opened anew.
///
/// # Errors
/// Returns the error of the first port that fails; all ports opened before it are closed.
pub(crate) fn open(
    plan: &Plan,
    inherited: Option<InheritedPorts>,
    discard: impl FnOnce(),
) -> Result<OpenPorts, Error> {
    let Some(mut inherited) = inherited else { return open_ports(plan, None, agent_of(plan)?) };
    let drivers = inherited.drivers();
    let agent = match inherited.agent(&plan.raw.agent_socket()) {
        None => agent_of(plan)?,
        some => some,
    };
    match open_ports(plan, Some(inherited), agent) {
        Ok(opened) => {
            if let Some(drivers) = drivers {
                tracing::info!("the ports on {drivers} are taken over from the previous process");
            }
            Ok(opened)
        }
        Err(error) => {
            tracing::warn!("the inherited ports are closed and reopened: {error}");
            discard();
            open_ports(plan, None, agent_of(plan)?)
        }
    }
}

/// Connects to the agent if the ports are opened through it.
fn agent_of(plan: &Plan) -> Result<Option<Arc<AgentClient>>, Error> {
    let agent = privileges::agent(plan)?;
    if agent.is_some() {
        tracing::info!("the agent at {} opens the ports", plan.raw.agent_socket().display());
    }
    Ok(agent)
}

/// Opens all ports, after all were examined. Those on AF_XDP and TAP are taken over from
/// `inherited` if it is given.
fn open_ports(
    plan: &Plan,
    inherited: Option<InheritedPorts>,
    agent: Option<Arc<AgentClient>>,
) -> Result<OpenPorts, Error> {
    let interfaces = Interfaces::of(agent.as_ref());
    plan.ports.iter().try_for_each(|port| examine(plan, port, &interfaces).map(drop))?;
    let mut context = OpenContext::new(plan, inherited)?;
    (context.devices.agent, context.devices.interfaces) = (agent, interfaces);
    for port in &plan.ports {
        match &port.driver {
            Driver::AfXdp(raw) => af_xdp::attach(&mut context, port, raw)?,
            Driver::AfPacket(raw) => af_packet::open(&mut context, port, raw)?,
            Driver::Tap(raw) => tap::open(&mut context, port, raw)?,
            Driver::Udp(raw) => local::open_udp(&mut context, port, raw)?,
            Driver::Pcap(raw) => local::open_pcap(&mut context, port, raw)?,
            Driver::Dpdk(raw) => dpdk::open(&mut context, port, raw)?,
            Driver::Memif(raw) => memif::open(&mut context, port, raw)?,
            Driver::Memory(raw) => local::open_memory(&mut context, port, raw)?,
            Driver::Ring(raw) => local::open_ring(&mut context, port, raw)?,
            Driver::Vlan(_) => continue, // once the queues of all ports are known
        }
        kernel_path::open_tap(&mut context, port)?;
    }
    // The AF_XDP sockets of a lane share its pool, so they are opened together, once all devices
    // have their steering programs.
    af_xdp::open_sockets(&mut context)?;
    vlan::open(&mut context)?;
    context.finish()
}
