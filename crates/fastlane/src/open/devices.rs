//! What belongs to a port and not to a lane.

use fastlane_af_xdp as af_xdp;
use fastlane_kernel::af_packet;
use fastlane_steer::Counts;
use fastlane_table::counters::{Counters, PortCounter};

use super::links::Link;

/// The steering programs attached to interfaces, which are detached when this is dropped; the links
/// of devices that Linux does not have.
#[derive(Default)]
pub(crate) struct Devices {
    pub(super) af_xdp: Vec<(usize, af_xdp::Device)>,
    pub(super) af_packet: Vec<(usize, af_packet::Device)>,
    pub(super) links: Vec<Link>,
}

impl Devices {
    /// Publishes what steering has counted, and passes the states of links on.
    pub(crate) fn publish(&mut self, counters: &Counters) {
        self.links.iter_mut().for_each(Link::follow);
        for (port, device) in &self.af_xdp {
            device.counts().iter().for_each(|counts| publish(counters, *port, counts));
        }
        for (port, device) in &self.af_packet {
            device.counts().iter().for_each(|counts| publish(counters, *port, counts));
        }
    }
}

fn publish(counters: &Counters, port: usize, counts: &Counts) {
    let port = counters.shared_port(port);
    port.store(PortCounter::SteerClaimed, counts.claimed);
    port.store(PortCounter::SteerPassed, counts.passed);
    port.store(PortCounter::SteerUncovered, counts.uncovered);
    port.store(PortCounter::SteerTooLong, counts.too_long);
}
