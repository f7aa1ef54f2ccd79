//! Privileges: which ports need capabilities, and whether this process or the agent uses them.

use std::fmt;
use std::sync::Arc;

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

/// Returns the connection to the agent if the ports are opened through it, `None` if this process
/// opens them itself.
///
/// # Errors
/// Names the first port for which capabilities are missing, or the agent that cannot be reached.
pub(crate) fn agent(plan: &Plan) -> Result<Option<Arc<AgentClient>>, Error> {
    let Some(port) = plan.ports.iter().find(|port| !needs(port).is_empty()) else {
        return Ok(None);
    };
    let is_auto = match plan.raw.privileges {
        Privileges::Own => return Ok(None),
        Privileges::Auto => true,
        Privileges::Agent => false,
    };
    let effective = rustix::thread::capabilities(None).map(|sets| sets.effective);
    let effective = effective.unwrap_or(CapabilitySet::empty());
    let lacks = |capability: &Capability| !effective.intersects(capability.sets());
    let short = plan.ports.iter().find(|port| needs(port).iter().any(&lacks));
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
