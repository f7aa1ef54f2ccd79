//! Transmit and receive loops for ports that need a system call and a copy for each packet.

use fastlane_core::{Burst, Packet, Pool, Sent};

/// Result of one receive attempt.
pub(crate) enum Received {
    /// A received packet.
    Packet(Packet),
    /// Empty usable; the next attempt may succeed.
    Skipped,
    /// Empty is pending.
    Empty,
}

/// Appends pending packets to a burst as long as it has room.
pub(crate) fn receive(
    burst: &mut Burst,
    pool: &mut Pool,
    mut receive_one: impl FnMut(&mut Pool) -> Received,
) {
    // Bounded also when all that arrives is lost.
    for _ in 0..burst.room() {
        match receive_one(pool) {
            Received::Packet(packet) => {
                if let Err(mut packet) = burst.push(packet) {
                    return pool.release(&mut packet); // not reached: there was room
                }
            }
            Received::Skipped => {}
            Received::Empty => return,
        }
    }
}

/// The socket buffer or device queue is full: the packet stays with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Transmits packets until `send` reports that the queue is full. `send` returns false for a packet
/// that it cannot send at all, which is then dropped.
#[inline]
pub(crate) fn transmit(
    packets: &mut [Packet],
    pool: &mut Pool,
    mut send: impl FnMut(&mut Packet) -> Result<bool, Full>,
) -> Sent {
    let mut sent = Sent::default();
    for packet in packets {
        match send(packet) {
            Ok(true) => {
                sent.packets += 1;
                sent.bytes += packet.len() as u64;
            }
            Ok(false) => {}
            Err(Full) => break,
        }
        pool.release(packet);
        sent.taken += 1;
    }
    sent
}
