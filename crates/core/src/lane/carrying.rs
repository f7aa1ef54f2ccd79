//! Arrivals of logical ports.

use super::Lane;
use crate::{App, PacketOwnership};

impl<A: App> Lane<A> {
    /// Shows a burst with packets of several ports: those of each port by themselves, in order of
    /// arrival. Carries out the verdicts of each port before the next one is shown.
    #[inline(never)]
    pub(super) fn show_logical(&mut self, at: usize) {
        let queue = self.egress.ports.queues[at].number;
        std::mem::swap(&mut self.burst, &mut self.mixed);
        while let Some(first) = self.mixed.packets().iter().find(|packet| packet.has_frame()) {
            let port = first.port();
            let of_port = self.mixed.packets().iter_mut().filter(|packet| packet.port() == port);
            for packet in of_port {
                if packet.has_frame()
                    && let Err(mut packet) = self.burst.push(packet.take())
                {
                    self.turn.pool.release(&mut packet); // unreachable: the bursts are equally long
                }
            }
            self.show(usize::from(port.0));
            self.resume();
            let (pool, hold) = (&mut self.turn.pool, &mut self.turn.hold);
            self.egress.dispatch(queue, &mut self.burst, pool, hold);
        }
        self.mixed.clear(&mut self.turn.pool);
    }
}
