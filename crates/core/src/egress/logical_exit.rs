//! Logical ports: packets that arrive and leave by the queues of another port.

use fastlane_table::counters::PortCounter;

use super::{Egress, Exit};
use crate::observer::Departure;
use crate::{Packet, Pool, Sent};

impl Egress {
    /// Turns packets that arrived at a port into packets of the logical ports that it carries.
    /// Returns true if there is one.
    #[inline]
    pub(crate) fn decapsulate(&mut self, port: usize, packets: &mut [Packet]) -> bool {
        self.logical_ports.as_mut().is_some_and(|it| it.decapsulate(port, packets))
    }

    /// Sends a run by an exit of which the lane has no queue: by the carrier of a logical port, or
    /// by the lane that has a queue.
    #[cold]
    pub(super) fn send_without_queue(
        &mut self,
        exit: Exit,
        run: &mut [Packet],
        pool: &mut Pool,
    ) -> Departure {
        let carrier = self.logical_ports.as_ref().and_then(|it| it.carrier(exit.to));
        match carrier.filter(|carrier| self.ports.exit(*carrier, exit.queue).is_some()) {
            Some(carrier) => self.send_by_carrier(exit, carrier, run, pool),
            None => self.send_to_lane(exit, PortCounter::DropNoPort, run, pool),
        }
    }

    /// Sends a run of a logical port by a queue of its carrier. The logical port counts it.
    fn send_by_carrier(
        &mut self,
        exit: Exit,
        carrier: usize,
        run: &mut [Packet],
        pool: &mut Pool,
    ) -> Departure {
        let (Some(logical_ports), Some(slot)) =
            (&mut self.logical_ports, self.ports.exit(carrier, exit.queue))
        else {
            return Departure::NO_QUEUE; // unreachable: the caller has found both
        };
        let encapsulated = logical_ports.encapsulate(exit.to, run);
        let overhead = logical_ports.overhead(exit.to);
        let (run, without_room) = run.split_at_mut(encapsulated);
        let fitting = slot.make_transmittable(run, pool);
        let (run, not_copied) = run.split_at_mut(fitting);
        let mut sent = slot.queue.transmit(run, pool);
        if sent.taken < run.len() {
            sent = slot.retry(run, sent, pool);
        }
        let bytes = sent.bytes.saturating_sub((sent.packets * overhead) as u64);
        self.ports.count(exit.to, PortCounter::DropTransmitLength, without_room.len());
        self.ports.count(exit.to, PortCounter::DropCopyNoFrame, not_copied.len());
        self.ports.count_sent(exit.to, fitting, Sent { bytes, ..sent })
    }
}
