//! Privileges: which ports need capabilities, and whether this process or the agent uses them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use fastlane_kernel::PciDevice;
use rustix::thread::CapabilitySet;

use crate::Error;
use crate::agent::AgentClient;
use crate::config::plan::{KernelPlan, Plan, PortPlan};
use crate::config::raw::{Driver, Privileges};

/// Capability that opening a port needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Capability {
    NetAdmin,
    NetRaw,
    Bpf,
    Perfmon,
}

impl Capability {
    /// Returns the capabilities of which one suffices.
    fn sets(self) -> CapabilitySet {
        // CAP_BPF and CAP_PERFMON were parts of CAP_SYS_ADMIN (capabilities(7)).
        match self {
            Self::NetAdmin => CapabilitySet::NET_ADMIN,
            Self::NetRaw => CapabilitySet::NET_RAW,
            Self::Bpf => CapabilitySet::BPF | CapabilitySet::SYS_ADMIN,
            Self::Perfmon => CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
        })
    }
}

/// Returns the capabilities that a port needs.
fn needs(port: &PortPlan) -> &'static [Capability] {
    use Capability::{Bpf, NetAdmin, NetRaw, Perfmon};
    match &port.driver {
        Driver::AfXdp(_) | Driver::AfPacket(_) => &[NetAdmin, NetRaw, Bpf, Perfmon],
        Driver::Tap(_) => &[NetAdmin],
        _ if matches!(port.kernel, KernelPlan::Tap(_)) => &[NetAdmin],
        _ => &[],
    }
}

/// Returns the address of the PCI device of a port.
fn pci_address(port: &PortPlan) -> Option<&str> {
    let Driver::Dpdk(driver) = &port.driver else { return None };
    // Arguments of the driver may follow it.
    driver.device.as_deref()?.split(',').next()
}

/// Returns the device node by which VFIO gives the device of a port to a process, if this one may
/// not open it.
fn closed_node(port: &PortPlan) -> Option<PathBuf> {
    let device = PciDevice::at(pci_address(port)?)?;
    let node = device.vfio_node().filter(|_| device.is_of_vfio())?;
    let rights = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    rustix::fs::access(&node, rights).is_err().then_some(node)
}

/// Returns the address of the PCI device of a port whose node the agent opens to this process.
pub(crate) fn vfio_of_agent<'a>(plan: &Plan, port: &'a PortPlan) -> Option<&'a str> {
    let address = pci_address(port)?;
    let is_wanted = match plan.raw.privileges {
        Privileges::Own => false,
        Privileges::Auto => closed_node(port).is_some(),
        Privileges::Agent => true,
    };
    is_wanted.then_some(address)
}

/// Returns the connection to the agent if the ports are opened through it, `None` if this process
/// opens them itself.
///
/// # Errors
/// Names the first port for which capabilities are missing, or the agent that cannot be reached.
pub(crate) fn agent(plan: &Plan) -> Result<Option<Arc<AgentClient>>, Error> {
    let concerns_agent =
        |port: &&PortPlan| !needs(port).is_empty() || vfio_of_agent(plan, port).is_some();
    let Some(port) = plan.ports.iter().find(concerns_agent) else { return Ok(None) };
    let is_auto = match plan.raw.privileges {
        Privileges::Own => return Ok(None),
        Privileges::Auto => true,
        Privileges::Agent => false,
    };
    let effective = rustix::thread::capabilities(None).map(|sets| sets.effective);
    let effective = effective.unwrap_or(CapabilitySet::empty());
    let lacks = |capability: &Capability| !effective.intersects(capability.sets());
    let is_short = |port: &&PortPlan| needs(port).iter().any(&lacks) || closed_node(port).is_some();
    let short = plan.ports.iter().find(is_short);
    if is_auto && short.is_none() {
        return Ok(None);
    }
    let socket = plan.raw.agent_socket();
    let error = match AgentClient::connect(&socket) {
        Ok(client) => {
            let client = client.map_err(|reason| Error::port(&port.name, reason))?;
            return Ok(Some(Arc::new(client)));
        }
        Err(error) => error,
    };
    let agent = format!("the agent cannot be reached at {} ({error})", socket.display());
    let Some(port) = short.filter(|_| is_auto) else {
        let reason = format!(
            "{agent}; start `fastlane agent` there, name its socket by `agent`, or write \
             \"privileges\": \"auto\""
        );
        return Err(Error::port(&port.name, reason));
    };
    if let Some(node) = closed_node(port) {
        let (node, address) = (node.display(), pci_address(port).unwrap_or_default());
        let reason = format!(
            "this process may not open {node} for VFIO on `{address}`, and {agent}; start the \
             agent (`fastlane agent`) with the device in the key `pci` of a pool, or give the file \
             to this user"
        );
        return Err(Error::port(&port.name, reason));
    }
    let missing: Vec<String> =
        needs(port).iter().filter(|it| lacks(it)).map(ToString::to_string).collect();
    let interface = match &port.driver {
        Driver::AfXdp(driver) => format!(" for AF_XDP on `{}`", driver.interface),
        Driver::AfPacket(driver) => format!(" for AF_PACKET on `{}`", driver.interface),
        _ => String::new(),
    };
    let reason = format!(
        "{} missing{interface}, and {agent}; start the agent (`fastlane agent`), which opens ports \
         for programs without capabilities, or run as root, or by systemd with \
         `AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_NET_RAW CAP_PERFMON`",
        missing.join(", ")
    );
    Err(Error::port(&port.name, reason))
}
