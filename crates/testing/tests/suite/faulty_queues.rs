//! Each kind of faulty queue fails the case that covers it.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

use fastlane_core::{Burst, Packet, PacketOwnership, Pool, Queue, Sent, Statistics};
use fastlane_testing::conformance;
use fastlane_testing::decorators::{Decorate, Decorated, Fault, Faults};

use crate::pipe::PipeRig;

/// Faults of about one packet in a thousand.
trait Kind {
    fn received() -> Faults {
        Faults::default()
    }
    fn sent() -> Faults {
        Faults::default()
    }
}

const SELDOM: f64 = 0.001;

struct Wrong<K>(PhantomData<K>);

impl<K: Kind> Decorate for Wrong<K> {
    fn decorate(queue: Box<dyn Queue>) -> Box<dyn Queue> {
        Box::new(Fault::new(queue, 1, K::received(), K::sent()))
    }
}

macro_rules! wrong {
    ($test:ident, $direction:ident { $fault:ident }, $expected:literal) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $test() {
            struct ThisKind;
            impl Kind for ThisKind {
                fn $direction() -> Faults {
                    Faults { $fault: SELDOM, ..Faults::default() }
                }
            }
            type ThisRig = Decorated<PipeRig, Wrong<ThisKind>>;
            conformance::every_frame_is_accounted_for::<ThisRig>();
        }
    };
}

wrong!(a_received_frame_is_lost, received { drop }, "not 1 times each");
wrong!(a_sent_frame_is_lost, sent { drop }, "not 1 times each");
wrong!(a_received_frame_comes_twice, received { duplicate }, "not 1 times each");
wrong!(a_sent_frame_leaves_twice, sent { duplicate }, "not 1 times each");
wrong!(received_frames_are_reordered, received { reorder }, "frames overtook others");
wrong!(sent_frames_are_reordered, sent { reorder }, "frames overtook others");
wrong!(sent_frames_are_damaged, sent { corrupt }, "");

/// A queue that transmits a burst only when the next one arrives.
struct Strands {
    queue: Box<dyn Queue>,
    waiting: Vec<Packet>,
}

impl Queue for Strands {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        self.queue.receive(burst, pool);
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let bytes = packets.iter().map(|packet| packet.len() as u64).sum();
        let taken = self.queue.transmit(&mut self.waiting, pool).taken;
        self.waiting.drain(..taken);
        self.waiting.extend(packets.iter_mut().map(PacketOwnership::take));
        Sent { taken: packets.len(), packets: packets.len(), bytes }
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.queue.flush(pool)
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&self) -> Statistics {
        self.queue.statistics()
    }

    fn close(&mut self, pool: &mut Pool) {
        self.waiting.iter_mut().for_each(|packet| pool.release(packet));
        self.queue.close(pool);
    }
}

impl Decorate for Strands {
    fn decorate(queue: Box<dyn Queue>) -> Box<dyn Queue> {
        Box::new(Self { queue, waiting: Vec::new() })
    }
}

#[test]
#[should_panic(expected = "1 frames, then silence: 0 of 1 frames arrived")]
fn a_tail_is_stranded() {
    conformance::no_tail_is_stranded_at_burst_32::<Decorated<PipeRig, Strands>>();
}

#[test]
#[should_panic(expected = "frame 0, 8 turns after it arrived: 0 of 1 frames arrived")]
fn one_frame_waits_for_the_next() {
    conformance::one_frame_waits_for_no_other::<Decorated<PipeRig, Strands>>();
}

/// A queue that loses three frames when it is closed.
struct Leaks(Strands);

impl Queue for Leaks {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        self.0.receive(burst, pool);
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        self.0.transmit(packets, pool)
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.0.transmit(&mut [], pool);
        self.0.flush(pool)
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    fn close(&mut self, pool: &mut Pool) {
        self.0.waiting.extend((0..3).filter_map(|_| {
            let frame = pool.take()?;
            pool.packet(frame, pool.data_offset(), 60, fastlane_core::PortId(0)).ok()
        }));
    }
}

impl Decorate for Leaks {
    fn decorate(queue: Box<dyn Queue>) -> Box<dyn Queue> {
        Box::new(Self(Strands { queue, waiting: Vec::new() }))
    }
}

#[test]
#[should_panic(expected = "frames that did not come back: [3]")]
fn frames_are_lost_at_the_end() {
    conformance::every_frame_is_accounted_for::<Decorated<PipeRig, Leaks>>();
}
