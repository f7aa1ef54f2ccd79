//! Ports over memif: shared memory with a peer process.

use fastlane_core::Queue;
use fastlane_memif::{Address, MemifSettings, Role};

use super::link_state::LinkState;
use super::reopened::{Reopened, ReopenedDevice};
use super::{Hardware, OpenContext, preflight};
use crate::Error;
use crate::config::plan::PortPlan;
use crate::config::raw::{self, MemifRole};

/// Length of an Ethernet header and a VLAN tag, which the MTU does not include.
const FRAME_OVERHEAD: usize = 14 + 4;

/// Opens the port; its queues have a link once the peer is connected.
pub(super) fn open(
    context: &mut OpenContext<'_>,
    port: &PortPlan,
    raw: &raw::Memif,
) -> Result<(), Error> {
    let refuse = |error| Error::port(&port.name, error);
    let (link, queues) = fastlane_memif::open(settings(port, raw), port.id).map_err(refuse)?;
    for (lane, queue) in port.lanes.iter().zip(queues) {
        context.add(*lane, port, Box::new(queue));
    }
    let number = usize::from(port.id.0);
    context.facts[number].mode = mode(raw);
    let mtu = preflight::room(context.plan) - FRAME_OVERHEAD;
    context.hardware[number] = Hardware { mac: None, mtu: Some(mtu as u32) };
    context.states[number] = Some(Box::new(link));
    Ok(())
}

/// Opens the port while the lanes run.
pub(super) fn reopen(port: &PortPlan, raw: &raw::Memif) -> Result<Reopened, Error> {
    let opened = fastlane_memif::open(settings(port, raw), port.id);
    let (link, queues) = opened.map_err(|error| Error::port(&port.name, error))?;
    let queues = port.lanes.iter().zip(queues);
    let queues = queues.map(|(lane, queue)| (*lane, Box::new(queue) as Box<dyn Queue>)).collect();
    Ok(Reopened { interface: None, mode: mode(raw), queues, device: ReopenedDevice::Memif(link) })
}

/// Describes the role and the socket.
fn mode(raw: &raw::Memif) -> String {
    let role = match raw.role {
        MemifRole::Server => "server",
        MemifRole::Client => "client",
    };
    format!("{role} at {}", raw.socket)
}

impl LinkState for fastlane_memif::Link {
    fn state(&self) -> (bool, String) {
        let state = fastlane_memif::Link::state(self);
        let end = state.last_end.map(|reason| format!(" ({reason})"));
        match state.connected {
            true => (true, format!(" to {}", state.peer)),
            false => (false, end.unwrap_or_default()),
        }
    }
}

fn settings(port: &PortPlan, raw: &raw::Memif) -> MemifSettings {
    let role = match raw.role {
        MemifRole::Server => Role::Server,
        MemifRole::Client => Role::Client,
    };
    let Ok(socket) = raw.socket.parse::<Address>();
    let mut settings = MemifSettings::new(socket, role);
    settings.id = raw.id;
    settings.secret.clone_from(&raw.secret);
    settings.name.clone_from(&port.name);
    settings.queues = port.lanes.len();
    settings.ring_size = raw.ring.unwrap_or(DEFAULT_RING) as usize;
    settings.buffer_size = raw.buffer.unwrap_or(2048) as usize;
    settings
}

/// Default number of slots of a ring, as in the rings of other drivers.
const DEFAULT_RING: u32 = 2048;
