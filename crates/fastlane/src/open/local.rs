//! Ports without a network device: memory, rings, capture files, UDP sockets.

use fastlane_kernel::udp;
use fastlane_local::memory::Memory;
use fastlane_local::{pcap, ring};

use super::OpenContext;
use crate::Error;
use crate::config::plan::PortPlan;
use crate::config::raw;

/// Returns a frame to fill a memory port with: an Ethernet header and zeros.
fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame
}

/// Opens one FIFO for each lane of the port.
pub(super) fn open_memory(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    memory: &raw::Memory,
) -> Result<(), Error> {
    for lane in &port.lanes {
        let queue = match memory.fill {
            None => Memory::new(port.id, memory.capacity.unwrap_or(1024)),
            Some(fill) => {
                let pool = &mut context.lanes[*lane].pool;
                Memory::filled(port.id, pool, fill.frames, &frame(fill.length))
                    .map_err(|error| Error::port(&port.name, error))?
            }
        };
        context.add(*lane, port, Box::new(queue));
    }
    Ok(())
}

/// Opens both ends of a ring when the port with the lower number is opened.
pub(super) fn open_ring(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    ring: &raw::Ring,
) -> Result<(), Error> {
    let peer = context.plan.ports.iter().find(|other| other.name == ring.peer);
    let Some(peer) = peer.filter(|peer| port.id < peer.id) else { return Ok(()) };
    let pairs: Vec<_> = port.lanes.iter().copied().zip(peer.lanes.iter().copied()).collect();
    for (here, there) in pairs {
        let (one, other) = ring::pair(port.id, peer.id, ring.capacity.unwrap_or(1024))
            .map_err(|error| Error::port(&port.name, error))?;
        context.add(here, port, Box::new(one));
        context.add(there, peer, Box::new(other));
    }
    Ok(())
}

/// Opens capture files in the first lane of the port: packets of a file have one order.
pub(super) fn open_pcap(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    pcap: &raw::Pcap,
) -> Result<(), Error> {
    let settings = pcap::PcapSettings {
        read: pcap.read.clone(),
        write: pcap.write.clone(),
        repeat: pcap.repeat.unwrap_or(1),
    };
    let queue = pcap::open(&settings, port.id).map_err(|error| Error::port(&port.name, error))?;
    context.add(port.lanes[0], port, Box::new(queue));
    Ok(())
}

/// Opens an ordinary UDP socket for each lane of the port.
pub(super) fn open_udp(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    settings: &raw::UdpSocket,
) -> Result<(), Error> {
    let queues = udp::open(settings.address, port.lanes.len())
        .map_err(|error| Error::port(&port.name, error))?;
    for (lane, queue) in port.lanes.iter().zip(queues) {
        context.add(*lane, port, Box::new(queue.with_port(port.id)));
    }
    Ok(())
}
