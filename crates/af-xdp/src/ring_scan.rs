//! Finding the frames that the kernel has of one queue, by reading the queue's rings.
//!
//! The kernel keeps receiving during the scan. It takes an entry of the fill ring, writes into the
//! frame, publishes the entry of the receive ring, and last the new consumer index of the fill ring
//! (`xsk_flush` in net/xdp/xsk.c). So the fill ring is read first, and a frame may be seen in both.

use std::thread;
use std::time::{Duration, Instant};

use crate::frame_set::FrameSet;
use crate::ring::{self, Rings, TxWakeup};
use crate::socket::Socket;

/// Timeout for frames in flight, and the poll interval.
const TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// Minimum number of polls before the timeout counts: on a busy machine one sleep may be long.
const MIN_POLLS: usize = 50;
/// Number of comparisons of the fill and the receive index, and the time between two of them. A
/// single comparison may fall between the kernel's two stores.
const SAMPLES: usize = 8;
const SAMPLE_INTERVAL: Duration = Duration::from_micros(20);

/// Frames that the kernel has of one queue.
#[derive(Debug)]
pub(crate) struct RingScan {
    /// All frames in flight.
    pub(crate) frames: FrameSet,
    /// Number of them that are for receiving; the others are to be transmitted.
    pub(crate) receiving: usize,
    /// Addresses in the transmit ring, one for each chunk.
    pub(crate) sending: Vec<u64>,
}

impl RingScan {
    /// Waits until every frame in flight is in a ring, and reads the rings. Empties the completion
    /// ring: its frames are free. `none` is the empty set of the pool's frames.
    ///
    /// # Errors
    /// Returns the reason if the rings do not account for every frame. Then the queue cannot be
    /// taken over.
    pub(crate) fn new(socket: &Socket, rings: &mut Rings, none: &FrameSet) -> Result<Self, String> {
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
        let receiving = frames.len();
        let entries = rings.transmit.waiting();
        let last = entries.as_ref().map(|all| {
            all.iter().filter(|it| it.ends_packet()).map(|entry| entry.address).collect()
        });
        if !frames.add(&ring("transmit", last)?) {
            return Err("a frame is in two of its rings".to_owned());
        }
        let sending = entries.unwrap_or_default().iter().map(|entry| entry.address).collect();
        Ok(Self { frames, receiving, sending })
    }
}

/// Makes the kernel send what it can, and waits until all frames that left the transmit ring are in
/// the completion ring. Descriptors that the kernel found invalid are never completed.
fn await_completions(socket: &Socket, rings: &mut Rings) -> Result<(), String> {
    let mut deadline = Deadline::new();
    loop {
        let before = rings.transmit.pending();
        // Also waits for a system call of the predecessor that has not returned.
        let result = ring::wake_tx(socket);
        let taken = rings.transmit.consumed();
        // The kernel sends only while the completion ring has space.
        let completed = rings.completion.skip();
        let completed = completed.ok_or_else(|| "its completion ring is damaged".to_owned())?;
        let statistics = socket.statistics().ok_or("its statistics cannot be read")?;
        let invalid = statistics.tx_invalid_descs as u32;
        let in_flight = taken.wrapping_sub(completed).wrapping_sub(invalid);
        let pending = rings.transmit.pending();
        let stands_still = result == TxWakeup::Down || pending == before;
        if in_flight == 0 && taken == rings.transmit.consumed() && (pending == 0 || stands_still) {
            return Ok(());
        }
        if deadline.has_passed() {
            return Err(match in_flight as i32 {
                1.. => format!("{in_flight} frames are in flight and do not come back"),
                _ => format!("it does not stop sending: {pending} frames in its transmit ring"),
            });
        }
        if in_flight != 0 {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Checks that each frame that left the fill ring is in the receive ring. A zero-copy driver keeps
/// many in rings of its own, which are not mapped here.
fn await_receptions(rings: &Rings) -> Result<(), String> {
    let (mut samples, mut most) = (0, i32::MIN);
    let mut deadline = Deadline::new();
    while samples < SAMPLES || most < 0 {
        let received = rings.receive.produced();
        let taken = rings.fill.consumed();
        // Never more than the driver really has; less while the kernel publishes a batch.
        if rings.receive.produced() == received {
            samples += 1;
            most = most.max(taken.wrapping_sub(received) as i32);
        }
        if deadline.has_passed() {
            return Err("its receive ring does not agree with its fill ring".to_owned());
        }
        match samples < SAMPLES {
            true => spin(),
            false => thread::sleep(POLL_INTERVAL),
        }
    }
    match most {
        0 => Ok(()),
        _ => Err(format!("its driver has {most} frames that its rings do not name")),
    }
}

/// Spins for [`SAMPLE_INTERVAL`]: a sleep could be much longer.
fn spin() {
    let start = Instant::now();
    while start.elapsed() < SAMPLE_INTERVAL {
        std::hint::spin_loop();
    }
}

/// End of a wait: after [`TIMEOUT`] and at least [`MIN_POLLS`] polls.
struct Deadline {
    end: Instant,
    polls: usize,
}

impl Deadline {
    fn new() -> Self {
        Self { end: Instant::now() + TIMEOUT, polls: 0 }
    }

    /// Counts a poll; returns true if it was the last one.
    fn has_passed(&mut self) -> bool {
        self.polls += 1;
        self.polls >= MIN_POLLS && Instant::now() > self.end
    }
}
