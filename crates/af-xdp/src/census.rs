//! Which frames of a queue the kernel has, as its rings tell.
//!
//! The kernel goes on receiving meanwhile. It takes a place of the fill ring, writes into the
//! frame, and later shows first the entry of the receive ring, then that the place is free
//! (`xsk_flush` in net/xdp/xsk.c). So the fill ring is read first, and a frame may be seen in both.

use std::thread;
use std::time::{Duration, Instant};

use crate::socket::{Kick, Rings, Socket};

/// How long frames on their way are waited for, and how often it is looked, at least so many times:
/// on a busy machine a pause may be long.
const WAIT: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_micros(100);
const LOOKS: usize = 50;
/// How often the counts of the fill and the receive ring are compared, and the time between: now
/// and then that is just between the kernel's two stores.
const SAMPLES: usize = 8;
const PAUSE: Duration = Duration::from_micros(20);

/// Frames by their index, one bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frames {
    words: Vec<u64>,
    count: u32,
    shift: u32,
}

impl Frames {
    /// None of a pool's; `frame_size` is a power of two.
    pub(crate) fn none(count: u32, frame_size: usize) -> Self {
        let words = vec![0; count.div_ceil(64) as usize];
        Self { words, count, shift: frame_size.trailing_zeros() }
    }

    /// How many there are in the pool.
    pub(crate) fn all(&self) -> u32 {
        self.count
    }

    /// Bytes in one.
    pub(crate) fn frame_size(&self) -> usize {
        1 << self.shift
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        self.words.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// One bit a frame, the first in the lowest bit of the first word.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds those that all addresses lie in; false when one is outside or comes twice.
    fn add_all(&mut self, addresses: impl Iterator<Item = u64>) -> bool {
        for address in addresses {
            let index = address >> self.shift;
            if index >= u64::from(self.count) {
                return false;
            }
            let (word, bit) = (&mut self.words[(index / 64) as usize], 1 << (index % 64));
            if *word & bit != 0 {
                return false;
            }
            *word |= bit;
        }
        true
    }

    /// Adds those of another account; false when some were there already.
    pub(crate) fn add(&mut self, other: &Self) -> bool {
        let apart = self.words.iter().zip(&other.words).all(|(ours, theirs)| ours & theirs == 0);
        self.unite(other);
        apart
    }

    fn unite(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(ours, theirs)| *ours |= theirs);
    }
}

/// The frames that the kernel has of one queue.
#[derive(Debug)]
pub(crate) struct Census {
    /// All of them.
    pub(crate) frames: Frames,
    /// How many of them are lent for receiving; the rest is to be sent.
    pub(crate) receiving: usize,
}

impl Census {
    /// Waits until every frame of the kernel's is in a ring, and reads the rings. Takes what is in
    /// the completion ring out: those frames are free.
    ///
    /// Says why it cannot be told which frames the kernel has.
    pub(crate) fn take(socket: &Socket, rings: &mut Rings, none: &Frames) -> Result<Self, String> {
        await_completions(socket, rings)?;
        await_receptions(rings)?;
        let damaged = |ring: &str| format!("its {ring} ring is damaged");
        let ring = |name: &str, addresses: Option<Vec<u64>>| {
            let mut frames = none.clone();
            let sound = addresses.is_some_and(|all| frames.add_all(all.into_iter()));
            if sound { Ok(frames) } else { Err(damaged(name)) }
        };
        let mut frames = ring("fill", rings.fill.waiting())?;
        let received = rings.receive.waiting();
        let received = received.map(|all| all.iter().map(|entry| entry.address).collect());
        frames.unite(&ring("receive", received)?);
        let receiving = frames.count();
        let sending = rings.transmit.waiting();
        let sending = sending.map(|all| all.iter().map(|entry| entry.address).collect());
        if !frames.add(&ring("transmit", sending)?) {
            return Err("a frame is in two of its rings".to_owned());
        }
        Ok(Self { frames, receiving })
    }
}

/// Has sent what can be sent, and waits until all that has left the transmit ring has come to the
/// completion ring. What the kernel found invalid never comes.
fn await_completions(socket: &Socket, rings: &mut Rings) -> Result<(), String> {
    let mut patience = Patience::new();
    loop {
        let before = rings.transmit.pending();
        // This also waits for a call of the predecessor's that has not ended.
        let answer = socket.kick();
        let taken = rings.transmit.consumed();
        // Only with room in this ring does the kernel send more.
        let completed = rings.completion.skip();
        let completed = completed.ok_or_else(|| "its completion ring is damaged".to_owned())?;
        let statistics = socket.statistics().ok_or("its statistics cannot be read")?;
        let invalid = statistics.tx_invalid_descs as u32;
        let under_way = taken.wrapping_sub(completed).wrapping_sub(invalid);
        let pending = rings.transmit.pending();
        let stands_still = answer == Kick::Down || pending == before;
        if under_way == 0 && taken == rings.transmit.consumed() && (pending == 0 || stands_still) {
            return Ok(());
        }
        if patience.is_over() {
            return Err(match under_way as i32 {
                1.. => format!("{under_way} frames are on their way and do not come back"),
                _ => format!("it does not stop sending: {pending} frames in its transmit ring"),
            });
        }
        if under_way != 0 {
            thread::sleep(STEP);
        }
    }
}

/// Makes sure that each frame that has left the fill ring has come to the receive ring: a driver
/// without copies keeps many in its own, where they cannot be told from free ones.
fn await_receptions(rings: &Rings) -> Result<(), String> {
    let (mut samples, mut most) = (0, i32::MIN);
    let mut patience = Patience::new();
    while samples < SAMPLES || most < 0 {
        let received = rings.receive.produced();
        let taken = rings.fill.consumed();
        // Never more than the driver really has; less while the kernel shows a batch.
        if rings.receive.produced() == received {
            samples += 1;
            most = most.max(taken.wrapping_sub(received) as i32);
        }
        if patience.is_over() {
            return Err("its receive ring does not agree with its fill ring".to_owned());
        }
        match samples < SAMPLES {
            true => pause(),
            false => thread::sleep(STEP),
        }
    }
    match most {
        0 => Ok(()),
        _ => Err(format!("its driver has {most} frames, and nobody can tell which")),
    }
}

/// A little time, whatever else the machine has to do.
fn pause() {
    let start = Instant::now();
    while start.elapsed() < PAUSE {
        std::hint::spin_loop();
    }
}

/// How long something may take.
struct Patience {
    end: Instant,
    looks: usize,
}

impl Patience {
    fn new() -> Self {
        Self { end: Instant::now() + WAIT, looks: 0 }
    }

    /// One more look was taken: whether it was the last.
    fn is_over(&mut self) -> bool {
        self.looks += 1;
        self.looks >= LOOKS && Instant::now() > self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_outside_twice_or_there() {
        let mut frames = Frames::none(70, 2048);
        assert!(frames.add_all([0, 2048 * 69 + 256, 2048 * 64].into_iter()));
        assert!(!frames.add_all([2048 * 69].into_iter()), "twice");
        for outside in [2048 * 70, u64::MAX] {
            assert!(!frames.clone().add_all([outside].into_iter()), "{outside}");
        }
        assert_eq!(frames.count(), 3);
        assert!(frames.contains(69) && frames.contains(0) && !frames.contains(1));
        assert!(!frames.contains(70) && !frames.contains(u32::MAX));
        let mut other = Frames::none(70, 2048);
        assert!(other.add_all([2048].into_iter()));
        assert!(frames.add(&other) && !frames.add(&other));
        assert_eq!(frames.count(), 4);
    }
}
