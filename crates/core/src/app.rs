//! Applications: the packet code of an author.

use crate::{Packet, Turn, Verdict};

/// Network application. Each lane has an instance of its own, which no other thread uses.
///
/// Any `FnMut(&mut Packet) -> Verdict` is an application too.
///
/// # Examples
/// An application that drops short packets and counts them, and reflects all others:
/// ```
/// use fastlane_core::{App, Packet, Turn, Verdict};
///
/// #[derive(Default)]
/// struct LongOnly {
///     short: u64,
/// }
///
/// impl App for LongOnly {
///     fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
///         for packet in packets {
///             let is_short = packet.len() < 60;
///             self.short += u64::from(is_short);
///             packet.set_verdict(if is_short { Verdict::Drop } else { Verdict::Reflect });
///         }
///     }
/// }
/// # use fastlane_core::{Lane, LaneConfig, Pool, Port, PortId};
/// # use fastlane_local::memory::Memory;
/// # use fastlane_table::SharedMemory;
/// # use fastlane_table::counters::Counters;
/// # let counters = Counters::create(1, 1)?;
/// # let mut pool = Pool::new(SharedMemory::create("frames", 64 * 2048)?, 2048, 192)?;
/// # let queue = Memory::filled(PortId(0), &mut pool, 8, &[0; 20])?;
/// # let port = Port {
/// #     queues: vec![Box::new(queue)], kernel: None, filter: None, counters: counters.port(0, 0),
/// # };
/// # let config = LaneConfig::new(pool, vec![port], counters.lane(0));
/// # let mut lane = Lane::new(LongOnly::default(), config);
/// # lane.turn();
/// # assert_eq!((lane.app().short, lane.close()), (8, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait App {
    /// Labels the packets of a burst with [`set_verdict`](Packet::set_verdict). The packets come
    /// from one queue. They are labelled [`Verdict::Kernel`] at first.
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn);

    /// Returns the shard of a packet that has arrived at a port with `lane-by: application`. All
    /// packets of a shard are shown to the instance of one lane. The lane of arrival calls it, so
    /// the result must depend only on the packet and on tables, read in this `turn`.
    ///
    /// # Examples
    /// ```
    /// use fastlane_core::{App, Packet, Turn};
    ///
    /// struct ByLastOctet;
    ///
    /// impl App for ByLastOctet {
    ///     fn process(&mut self, _: &mut [Packet], _: &mut Turn) {}
    ///
    ///     fn shard(&mut self, packet: &Packet, _: &Turn) -> u8 {
    ///         packet.bytes().get(33).copied().unwrap_or(0) // of the destination IPv4 address
    ///     }
    /// }
    /// ```
    fn shard(&mut self, packet: &Packet, turn: &Turn) -> u8 {
        let _ = (packet, turn);
        0
    }

    /// Runs once a turn, also without packets, for timers, messages and packets of the
    /// application's own.
    fn turn(&mut self, turn: &mut Turn) {
        let _ = turn;
    }
}

impl<F: FnMut(&mut Packet) -> Verdict> App for F {
    #[inline]
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for packet in packets {
            let verdict = self(packet);
            packet.set_verdict(verdict);
        }
    }
}
