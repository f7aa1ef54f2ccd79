//! Switching of a port whose PCI device changes between the kernel's driver and vfio-pci, by which
//! DPDK drives it.
//!
//! The device is only one of the two, so the port has none for a while: its packets are dropped and
//! counted meanwhile. If the new driver does not open it, it gets the former one back.

use std::time::Duration;

use fastlane_core::QueueChange;
use fastlane_kernel::{Interface, PciDevice};
use fastlane_table::counters::DownReason;

use super::monitored_port::{device, down_reason};
use super::switch_stage::{PortSwitch, Progress, Stage};
use super::{PortMonitor, lock};
use crate::config::plan::PortPlan;
use crate::config::raw::Driver;
use crate::open::Reopened;

/// Longest time in which a device that has another driver is opened: its interface must appear, and
/// DPDK resets it.
const OPEN: Duration = Duration::from_secs(10);

impl PortMonitor<'_> {
    /// Returns the PCI device that must change its driver for a switch, or `None` if the new device
    /// can be opened beside the present one.
    ///
    /// # Errors
    /// The reason why it cannot change it.
    pub(super) fn rebound(
        &self,
        index: usize,
        now: &PortPlan,
    ) -> Result<Option<PciDevice>, String> {
        let before = &self.ports[index];
        let text = |error: fastlane_kernel::Error| error.to_string();
        match (&before.plan.driver, &now.driver) {
            // An interface that exists is another device.
            (Driver::Dpdk(_), Driver::AfXdp(_) | Driver::AfPacket(_))
                if Interface::query(device(now)).is_err() =>
            {
                Ok(PciDevice::at(device(&before.plan)))
            }
            (Driver::AfXdp(_) | Driver::AfPacket(_), Driver::Dpdk(_)) => {
                let Some(interface) = &before.interface else { return Ok(None) };
                if !lock(self.around.devices).has_dpdk() {
                    let reason = "DPDK runs only in an application that has started with a port on \
                                  it; start it so";
                    return Err(reason.to_owned());
                }
                let mine = PciDevice::of(interface).map_err(text)?;
                Ok(mine.filter(|mine| mine.address() == device(now)))
            }
            _ => Ok(None),
        }
    }

    /// Lets the device of a port claim nothing more, and the lanes give up its queues.
    pub(super) fn leave(&mut self, index: usize) {
        let port = &self.ports[index];
        self.around.counters.set_down_reason(port.number, Some(DownReason::Reopening));
        lock(self.around.devices).release_device(&port.plan);
        // Packets have no way out of the port from here on.
        self.request(index, QueueChange::Join);
        self.request(index, QueueChange::Settle);
    }

    /// Continues a switch with a stage in which the port has no device.
    pub(super) fn advance_rebinding(
        &mut self,
        index: usize,
        switch: &mut PortSwitch,
        stage: Stage,
    ) -> Progress {
        match stage {
            Stage::Leaving(device) => {
                self.withdraw();
                self.retire(index);
                Progress::Stage(Stage::Emptying(device))
            }
            Stage::Emptying(device) => match give(&device, &switch.plan) {
                Ok(()) => Progress::Stage(Stage::Opening(device)),
                Err(reason) => self.restore(index, &device, reason),
            },
            Stage::Opening(device) => match self.open_rebound(&switch.plan) {
                Ok(opened) => {
                    switch.record(&opened);
                    Progress::Stage(Stage::Connecting(Box::new(opened)))
                }
                Err(_) if switch.since.elapsed() < OPEN => Progress::Wait(Stage::Opening(device)),
                Err(reason) => self.restore(index, &device, reason),
            },
            Stage::Restoring(reason) => {
                let former = self.ports[index].plan.clone();
                match self.open_rebound(&former) {
                    Ok(mut opened) => {
                        self.pass_queues(index, std::mem::take(&mut opened.queues));
                        Progress::Stage(Stage::Rejoining(Box::new(opened), reason))
                    }
                    Err(_) if switch.since.elapsed() < OPEN => {
                        Progress::Wait(Stage::Restoring(reason))
                    }
                    Err(other) => {
                        Progress::Refuse(format!("{reason}; and its former driver: {other}"))
                    }
                }
            }
            Stage::Rejoining(opened, reason) => {
                let port = &mut self.ports[index];
                port.interface.clone_from(&opened.interface);
                port.is_due = true;
                if let Some(interface) = &port.interface {
                    self.around.counters.set_down_reason(port.number, down_reason(interface));
                }
                // The interface is another one than before, with the same name.
                let (plan, Reopened { interface, device, .. }) = (port.plan.clone(), *opened);
                match self.start_device(index, &plan, interface.as_ref(), device) {
                    Ok(()) => {
                        switch.silence = None;
                        Progress::Refuse(reason)
                    }
                    Err(other) => {
                        Progress::Refuse(format!("{reason}; and its former driver: {other}"))
                    }
                }
            }
            other => Progress::Wait(other),
        }
    }

    /// Gives a device its former driver back.
    fn restore(&mut self, index: usize, device: &PciDevice, reason: String) -> Progress {
        match give(device, &self.ports[index].plan) {
            Ok(()) => Progress::Stage(Stage::Restoring(reason)),
            Err(other) => Progress::Refuse(format!("{reason}; and its former driver: {other}")),
        }
    }

    /// Opens a device that has got its driver. Its interface is set up.
    fn open_rebound(&self, plan: &PortPlan) -> Result<Reopened, String> {
        if plan.driver.is_shared() {
            let interface = Interface::query(device(plan)).map_err(|error| error.to_string())?;
            if !interface.up {
                interface.set_up().map_err(|error| error.to_string())?;
            }
        }
        self.open_beside(plan)
    }
}

/// Gives a device to the driver that a port needs.
fn give(device: &PciDevice, plan: &PortPlan) -> Result<(), String> {
    let given = match plan.driver {
        Driver::Dpdk(_) => device.give_to_vfio(),
        _ => device.give_to_kernel(),
    };
    given.map_err(|error| error.to_string())
}
