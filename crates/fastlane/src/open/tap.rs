//! TAP devices: as a port, and as the way between a port and Linux.

use fastlane_core::{KernelPath, Queue};
use fastlane_kernel::Interface;
use fastlane_kernel::tap::{self, Tap, TapQueue, TapSettings};

use super::{Hardware, Opening};
use crate::Error;
use crate::config::plan::{KernelPlan, PortPlan, TapPlan, tap_plan};
use crate::config::written;

impl Opening<'_> {
    pub(super) fn open_tap(&mut self, port: &PortPlan, tap: &written::Tap) -> Result<(), Error> {
        let path = format!("ports.{}.driver.tap", port.name);
        let tap = tap_plan(&path, tap.clone())?;
        let queues = port.lanes.len();
        let Tap { name, queues, .. } = self.tap(port, &tap, Hardware::default(), queues)?;
        for (lane, queue) in port.lanes.iter().zip(queues) {
            self.add(*lane, port, Box::new(queue.with_port(port.id)));
        }
        self.facts[usize::from(port.id.0)].interface = Some(name);
        Ok(())
    }

    /// The kernel peer of a port whose device Linux does not have, if the plan wants one. It has
    /// the device's address and MTU unless others are written.
    pub(super) fn open_kernel_tap(&mut self, port: &PortPlan) -> Result<(), Error> {
        let KernelPlan::Tap(tap) = &port.kernel else { return Ok(()) };
        let number = usize::from(port.id.0);
        // Only lanes that can pass on what Linux sends: it spreads its flows over all queues.
        let has_port = |lane: &usize| !self.lanes[*lane].queues[number].is_empty();
        let lanes: Vec<usize> = port.lanes.iter().copied().filter(has_port).collect();
        let Tap { name, queues, .. } = self.tap(port, tap, self.hardware[number], lanes.len())?;
        let carrier = queues.first().map(TapQueue::carrier).transpose();
        self.peers[number] = carrier.map_err(|error| Error::port(&port.name, error))?;
        for (lane, queue) in lanes.into_iter().zip(queues) {
            let queue: Box<dyn Queue> = Box::new(queue.with_port(port.id));
            self.lanes[lane].kernel[number] = Some(KernelPath { queue, receives: true });
        }
        let twin = Interface::query(&name).map_err(|error| Error::port(&port.name, error))?;
        self.twins[number] = Some(twin.index);
        self.facts[number].kernel = Some(format!("TAP {name}"));
        Ok(())
    }

    /// Makes a TAP device for a port, or takes over the one that it had.
    fn tap(
        &mut self,
        port: &PortPlan,
        tap: &TapPlan,
        hardware: Hardware,
        queues: usize,
    ) -> Result<Tap, Error> {
        let number = usize::from(port.id.0);
        let tap = match &mut self.inherited {
            Some(inherited) => {
                inherited.tap(number, queues).map_err(|reason| Error::port(&port.name, reason))?
            }
            None => make_tap(port, tap, hardware, queues)?,
        };
        self.keep_tap(number, &tap.queues);
        Ok(tap)
    }
}

fn make_tap(
    port: &PortPlan,
    tap: &TapPlan,
    hardware: Hardware,
    queues: usize,
) -> Result<Tap, Error> {
    let settings = TapSettings {
        name: tap.name.clone(),
        mac: tap.mac.map(|mac| mac.0).or(hardware.mac),
        mtu: tap.mtu.or(hardware.mtu),
        queues,
        up: true,
        quiet: false,
        addresses: tap.addresses.clone(),
    };
    tap::open(settings).map_err(|error| Error::port(&port.name, error))
}
