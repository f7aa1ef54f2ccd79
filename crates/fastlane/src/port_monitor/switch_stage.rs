//! A switch of a port, and its stages.

use std::sync::mpsc::SyncSender;
use std::time::Instant;

use fastlane_kernel::{Interface, PciDevice};

use crate::config::plan::PortPlan;
use crate::open::{Reopened, ReopenedDevice};
use crate::session::SwitchReport;

/// Switch of a port in progress.
pub(super) struct PortSwitch {
    /// Settings of the port with the new driver.
    pub(super) plan: PortPlan,
    /// Mode selected by the new driver.
    pub(super) mode: String,
    pub(super) queues: usize,
    /// Interface of the new device.
    pub(super) interface: Option<Interface>,
    pub(super) stage: Stage,
    pub(super) begin: Instant,
    /// Begin of the stage.
    pub(super) since: Instant,
    /// Begin of the time without a device, and its length at the end.
    pub(super) silence: Option<Instant>,
    pub(super) silent_seconds: f64,
    /// Losses of the port at the begin.
    pub(super) losses: u64,
    pub(super) reply: SyncSender<Result<SwitchReport, String>>,
}

/// Stage of a switch.
pub(super) enum Stage {
    /// The lanes are giving up the queues of a PCI device.
    Leaving(PciDevice),
    /// The lanes take the frames of these queues back.
    Emptying(PciDevice),
    /// The PCI device has another driver, and is to be opened.
    Opening(PciDevice),
    /// It has its former driver again, for a reason, and is to be opened.
    Restoring(String),
    /// The lanes are receiving the queues of the former driver, for a reason.
    Rejoining(Box<Reopened>, String),
    /// The new device waits for its peer.
    Connecting(Box<Reopened>),
    /// The lanes are receiving the new queues.
    Joining(Box<ReopenedDevice>),
    /// The lanes are giving up the former queues.
    Settling,
    /// The lanes take the frames of the former queues back.
    Closing,
    /// The lanes are giving up the new queues again, for a reason.
    Withdrawing(String),
    /// The lanes take the frames of the new queues back.
    Undoing(String),
}

impl PortSwitch {
    /// Records what the new device has become.
    pub(super) fn record(&mut self, opened: &Reopened) {
        self.mode.clone_from(&opened.mode);
        self.queues = opened.queues.len();
        self.interface.clone_from(&opened.interface);
    }
}

/// Outcome of a look at a switch.
pub(super) enum Progress {
    /// Another stage.
    Stage(Stage),
    /// The same stage.
    Wait(Stage),
    /// Its end, for this reason.
    Refuse(String),
}
