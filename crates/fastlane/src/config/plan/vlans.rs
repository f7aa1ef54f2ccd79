//! VLANs that are ports: resolution, and the rules of a port together with those of its VLANs.

use fastlane_core::PortId;
use fastlane_local::vlan::{MAX_ID, TAG, VlanPort};
use fastlane_steer::{RuleError, Rules};

use super::{KernelPlan, Plan, PortPlan, VlanPlan};
use crate::Error;
use crate::config::checks::refuse;
use crate::config::raw::{self, Driver};
use crate::diagnostic::nearest_word;

/// Resolves the ports that are VLANs, once all ports are known.
///
/// # Errors
/// The first value that is not allowed.
pub(super) fn resolve(ports: &mut [PortPlan], headroom: usize) -> Result<(), Error> {
    for number in 0..ports.len() {
        let Driver::Vlan(raw) = &ports[number].driver else { continue };
        let (vlan, lanes) = resolve_one(ports, &ports[number], raw)?;
        if headroom < TAG {
            let what = format!(
                "{headroom} is not allowed with port `{}`: a VLAN tag is prepended to its \
                 packets; write at least {TAG}",
                ports[number].name
            );
            return Err(refuse("lanes.headroom", what));
        }
        (ports[number].vlan, ports[number].lanes) = (Some(vlan), lanes);
    }
    for port in ports.iter() {
        device_rules(ports, port).map_err(|error| {
            let what = format!("with the rules of its VLANs: {error}");
            refuse(format!("ports.{}.steer", port.name), what)
        })?;
    }
    Ok(())
}

/// Returns the VLAN of a port, and its lanes.
fn resolve_one(
    ports: &[PortPlan],
    port: &PortPlan,
    raw: &raw::Vlan,
) -> Result<(VlanPlan, Vec<usize>), Error> {
    let at = |key: &str| format!("ports.{}.driver.vlan.{key}", port.name);
    let Some(carrier) = ports.iter().find(|other| other.name == raw.port) else {
        let names: Vec<&str> = ports.iter().map(|port| &*port.name).collect();
        let what = format!("there is no port `{}`; there are {}", raw.port, names.join(", "));
        let meant = nearest_word(&raw.port, names);
        return Err(Error::Value { path: at("port"), what, meant });
    };
    match carrier.driver {
        Driver::Vlan(_) => {
            let what = format!(
                "port `{}` is a VLAN itself, and two tags are not supported; name the port that \
                 carries it",
                carrier.name
            );
            return Err(refuse(at("port"), what));
        }
        Driver::Udp(_) => {
            let what = format!(
                "port `{}` is a UDP socket, whose datagrams have no tags; name a port of another \
                 driver",
                carrier.name
            );
            return Err(refuse(at("port"), what));
        }
        _ => {}
    }
    if !(1..=MAX_ID).contains(&raw.id) {
        let what = format!("{} is not allowed; write 1 to {MAX_ID}", raw.id);
        return Err(refuse(at("id"), what));
    }
    let is_same = |other: &&PortPlan| {
        let Driver::Vlan(vlan) = &other.driver else { return false };
        other.id < port.id && vlan.port == raw.port && vlan.id == raw.id
    };
    if let Some(other) = ports.iter().find(is_same) {
        let what = format!(
            "port `{}` is VLAN {} of `{}` already; write another identifier",
            other.name, raw.id, raw.port
        );
        return Err(refuse(at("id"), what));
    }
    Ok((VlanPlan { carrier: carrier.id, id: raw.id }, carrier.lanes.clone()))
}

/// Returns the rules that the device of a port applies: its own, and those of its VLANs. It claims
/// everything of a VLAN with a TAP, because what no rule claims is to reach the TAP.
fn device_rules(ports: &[PortPlan], port: &PortPlan) -> Result<Rules, RuleError> {
    let everything = Rules::default();
    let vlans = ports.iter().filter_map(|other| {
        let vlan = other.vlan.filter(|vlan| vlan.carrier == port.id)?;
        let has_tap = matches!(other.kernel, KernelPlan::Tap(_));
        Some((vlan.id, if has_tap { &everything } else { &other.rules }))
    });
    let vlans: Vec<_> = vlans.collect();
    port.rules.with_vlans(&vlans)
}

impl Plan {
    /// Returns the ports that are VLANs of ports, for the lanes.
    pub(crate) fn vlan_ports(&self) -> Vec<VlanPort> {
        let vlan = |port: &PortPlan| {
            let VlanPlan { carrier, id } = port.vlan?;
            let shares_kernel_path = matches!(port.kernel, KernelPlan::OfCarrier);
            Some(VlanPort { port: port.id, carrier, id, shares_kernel_path })
        };
        self.ports.iter().filter_map(vlan).collect()
    }

    /// Returns true if a port carries VLANs that are ports.
    pub(crate) fn carries_vlans(&self, port: &PortPlan) -> bool {
        self.ports.iter().any(|it| it.vlan.is_some_and(|vlan| vlan.carrier == port.id))
    }

    /// Returns true if a port carries VLANs, and one of them or the port itself has rules.
    pub(crate) fn steers_vlans(&self, port: &PortPlan) -> bool {
        self.carries_vlans(port) && self.carried_by(port.id).any(|it| !it.rules.is_empty())
    }

    /// Returns the ports whose frames arrive by a port: itself and its VLANs.
    pub(crate) fn carried_by(&self, carrier: PortId) -> impl Iterator<Item = &PortPlan> {
        self.ports.iter().filter(move |port| self.carrier_of(port) == carrier)
    }

    /// Returns the port by which frames of a port arrive: the one that carries it, or itself.
    pub(crate) fn carrier_of(&self, port: &PortPlan) -> PortId {
        port.vlan.map_or(port.id, |vlan| vlan.carrier)
    }

    /// Returns the path of packets of a port into Linux: its own, or that of the port that carries
    /// it.
    pub(crate) fn kernel_of<'a>(&'a self, port: &'a PortPlan) -> &'a KernelPlan {
        match &port.kernel {
            KernelPlan::OfCarrier => &self.ports[usize::from(self.carrier_of(port).0)].kernel,
            own => own,
        }
    }

    /// Returns the port whose rules are replaced together with those of a port: where Linux has the
    /// interface, one list steers it and its VLANs.
    pub(crate) fn steered_by(&self, port: usize) -> usize {
        let carrier = usize::from(self.carrier_of(&self.ports[port]).0);
        if self.is_steered_by_lanes(&self.ports[port]) { port } else { carrier }
    }

    /// Returns true if the lanes match the rules of a port: those of a device that Linux does not
    /// have, unless it does itself, and those of a VLAN with a TAP of its own.
    pub(crate) fn is_steered_by_lanes(&self, port: &PortPlan) -> bool {
        let carrier = &self.ports[usize::from(self.carrier_of(port).0)];
        let has_tap = port.vlan.is_some() && matches!(port.kernel, KernelPlan::Tap(_));
        !carrier.driver.is_shared() || has_tap
    }

    /// Returns the rules that are applied at a port: by a device that Linux has also those of its
    /// VLANs. Lanes match each port by itself.
    ///
    /// # Errors
    /// Returns an error if they are too many together.
    pub(crate) fn applied_rules(&self, port: &PortPlan) -> Result<Rules, RuleError> {
        match port.driver.is_shared() {
            true => device_rules(&self.ports, port),
            false => Ok(port.rules.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plan(ports: Value) -> Result<Plan, String> {
        let raw = serde_json::from_value(json!({ "ports": ports })).unwrap();
        Plan::new(raw, "test").map_err(|error| error.to_string())
    }

    fn vlan(port: &str, id: u16) -> Value {
        json!({ "driver": { "vlan": { "port": port, "id": id } } })
    }

    fn wire() -> Value {
        json!({ "driver": { "af-xdp": { "interface": "x" } } })
    }

    #[test]
    fn a_vlan_has_the_lanes_of_its_port() {
        let wire = json!({ "driver": { "memory": {} }, "lanes": [1] });
        let ports = json!({ "n3": vlan("wire", 100), "n6": vlan("wire", 4094), "wire": wire });
        let raw = json!({ "lanes": { "cpus": [0, 1] }, "ports": ports });
        let plan = Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap();
        assert_eq!((&plan.ports[0].lanes, &plan.ports[1].lanes), (&vec![1], &vec![1]));
        let [n3, n6] = plan.vlan_ports()[..] else { panic!("two VLANs") };
        assert_eq!(
            (n3.port, n3.carrier, n3.id, n3.shares_kernel_path),
            (PortId(0), PortId(2), 100, true)
        );
        assert_eq!((n6.port, n6.id), (PortId(1), 4094));
        assert!(plan.carries_vlans(&plan.ports[2]) && !plan.carries_vlans(&plan.ports[0]));
    }

    #[test]
    fn what_is_no_vlan_is_refused() {
        let refusal = |ports: Value| plan(ports).unwrap_err();
        let of = |vlan: Value| refusal(json!({ "n3": vlan, "wire": wire() }));
        let start =
            |message: &str, expected: &str| assert!(message.starts_with(expected), "{message}");
        start(
            &of(vlan("wure", 1)),
            "ports.n3.driver.vlan.port: there is no port `wure`; there are n3",
        );
        start(&of(vlan("wire", 0)), "ports.n3.driver.vlan.id: 0 is not allowed; write 1 to 4094");
        start(&of(vlan("wire", 4095)), "ports.n3.driver.vlan.id: 4095 is not allowed");
        start(&of(vlan("n3", 1)), "ports.n3.driver.vlan.port: port `n3` is a VLAN itself");
        let twice = json!({ "a": vlan("wire", 7), "b": vlan("wire", 7), "wire": wire() });
        start(&refusal(twice), "ports.b.driver.vlan.id: port `a` is VLAN 7 of `wire` already");
        let nested = json!({ "a": vlan("wire", 7), "b": vlan("a", 8), "wire": wire() });
        start(
            &refusal(nested),
            "ports.b.driver.vlan.port: port `a` is a VLAN itself, and two tags",
        );
        let socket = json!({ "driver": { "udp": { "address": "127.0.0.1:1" } } });
        let udp = json!({ "a": vlan("u", 7), "u": socket });
        start(&refusal(udp), "ports.a.driver.vlan.port: port `u` is a UDP socket");
        let with = |key: &str, value: Value| {
            let mut vlan = vlan("wire", 1);
            vlan[key] = value;
            of(vlan)
        };
        start(&with("lanes", json!([0])), "ports.n3.lanes: a VLAN has the lanes of the port");
        start(&with("on-removal", json!("exit")), "ports.n3.on-removal: it has no effect on this");
        start(&with("kernel", json!("re-enter")), "ports.n3.kernel: a VLAN re-enters by the port");
        let ports = json!({ "n3": vlan("wire", 1), "wire": wire() });
        let raw = json!({ "lanes": { "headroom": 3 }, "ports": ports });
        let message =
            Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap_err().to_string();
        start(&message, "lanes.headroom: 3 is not allowed with port `n3`");
    }

    #[test]
    fn a_device_of_linux_gets_the_rules_of_its_vlans() {
        let mut n3 = vlan("wire", 100);
        n3["steer"] = json!([{ "udp-port": 2152 }]);
        let plan = plan(json!({ "n3": n3, "n6": vlan("wire", 200), "wire": wire() })).unwrap();
        let rules = plan.applied_rules(&plan.ports[2]).unwrap();
        let vlans: Vec<_> = rules.as_slice().iter().map(|rule| rule.vlan).collect();
        assert_eq!(vlans, [Some(100), Some(200)], "and everything else");
        assert_eq!((plan.steered_by(0), plan.steered_by(2)), (2, 2));
        assert!(!plan.is_steered_by_lanes(&plan.ports[0]));
        let frame = |id: u8, port: u16| {
            let mut frame = [0; 64];
            frame[12..18].copy_from_slice(&[0x81, 0, 0, id, 8, 0]);
            (frame[18], frame[27]) = (0x45, 17);
            frame[40..42].copy_from_slice(&port.to_be_bytes());
            frame
        };
        assert!(rules.matches(&frame(100, 2152)) && !rules.matches(&frame(100, 53)));
        assert!(rules.matches(&frame(200, 53)) && rules.matches(&frame(99, 53)));
    }

    #[test]
    fn a_vlan_with_a_tap_is_steered_by_lanes() {
        let mut n3 = vlan("wire", 100);
        n3["steer"] = json!([{ "udp-port": 2152 }]);
        n3["kernel"] = json!({ "tap": {} });
        let mut wire = wire();
        wire["steer"] = json!([{ "udp-port": 53 }]);
        let plan = plan(json!({ "n3": n3, "wire": wire })).unwrap();
        assert!(plan.is_steered_by_lanes(&plan.ports[0]));
        assert_eq!((plan.steered_by(0), plan.steered_by(1)), (0, 1));
        let rules = plan.applied_rules(&plan.ports[1]).unwrap();
        let mut arp = [0; 60];
        arp[12..18].copy_from_slice(&[0x81, 0, 0, 100, 8, 6]);
        assert!(rules.matches(&arp), "it is for the TAP");
        arp[15] = 99;
        assert!(!rules.matches(&arp));
    }
}
