//! What belongs to a port and not to a lane.

use fastlane_af_xdp as af_xdp;
use fastlane_core::Filter;
use fastlane_kernel::af_packet;
use fastlane_steer::{Counts, Rules};
use fastlane_table::counters::{Counters, PortCounter};

use super::filter::Followed;
use super::links::Link;

/// The steering programs attached to interfaces, which are detached when this is dropped; the links
/// of devices that Linux does not have.
#[derive(Default)]
pub(crate) struct Devices {
    pub(super) af_xdp: Vec<(usize, af_xdp::Device)>,
    pub(super) af_packet: Vec<(usize, af_packet::Device)>,
    pub(super) links: Vec<Link>,
    followed: Vec<(usize, Followed)>,
}

impl Devices {
    /// Lets the lanes follow the rules of a port themselves.
    pub(crate) fn add_software(&mut self, port: usize, rules: &Rules) {
        self.followed.push((port, Followed::new(rules)));
    }

    /// The filter of one more lane, if it is the lanes that follow the rules of a port.
    pub(super) fn filter(&mut self, port: usize) -> Option<Box<dyn Filter>> {
        let followed = self.followed.iter_mut().find(|(number, _)| *number == port)?;
        followed.1.filter()
    }

    /// Replaces the rules of a port while it runs: each frame is judged by the old ones or by the
    /// new ones.
    pub(crate) fn replace_rules(&mut self, port: usize, rules: &Rules) -> Result<(), String> {
        if let Some((_, device)) = self.af_xdp.iter_mut().find(|(number, _)| *number == port) {
            return device.replace_rules(rules).map_err(|error| error.to_string());
        }
        if let Some((_, device)) = self.af_packet.iter_mut().find(|(number, _)| *number == port) {
            return device.replace_rules(rules).map_err(|error| error.to_string());
        }
        let followed = self.followed.iter_mut().find(|(number, _)| *number == port);
        let (_, followed) = followed.ok_or(
            "it was started without `steer`, so nobody looks at its frames; restart it with one",
        )?;
        followed.replace(rules);
        Ok(())
    }

    /// Publishes what steering has counted, and passes the states of links on.
    pub(crate) fn publish(&mut self, counters: &Counters) {
        self.links.iter_mut().for_each(Link::follow);
        self.followed.iter_mut().for_each(|(_, followed)| followed.sweep());
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
