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

    fn warning(&self) -> Option<String> {
        let (state, queues) = (fastlane_memif::Link::state(self), self.queues());
        let rings = state.transmit_rings;
        (state.connected && rings < queues).then(|| {
            format!(
                "its peer receives from {rings} of {queues} queues: packets that the other lanes \
                 send through it are dropped (`drop_transmit_error`); give the peer {queues} rings \
                 to receive from, or the port fewer lanes"
            )
        })
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use fastlane_core::PortId;
    use fastlane_table::counters::Counters;
    use serde_json::json;

    use super::super::link_state::Link;
    use super::*;
    use crate::captured_log::logged;
    use crate::config::plan::Plan;
    use crate::config::raw::Driver;

    /// Returns what is logged once a peer with `rings` rings each way meets a port of two lanes.
    fn link_to(rings: usize) -> String {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("memif.sock").display().to_string();
        let raw = json!({
            "ports": {"wire": {"driver": {"memif": {"socket": socket, "role": "server"}}}},
            "lanes": {"cpus": [0, 1]},
        });
        let plan = Plan::new(serde_json::from_value(raw).unwrap(), "test").unwrap();
        let port = &plan.ports[0];
        let Driver::Memif(raw) = &port.driver else { panic!("memif") };
        let (link, _queues) = fastlane_memif::open(settings(port, raw), port.id).unwrap();
        let Ok(address) = socket.parse::<Address>();
        let peer = MemifSettings { queues: rings, ..MemifSettings::new(address, Role::Client) };
        let _peer = fastlane_memif::open(peer, PortId(0)).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while !link.state().connected {
            assert!(Instant::now() < end, "no connection");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut link = Link::new(port, Box::new(link), vec![]);
        logged(|| link.update(&Counters::create(2, 1).unwrap()))
    }

    #[test]
    fn a_peer_with_fewer_rings_than_lanes_is_a_warning() {
        let log = link_to(1);
        assert!(log.contains("WARN port `wire`: its peer receives from 1 of 2 queues"), "{log}");
        let log = link_to(2);
        assert!(log.contains("link up") && !log.contains("WARN"), "{log}");
    }
}
