//! Link state of devices that Linux does not have. It is logged, and copied to the carrier of the
//! port's kernel peer.

use fastlane_kernel::tap::Carrier;
use fastlane_table::counters::{Counters, DownReason};

use crate::config::plan::PortPlan;

/// Link of one port.
pub(super) struct Link {
    number: usize,
    port: String,
    /// `None` while the device is removed.
    device: Option<Box<dyn LinkState>>,
    /// Carriers of its kernel peer and of those of its VLANs.
    peers: Vec<Carrier>,
    /// Last state and detail.
    last: Option<(bool, String)>,
}

/// Source of a link state.
pub(crate) trait LinkState: Send {
    /// Returns whether the link is up, and a detail to log behind `up` or `down`.
    fn state(&self) -> (bool, String);

    /// Returns what is wrong with a link that is up, and the remedy.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Returns true if the port monitor reports the state.
    fn is_monitored(&self) -> bool {
        false
    }

    /// Ends the arrivals of the device before its queues are closed, if it can.
    fn end_arrivals(&self) {}
}

/// Link of an interface that Linux keeps, whose state the port monitor follows.
pub(super) struct OfInterface;

impl LinkState for OfInterface {
    fn state(&self) -> (bool, String) {
        (true, String::new())
    }

    fn is_monitored(&self) -> bool {
        true
    }
}

impl Link {
    /// Creates the link of the named port. The carriers of `peers` follow it.
    pub(super) fn new(port: &PortPlan, device: Box<dyn LinkState>, peers: Vec<Carrier>) -> Self {
        let (number, port) = (usize::from(port.id.0), port.name.clone());
        Self { number, port, device: Some(device), peers, last: None }
    }

    /// Returns the number of the port.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Gives up the device and returns it. The carrier of the kernel peer goes down.
    pub(super) fn remove_device(&mut self) -> Option<Box<dyn LinkState>> {
        if self.last.take().is_some_and(|(was_up, _)| was_up) {
            self.set_carrier(false);
        }
        self.device.take()
    }

    /// Follows the device of a reopened port.
    pub(super) fn set_device(&mut self, device: Box<dyn LinkState>) {
        self.device = Some(device);
    }

    /// Ends the arrivals of the device before its queues are closed, if it can.
    pub(super) fn end_arrivals(&self) {
        self.device.iter().for_each(|device| device.end_arrivals());
    }

    /// Reads the state; on a change, logs and exports it and sets the carrier of the kernel peer.
    pub(super) fn update(&mut self, counters: &Counters) {
        let Some(device) = &self.device else { return };
        let now = device.state();
        if self.last.as_ref() == Some(&now) {
            return;
        }
        let (up, detail) = &now;
        let up = *up;
        if !device.is_monitored() {
            tracing::info!("port `{}`: link {}{detail}", self.port, if up { "up" } else { "down" });
            if let Some(warning) = device.warning() {
                tracing::warn!("port `{}`: {warning}", self.port);
            }
            counters.set_down_reason(self.number, (!up).then_some(DownReason::LinkDown));
        }
        let before = self.last.replace(now);
        if before.is_some_and(|(before, _)| before == up) {
            return;
        }
        self.set_carrier(up);
    }

    fn set_carrier(&self, up: bool) {
        for error in self.peers.iter().filter_map(|peer| peer.set(up).err()) {
            tracing::warn!(
                "port `{}`: the carrier of its kernel peer cannot be set: {error}",
                self.port
            );
        }
    }
}
