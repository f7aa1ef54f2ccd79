//! Ports of the kernel tier: `"tier": "kernel"`, and `"both"`, which lanes have too.

use std::collections::BTreeMap;

use fastlane_steer::XdpMode;

use super::checks::refuse;
use super::environment;
use super::raw::{AfXdpMode, Driver, Port, Tier};
use crate::Error;

/// A port whose flows a program in the kernel forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelPort {
    /// Name of the port.
    pub name: String,
    /// Network interface.
    pub interface: String,
    /// Mode of an XDP program; `None`: the place that fits the interface.
    pub mode: Option<XdpMode>,
    /// True if lanes have the port too.
    pub has_lanes: bool,
}

/// Returns the ports of the kernel tier and those of lanes. Some are of both.
///
/// # Errors
/// Returns the first port that the tier cannot have.
pub(super) fn split(
    ports: BTreeMap<String, Port>,
) -> Result<(Vec<KernelPort>, BTreeMap<String, Port>), Error> {
    let kernel: Vec<(String, Port)> = ports
        .iter()
        .filter(|(_, port)| port.tier.is_some_and(Tier::has_program))
        .map(|(name, port)| (name.clone(), port.clone()))
        .collect();
    let mut lanes = ports;
    lanes.retain(|_, port| port.tier != Some(Tier::Kernel));
    let mut planned: Vec<KernelPort> = Vec::new();
    for (name, mut port) in kernel {
        environment::resolve(&name, &mut port.driver, |variable| std::env::var(variable).ok())?;
        let Driver::AfXdp(xdp) = port.driver else {
            let what = "the kernel tier needs an interface of Linux; use it with the driver af-xdp";
            return Err(refuse(format!("ports.{name}.tier"), what));
        };
        let uses_it = |port: &Port| match &port.driver {
            Driver::AfXdp(other) => other.interface == xdp.interface,
            _ => false,
        };
        let of_lanes = lanes.iter().find(|(other, port)| **other != name && uses_it(port));
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
        let has_lanes = port.tier == Some(Tier::Both);
        planned.push(KernelPort { name, interface: xdp.interface, mode, has_lanes });
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
            KernelPort { name, interface, mode, has_lanes: false }
        };
        let wanted = [port("a", "eth1", None), port("c", "eth3", Some(XdpMode::Generic))];
        assert_eq!(plan.kernel_ports, wanted);
    }

    #[test]
    fn a_port_of_both_tiers_is_one_of_lanes_too() {
        let driver = json!({ "af-xdp": { "interface": "eth1" } });
        let plan = plan(json!({ "a": { "driver": driver, "tier": "both" } })).unwrap();
        assert_eq!(plan.ports.len(), 1);
        let (name, interface) = ("a".to_owned(), "eth1".to_owned());
        let port = KernelPort { name, interface, mode: None, has_lanes: true };
        assert_eq!(plan.kernel_ports, [port]);
    }

    #[test]
    fn the_kernel_tier_needs_an_interface_of_its_own_for_xdp() {
        let refusal = |ports| plan(ports).unwrap_err().to_string();
        let packet = json!({ "af-packet": { "interface": "eth1" } });
        let message = refusal(json!({ "a": { "driver": packet, "tier": "kernel" } }));
        assert!(
            message.starts_with("ports.a.tier: the kernel tier needs an interface of Linux"),
            "{message}"
        );
        let xdp = json!({ "af-xdp": { "interface": "eth1" } });
        for tier in ["lanes", "kernel", "both"] {
            let message = refusal(json!({
                "a": { "driver": xdp, "tier": "kernel" },
                "b": { "driver": xdp, "tier": tier },
            }));
            assert!(message.contains("uses `eth1` already"), "{message}");
        }
    }
}
