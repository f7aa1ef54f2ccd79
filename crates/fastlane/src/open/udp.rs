//! Ordinary UDP sockets as ports.

use fastlane_kernel::udp;

use super::Opening;
use crate::Error;
use crate::config::plan::PortPlan;
use crate::config::written;

impl Opening<'_> {
    pub(super) fn open_udp(
        &mut self,
        port: &PortPlan,
        settings: &written::UdpSocket,
    ) -> Result<(), Error> {
        let queues = udp::open(settings.address, port.lanes.len())
            .map_err(|error| Error::port(&port.name, error))?;
        for (lane, queue) in port.lanes.iter().zip(queues) {
            self.add(*lane, port, Box::new(queue.with_port(port.id)));
        }
        Ok(())
    }
}
