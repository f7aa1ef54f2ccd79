//! Whether an interface can carry what a port wants, before anything is touched.

use fastlane_af_xdp as af_xdp;
use fastlane_kernel::Interface;

use crate::Error;
use crate::config::plan::{Plan, PortPlan};
use crate::config::written::{AfPacket, AfXdp, Driver};

/// An Ethernet header and two VLAN tags: what a frame is longer than the MTU says.
const FRAME_OVERHEAD: usize = 14 + 8;

/// What [`examine`] found out about a port.
pub(crate) struct Examined {
    /// Facts for a person.
    pub facts: Vec<String>,
}

/// Looks at what a port needs, without changing anything.
pub(crate) fn examine(plan: &Plan, port: &PortPlan) -> Result<Examined, Error> {
    let interface = match &port.driver {
        Driver::AfXdp(xdp) => Some(of_af_xdp(plan, port, xdp)?),
        Driver::AfPacket(packet) => Some(of_af_packet(plan, port, packet)?),
        Driver::Pcap(pcap) => {
            if let Some(path) = &pcap.read {
                std::fs::File::open(path).map_err(|error| {
                    Error::port(&port.name, format!("cannot read {} ({error})", path.display()))
                })?;
            }
            None
        }
        Driver::Tap(_)
        | Driver::Udp(_)
        | Driver::Dpdk(_)
        | Driver::Memif(_)
        | Driver::Memory(_)
        | Driver::Ring(_) => None,
    };
    let facts = interface.map(|interface| {
        let queues = interface.receive_queues;
        let plural = if queues == 1 { "" } else { "s" };
        let driver = if interface.driver.is_empty() { "unknown" } else { &interface.driver };
        vec![format!(
            "{}: driver {driver}, MTU {}, {queues} receive queue{plural}, link {}",
            interface.name,
            interface.mtu,
            if interface.up { "up" } else { "down" }
        )]
    });
    Ok(Examined { facts: facts.unwrap_or_default() })
}

pub(super) fn of_af_xdp(plan: &Plan, port: &PortPlan, xdp: &AfXdp) -> Result<Interface, Error> {
    let interface = query(port, &xdp.interface)?;
    let longest = af_xdp::longest_frame(plan.frame_size);
    fits(port, &interface, longest, "4096 with af-xdp")?;
    let (name, receive, transmit) =
        (&interface.name, interface.receive_queues, interface.transmit_queues);
    if receive > transmit {
        // The kernel opens a socket on such a queue and then sends nothing, without a word.
        let reason = format!(
            "{name} has {receive} receive queues, but transmit queues for only {transmit} of them, \
             and an AF_XDP socket sends by the queue that it receives from; \
             `ethtool -L {name} rx {transmit} tx {transmit}` makes them equal"
        );
        return Err(Error::port(&port.name, reason));
    }
    Ok(interface)
}

pub(super) fn of_af_packet(
    plan: &Plan,
    port: &PortPlan,
    packet: &AfPacket,
) -> Result<Interface, Error> {
    let interface = query(port, &packet.interface)?;
    fits(port, &interface, room(plan), "65536 with af-packet")?;
    Ok(interface)
}

/// The longest packet that a frame of the pool holds where no device decides.
pub(super) fn room(plan: &Plan) -> usize {
    plan.frame_size - fastlane_core::METADATA_LENGTH - plan.headroom
}

fn query(port: &PortPlan, name: &str) -> Result<Interface, Error> {
    let interface = Interface::query(name).map_err(|error| Error::port(&port.name, error))?;
    if !interface.ethernet {
        let reason = format!("{name} has no Ethernet frames; choose another interface");
        return Err(Error::port(&port.name, reason));
    }
    Ok(interface)
}

/// Warns of a link that is down: that is no reason to refuse.
pub(super) fn warn_if_down(port: &PortPlan, Interface { name, up, .. }: &Interface) {
    if !up {
        tracing::warn!(
            "port `{}`: {name} is down; nothing arrives before `ip link set dev {name} up`",
            port.name
        );
    }
}

fn fits(port: &PortPlan, interface: &Interface, longest: usize, most: &str) -> Result<(), Error> {
    let needed = interface.mtu as usize + FRAME_OVERHEAD;
    if needed <= longest {
        return Ok(());
    }
    let (name, mtu) = (&interface.name, interface.mtu);
    let fitting = longest - FRAME_OVERHEAD;
    Err(Error::port(
        &port.name,
        format!(
            "{name} has an MTU of {mtu} bytes, but a frame of the pool holds an MTU of {fitting}; \
             make `lanes.frame-size` larger (up to {most}), or `ip link set dev {name} mtu \
             {fitting}`"
        ),
    ))
}
