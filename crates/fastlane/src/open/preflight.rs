//! Checks of interfaces before anything is changed: frame sizes, queues, link type.

use fastlane_af_xdp as af_xdp;
use fastlane_kernel::Interface;

use crate::Error;
use crate::agent::Interfaces;
use crate::config::plan::{KernelPlan, Plan, PortPlan};
use crate::config::raw::{AfPacket, AfXdp, AfXdpMode, Driver};

/// Length of an Ethernet header and two VLAN tags, which the MTU does not include.
const FRAME_OVERHEAD: usize = 14 + 8;

/// Checks that a port can be opened, without changing anything. Returns lines for a report.
///
/// # Errors
/// The first obstacle.
pub(crate) fn examine(
    plan: &Plan,
    port: &PortPlan,
    interfaces: &Interfaces,
) -> Result<Vec<String>, Error> {
    let interface = match &port.driver {
        Driver::AfXdp(xdp) => Some(of_af_xdp(plan, port, xdp, interfaces)?),
        Driver::AfPacket(packet) => Some(of_af_packet(plan, port, packet, interfaces)?),
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
        | Driver::Ring(_)
        | Driver::Vlan(_) => None,
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
    Ok(facts.unwrap_or_default())
}

/// Checks the interface of an AF_XDP port.
pub(super) fn of_af_xdp(
    plan: &Plan,
    port: &PortPlan,
    xdp: &AfXdp,
    interfaces: &Interfaces,
) -> Result<Interface, Error> {
    let interface = query(port, &xdp.interface, interfaces)?;
    let longest = af_xdp::longest_frame(plan.frame_size);
    fits(port, &interface, longest)?;
    if plan.carries_vlans(port) {
        keeps_tags(port, &interface)?;
    }
    let is_native = matches!(xdp.mode, AfXdpMode::ZeroCopy | AfXdpMode::NativeCopy);
    if is_native && is_aggregate(&interface) {
        let reason = format!(
            "{} is a {} device, whose frames the kernel gives to sockets of its members only; \
             write `\"mode\": \"generic-copy\"`, or a port for each member",
            interface.name, interface.driver
        );
        return Err(Error::port(&port.name, reason));
    }
    let (name, receive, transmit) =
        (&interface.name, interface.receive_queues, interface.transmit_queues);
    if receive > transmit {
        // The kernel binds a socket to such a queue, but then transmits nothing and reports no
        // error.
        let reason = format!(
            "{name} has {receive} receive queues but only {transmit} transmit queues, and an \
             AF_XDP socket transmits on the queue number on which it receives; make them equal \
             with `ethtool -L {name} rx {transmit} tx {transmit}`"
        );
        return Err(Error::port(&port.name, reason));
    }
    Ok(interface)
}

/// Returns true if the device takes VLAN tags out of received frames, so that AF_XDP does not see
/// them.
pub(super) fn removes_tags(interface: &Interface) -> bool {
    interface.has_offload("rx-vlan-offload") && !interface.is_virtual
}

/// Checks that frames of VLANs, which are ports, arrive with their tags.
fn keeps_tags(port: &PortPlan, interface: &Interface) -> Result<(), Error> {
    if !removes_tags(interface) {
        return Ok(());
    }
    let name = &interface.name;
    let reason = format!(
        "{name} removes VLAN tags from frames, so AF_XDP does not see which VLAN they are of; run \
         `ethtool -K {name} rxvlan off`"
    );
    Err(Error::port(&port.name, reason))
}

/// Returns true if the interface is made of others, which receive its frames. In the driver, XDP
/// runs on those, and redirects no frame to a socket of the interface itself.
pub(super) fn is_aggregate(interface: &Interface) -> bool {
    ["bonding", "team"].contains(&&*interface.driver)
}

/// Returns the defect for which zero-copy is not chosen on an interface.
///
/// If frames run out while igb fills the end of its receive ring, it leaves the length of an older
/// packet in the next descriptor, and later receives that again (Linux 7.3,
/// drivers/net/ethernet/intel/igb/igb_xsk.c, `igb_alloc_rx_buffers_zc`). The kernel has lent the
/// memory of such a packet anew, so its octets may change while a lane has it.
///
/// With busy polling and zero-copy, virtio refuses all descriptors of packets to send (Linux 7.3,
/// counted as `drop_transmit_error`).
pub(super) fn zero_copy_defect(interface: &Interface, busy_polls: bool) -> Option<&'static str> {
    match &*interface.driver {
        "igb" => Some("Linux's igb driver may repeat packets with zero-copy when frames run out"),
        "virtio_net" if busy_polls => {
            Some("with busy polling, Linux's virtio driver sends nothing in zero-copy")
        }
        _ => None,
    }
}

/// Checks the interface of an AF_PACKET port.
pub(super) fn of_af_packet(
    plan: &Plan,
    port: &PortPlan,
    packet: &AfPacket,
    interfaces: &Interfaces,
) -> Result<Interface, Error> {
    let interface = query(port, &packet.interface, interfaces)?;
    fits(port, &interface, room(plan))?;
    Ok(interface)
}

/// Returns the longest packet that a frame of the pool holds, for drivers without an own limit.
pub(super) fn room(plan: &Plan) -> usize {
    plan.frame_size - fastlane_core::METADATA_LENGTH - plan.headroom
}

fn query(port: &PortPlan, name: &str, interfaces: &Interfaces) -> Result<Interface, Error> {
    if matches!(port.kernel, KernelPlan::Tap(_)) && interfaces.agent().is_none() {
        let what = "Linux has the interface already; write `\"kernel\": \"re-enter\"` or `none`";
        return Err(Error::port(&port.name, what));
    }
    let interface = interfaces.query(name).map_err(|reason| Error::port(&port.name, reason))?;
    if !interface.ethernet {
        let reason = format!("{name} is not an Ethernet interface; choose another one");
        return Err(Error::port(&port.name, reason));
    }
    Ok(interface)
}

/// Logs a warning if the link is down. The start continues.
pub(super) fn warn_if_down(port: &PortPlan, Interface { name, up, .. }: &Interface) {
    if !up {
        tracing::warn!(
            "port `{}`: {name} is down and receives nothing; run `ip link set dev {name} up`",
            port.name
        );
    }
}

/// Logs a warning if the kernel loses frames of a native AF_XDP port whenever the program is
/// attached or detached.
pub(super) fn warn_of_uncounted_loss(port: &PortPlan, interface: &Interface) {
    if interface.loses_frames_with_xdp() {
        tracing::warn!(
            "port `{}`: {name} is a veth without GRO; when the XDP program is detached, the kernel \
             frees the frames in its ring and counts none; run `ethtool -K {name} gro on`",
            port.name,
            name = interface.name
        );
    }
}

fn fits(port: &PortPlan, interface: &Interface, longest: usize) -> Result<(), Error> {
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
             increase `lanes.frame-size` (up to 65536), or run `ip link set dev {name} mtu \
             {fitting}`"
        ),
    ))
}
