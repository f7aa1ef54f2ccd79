//! Ports over memif.

use fastlane_memif::{Address, MemifSettings, Role};

use super::{Hardware, Opening, interface};
use crate::Error;
use crate::config::plan::PortPlan;
use crate::config::written::{self, MemifRole};

/// An Ethernet header and a VLAN tag: what a frame is longer than the MTU says.
const FRAME_OVERHEAD: usize = 14 + 4;

impl Opening<'_> {
    pub(super) fn open_memif(
        &mut self,
        port: &PortPlan,
        written: &written::Memif,
    ) -> Result<(), Error> {
        let refuse = |error| Error::port(&port.name, error);
        let (link, queues) =
            fastlane_memif::open(settings(port, written), port.id).map_err(refuse)?;
        for (lane, queue) in port.lanes.iter().zip(queues) {
            self.add(*lane, port, Box::new(queue));
        }
        let number = usize::from(port.id.0);
        let role = match written.role {
            MemifRole::Server => "server",
            MemifRole::Client => "client",
        };
        self.facts[number].mode = format!("{role} at {}", written.socket);
        let mtu = interface::room(self.plan) - FRAME_OVERHEAD;
        self.hardware[number] = Hardware { mac: None, mtu: Some(mtu as u32) };
        self.states[number] = Some(Box::new(link));
        Ok(())
    }
}

impl super::links::State for fastlane_memif::Link {
    fn look(&self) -> (bool, String) {
        let state = self.state();
        let end = state.last_end.map(|reason| format!(" ({reason})"));
        match state.connected {
            true => (true, format!(" to {}", state.peer)),
            false => (false, end.unwrap_or_default()),
        }
    }
}

fn settings(port: &PortPlan, written: &written::Memif) -> MemifSettings {
    let role = match written.role {
        MemifRole::Server => Role::Server,
        MemifRole::Client => Role::Client,
    };
    let Ok(socket) = written.socket.parse::<Address>();
    let mut settings = MemifSettings::new(socket, role);
    settings.id = written.id;
    settings.secret.clone_from(&written.secret);
    settings.name.clone_from(&port.name);
    settings.queues = port.lanes.len();
    settings.ring_size = written.ring.unwrap_or(DEFAULT_RING) as usize;
    settings.buffer_size = written.buffer.unwrap_or(2048) as usize;
    settings
}

/// Slots of a ring: as many as the rings of other drivers have.
const DEFAULT_RING: u32 = 2048;
