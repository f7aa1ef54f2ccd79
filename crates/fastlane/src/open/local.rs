//! Ports that touch no device: memory, rings, capture files.

use fastlane_local::memory::Memory;
use fastlane_local::{pcap, ring};

use super::Opening;
use crate::Error;
use crate::config::plan::PortPlan;
use crate::config::written;

/// What a memory port is filled with: an Ethernet header and zeros.
fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame
}

impl Opening<'_> {
    /// One FIFO for each lane of the port.
    pub(super) fn open_memory(
        &mut self,
        port: &PortPlan,
        memory: &written::Memory,
    ) -> Result<(), Error> {
        for lane in &port.lanes {
            let queue = match memory.fill {
                None => Memory::new(port.id, memory.capacity.unwrap_or(1024)),
                Some(fill) => {
                    let pool = &mut self.lanes[*lane].pool;
                    Memory::filled(port.id, pool, fill.frames, &frame(fill.length))
                        .map_err(|error| Error::port(&port.name, error))?
                }
            };
            self.add(*lane, port, Box::new(queue));
        }
        Ok(())
    }

    /// Both ends at once, when the first of them comes.
    pub(super) fn open_ring(&mut self, port: &PortPlan, ring: &written::Ring) -> Result<(), Error> {
        let peer = self.plan.ports.iter().find(|other| other.name == ring.peer);
        let Some(peer) = peer.filter(|peer| port.id < peer.id) else { return Ok(()) };
        let pairs: Vec<_> = port.lanes.iter().copied().zip(peer.lanes.iter().copied()).collect();
        for (here, there) in pairs {
            let (one, other) = ring::pair(port.id, peer.id, ring.capacity.unwrap_or(1024))
                .map_err(|error| Error::port(&port.name, error))?;
            self.add(here, port, Box::new(one));
            self.add(there, peer, Box::new(other));
        }
        Ok(())
    }

    /// Reads and writes in the first lane of the port: a file has one beginning and one end.
    pub(super) fn open_pcap(&mut self, port: &PortPlan, pcap: &written::Pcap) -> Result<(), Error> {
        let settings = pcap::PcapSettings {
            read: pcap.read.clone(),
            write: pcap.write.clone(),
            repeat: pcap.repeat.unwrap_or(1),
        };
        let queue =
            pcap::open(&settings, port.id).map_err(|error| Error::port(&port.name, error))?;
        self.add(port.lanes[0], port, Box::new(queue));
        Ok(())
    }
}
