//! TAP devices: as a port, and as the way between a port and Linux.

use fastlane_core::{KernelPath, Queue};
use fastlane_kernel::tap::{self, Tap, TapSettings};

use super::Opening;
use crate::Error;
use crate::config::plan::{KernelPlan, PortPlan, TapPlan, tap_plan};
use crate::config::written;

impl Opening<'_> {
    pub(super) fn open_tap(&mut self, port: &PortPlan, tap: &written::Tap) -> Result<(), Error> {
        let path = format!("ports.{}.driver.tap", port.name);
        let Tap { name, queues, .. } = self.make_tap(port, &tap_plan(&path, tap.clone())?)?;
        for (lane, queue) in port.lanes.iter().zip(queues) {
            self.add(*lane, port, Box::new(queue.with_port(port.id)));
        }
        self.facts[usize::from(port.id.0)].interface = Some(name);
        Ok(())
    }

    /// The kernel peer of a port whose device Linux does not have, if the plan wants one.
    pub(super) fn open_kernel_tap(&mut self, port: &PortPlan) -> Result<(), Error> {
        let KernelPlan::Tap(tap) = &port.kernel else { return Ok(()) };
        let Tap { name, queues, .. } = self.make_tap(port, tap)?;
        let number = usize::from(port.id.0);
        for (lane, queue) in port.lanes.iter().zip(queues) {
            let queue: Box<dyn Queue> = Box::new(queue.with_port(port.id));
            self.lanes[*lane].kernel[number] = Some(KernelPath { queue, receives: true });
        }
        self.facts[number].kernel = Some(format!("TAP {name}"));
        Ok(())
    }

    fn make_tap(&self, port: &PortPlan, tap: &TapPlan) -> Result<Tap, Error> {
        let settings = TapSettings {
            name: tap.name.clone(),
            mac: tap.mac.map(|mac| mac.0),
            mtu: tap.mtu,
            queues: port.lanes.len(),
            up: true,
            quiet: false,
            addresses: tap.addresses.clone(),
        };
        tap::open(settings).map_err(|error| Error::port(&port.name, error))
    }
}
