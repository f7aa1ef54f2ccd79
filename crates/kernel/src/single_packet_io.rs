//! Receiving where each packet is a system call and a copy.

use fastlane_core::{Burst, Packet, Pool};

/// What came of one attempt to receive.
pub(crate) enum Step {
    /// A packet.
    Packet(Packet),
    /// Something that is none, or nothing yet: the next attempt may find one.
    Again,
    /// Nothing is there.
    Nothing,
}

/// Appends packets to a burst, as long as there are some and there is room.
pub(crate) fn receive(
    burst: &mut Burst,
    pool: &mut Pool,
    mut receive_one: impl FnMut(&mut Pool) -> Step,
) {
    // Bounded also when all that arrives is lost.
    for _ in 0..burst.room() {
        match receive_one(pool) {
            Step::Packet(packet) => {
                if let Err(mut packet) = burst.push(packet) {
                    return pool.release(&mut packet); // not reached: there was room
                }
            }
            Step::Again => {}
            Step::Nothing => return,
        }
    }
}
