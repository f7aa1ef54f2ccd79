//! Ports of the kernel tier: `"tier": "kernel"`.

use std::collections::BTreeMap;

use fastlane_steer::XdpMode;

use super::checks::refuse;
use super::environment;
use super::raw::{AfXdpMode, Driver, Port, Tier};
use crate::Error;

/// A port whose flows an XDP program in the kernel forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelPort {
    /// Name of the port.
    pub name: String,
    /// Network interface.
    pub interface: String,
    /// Mode of the program; `None`: native if the driver can, else generic.
    pub mode: Option<XdpMode>,
}

/// Separates the ports of the kernel tier from those of lanes.
///
/// # Errors
/// Returns the first port that the tier cannot have.
pub(super) fn split(
    ports: BTreeMap<String, Port>,
) -> Result<(Vec<KernelPort>, BTreeMap<String, Port>), Error> {
    let is_kernel = |port: &Port| port.tier == Some(Tier::Kernel);
    let (kernel, lanes): (BTreeMap<_, _>, BTreeMap<_, _>) =
        ports.into_iter().partition(|(_, port)| is_kernel(port));
    let mut planned: Vec<KernelPort> = Vec::new();
    for (name, mut port) in kernel {
        environment::resolve(&name, &mut port.driver, |variable| std::env::var(variable).ok())?;
        let Driver::AfXdp(xdp) = port.driver else {
            let what = "the kernel tier is an XDP program; use it with the driver af-xdp";
            return Err(refuse(format!("ports.{name}.tier"), what));
        };
        let of_lanes = lanes.iter().find(|(_, other)| {
            matches!(&other.driver, Driver::AfXdp(other) if other.interface == xdp.interface)
        });
        let of_kernel = planned.iter().find(|other| other.interface == xdp.interface);
        let other = of_lanes.map(|(name, _)| name).or(of_kernel.map(|other| &other.name));
        if let Some(other) = other {
            let what = format!("port `{other}` uses `{}` already; remove one", xdp.interface);
            return Err(refuse(format!("ports.{name}.driver.af-xdp.interface"), what));
        }
        let mode = match xdp.mode {
            AfXdpMode::Auto => None,
            AfXdpMode::ZeroCopy | AfXdpMode::NativeCopy => Some(XdpMode::Native),
            AfXdpMode::GenericCopy => Some(XdpMode::Generic),
        };
        planned.push(KernelPort { name, interface: xdp.interface, mode });
    }
    Ok((planned, lanes))
}

/// Returns the error of a program that writes no flows of a kernel tier.
pub(super) fn unsupported(port: &str) -> Error {
    let what = "this program has no flows for the kernel tier; remove it, or write `lanes`";
    refuse(format!("ports.{port}.tier"), what)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::plan::Plan;
    use super::*;

    fn plan(ports: Value) -> Result<Plan, Error> {
        let raw = serde_json::from_value(json!({ "ports": ports })).unwrap();
        Plan::new(raw, "test")
    }

    #[test]
    fn a_port_of_the_kernel_tier_has_no_lane() {
        let xdp = |interface: &str| json!({ "af-xdp": { "interface": interface } });
        let steer = json!([{ "ethertype": "ipv4" }]);
        let plan = plan(json!({
            "a": { "driver": xdp("eth1"), "tier": "kernel", "steer": steer },
            "b": { "driver": xdp("eth2"), "tier": "lanes" },
            "c": { "driver": { "af-xdp": { "interface": "eth3", "mode": "generic-copy" } },
                   "tier": "kernel" },
        }))
        .unwrap();
        let lanes: Vec<&str> = plan.ports.iter().map(|port| &*port.name).collect();
        assert_eq!(lanes, ["b"]);
        let port = |name: &str, interface: &str, mode| {
            let (name, interface) = (name.to_owned(), interface.to_owned());
            KernelPort { name, interface, mode }
        };
        let wanted = [port("a", "eth1", None), port("c", "eth3", Some(XdpMode::Generic))];
        assert_eq!(plan.kernel_ports, wanted);
    }

    #[test]
    fn the_kernel_tier_needs_an_interface_of_its_own_for_xdp() {
        let refusal = |ports| plan(ports).unwrap_err().to_string();
        let packet = json!({ "af-packet": { "interface": "eth1" } });
        let message = refusal(json!({ "a": { "driver": packet, "tier": "kernel" } }));
        assert!(
            message.starts_with("ports.a.tier: the kernel tier is an XDP program"),
            "{message}"
        );
        let xdp = json!({ "af-xdp": { "interface": "eth1" } });
        for tier in ["lanes", "kernel"] {
            let message = refusal(json!({
                "a": { "driver": xdp, "tier": "kernel" },
                "b": { "driver": xdp, "tier": tier },
            }));
            assert!(message.contains("uses `eth1` already"), "{message}");
        }
    }
}
