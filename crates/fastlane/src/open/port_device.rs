//! The device of one port: what belongs to no lane and is closed with the port.

use fastlane_af_xdp as af_xdp;
use fastlane_kernel::af_packet;
use fastlane_steer::Counts;

use super::link_state::LinkState;

/// Device of a port that was taken away from the others. Of each kind there is one at most.
pub(crate) struct PortDevice {
    pub(super) xdp: Vec<af_xdp::Device>,
    pub(super) packet: Vec<af_packet::Device>,
    pub(super) dpdk: Vec<fastlane_dpdk::Link>,
    pub(super) link: Vec<Box<dyn LinkState>>,
}

impl PortDevice {
    /// Leaves all frames to Linux, and ends what arrives otherwise. Frames that have arrived are in
    /// the rings when it returns.
    ///
    /// # Errors
    /// Returns the kernel's refusal; the frames are claimed until the device is closed.
    pub(super) fn release(&mut self) -> Result<(), String> {
        self.link.iter().for_each(|link| link.end_arrivals());
        let xdp = self.xdp.iter_mut().map(|it| it.release().map_err(|error| error.to_string()));
        let packet =
            self.packet.iter_mut().map(|it| it.release().map_err(|error| error.to_string()));
        xdp.chain(packet).collect()
    }

    /// Returns the counters of steering, if the device steers and the kernel lets them be read.
    pub(super) fn counts(&self) -> Option<Counts> {
        let xdp = self.xdp.iter().filter_map(|device| device.counts().ok());
        let packet = self.packet.iter().filter_map(|device| device.counts().ok());
        xdp.chain(packet).reduce(|mut sum, counts| {
            add_counts(&mut sum, &counts);
            sum
        })
    }

    /// Closes the device and detaches its steering program. Returns the last counters.
    pub(super) fn close(self) -> Option<Counts> {
        let counts = self.counts();
        self.xdp.into_iter().for_each(af_xdp::Device::close);
        self.packet.into_iter().for_each(af_packet::Device::close);
        counts
    }
}

/// Adds counters of steering.
pub(super) fn add_counts(sum: &mut Counts, counts: &Counts) {
    sum.claimed += counts.claimed;
    sum.passed += counts.passed;
    sum.uncovered += counts.uncovered;
    sum.too_long += counts.too_long;
}
