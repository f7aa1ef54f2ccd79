//! Checks of ports against each other: interfaces of two ports, and the two ends of rings.

use super::PortPlan;
use crate::Error;
use crate::config::checks::refuse;
use crate::config::raw::Driver;
use crate::diagnostic::nearest_word;

/// Checks that each interface and each DPDK device belongs to one port: two ports would contend for
/// its queues and frames.
pub(super) fn check_interfaces(ports: &[PortPlan]) -> Result<(), Error> {
    // The name of a DPDK device without its devargs.
    let device = |name: &Option<String>| {
        name.as_ref().and_then(|name| name.split(',').next()).map(str::to_owned)
    };
    let interface = |port: &PortPlan| match &port.driver {
        Driver::AfXdp(xdp) => Some(("interface", xdp.interface.clone())),
        Driver::AfPacket(packet) => Some(("interface", packet.interface.clone())),
        Driver::Dpdk(dpdk) => match device(&dpdk.device) {
            Some(name) => Some(("device", name)),
            None => device(&dpdk.vdev).map(|name| ("vdev", name)),
        },
        _ => None,
    };
    for (place, port) in ports.iter().enumerate() {
        let Some((key, name)) = interface(port) else { continue };
        let same = |other: &&PortPlan| interface(other).is_some_and(|(_, other)| other == name);
        let other = ports[..place].iter().find(same);
        if let Some(other) = other {
            let path = format!("ports.{}.driver.{}.{key}", port.name, port.driver.name());
            let remedy = match &port.driver {
                Driver::Dpdk(_) => "name another device",
                _ => "merge the rules of both there",
            };
            let what = format!("port `{}` uses `{name}` already; {remedy}", other.name);
            return Err(refuse(path, what));
        }
    }
    Ok(())
}

/// Checks that each ring port and its peer name each other.
pub(super) fn check_rings(ports: &[PortPlan], names: &[String]) -> Result<(), Error> {
    for port in ports {
        let Driver::Ring(ring) = &port.driver else { continue };
        let path = format!("ports.{}.driver.ring.peer", port.name);
        let Some(peer) = ports.iter().find(|other| other.name == ring.peer) else {
            let what = format!("there is no port `{}`; there are {}", ring.peer, names.join(", "));
            let meant = nearest_word(&ring.peer, names.iter().map(String::as_str));
            return Err(Error::Value { path, what, meant });
        };
        let back = matches!(&peer.driver, Driver::Ring(other) if other.peer == port.name);
        if !back || peer.id == port.id {
            let what = format!(
                "port `{}` is not the other end; give it a ring driver with `\"peer\": \"{}\"`",
                peer.name, port.name
            );
            return Err(refuse(path, what));
        }
        if peer.lanes.len() != port.lanes.len() {
            let what =
                format!("port `{}` has a different number of lanes; use the same", peer.name);
            return Err(refuse(path, what));
        }
    }
    Ok(())
}
