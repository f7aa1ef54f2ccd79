//! The one copy between unlike memories.

use crate::queue::Takes;
use crate::{Home, Packet, Pool, Queue};

/// Makes the packets of a run such that `exit` takes them, where need be by copying them into its
/// memory. Returns how many are, from the front: the rest found no frame there.
#[inline]
pub(crate) fn fit(exit: &mut dyn Queue, run: &mut [Packet], pool: &mut Pool) -> usize {
    let home = match exit.takes() {
        Takes::Any => return run.len(),
        Takes::Pool => pool.home(),
        Takes::Of(home) => home,
    };
    // The packets of a run came from one queue, so they are of one home; unless the application has
    // made some in this turn, and put them in the places of others.
    let unlike = run.first().is_some_and(|first| first.home() != home);
    if unlike || pool.is_mixed() {
        return relocate(exit, home, run, pool);
    }
    run.len()
}

fn relocate(exit: &mut dyn Queue, home: Home, run: &mut [Packet], pool: &mut Pool) -> usize {
    for (place, packet) in run.iter_mut().enumerate() {
        if packet.home() == home {
            continue;
        }
        // What cannot be sent anywhere need not be carried: an empty one is refused by name.
        let length = if packet.is_beyond_completion() { 0 } else { packet.len() };
        let Some(mut copy) = exit.blank(length, pool) else { return place };
        copy.be_copy_of(packet);
        pool.release(packet);
        *packet = copy;
    }
    run.len()
}

#[cfg(test)]
mod tests;
