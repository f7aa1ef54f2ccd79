//! One end of a memif connection, to measure it and to test it:
//!
//! `exchange ROLE SOCKET WHAT SECONDS [LENGTH]`, where ROLE is `server` or `client`, and WHAT is
//! * `swap`: swap the Ethernet addresses and send back;
//! * `send`: frames of LENGTH octets, as fast as it goes, receiving what comes;
//! * `ping`: one frame each 10 microseconds, and the median of the times that they take to come
//!   back;
//! * `count`: receive.
//!
//! With a negative number of seconds it begins when the first frame comes. At the end it says how
//! many packets it received and sent, and the CPU time of a packet.

use std::time::{Duration, Instant};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue};
use fastlane_memif::{MemifSettings, Role};
use fastlane_table::SharedMemory;

/// Returns the CPU time of this thread in nanoseconds (proc_pid_schedstat(5)).
fn cpu() -> u64 {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("scheduler statistics");
    text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn swap(packets: &mut [Packet]) {
    for packet in packets {
        if let Some(addresses) = packet.header::<[u8; 12]>() {
            addresses.rotate_left(6);
        }
    }
}

struct End {
    queue: Box<dyn Queue>,
    pool: Pool,
    burst: Burst,
    received: u64,
    sent: u64,
}

impl End {
    fn transmit(&mut self, swaps: bool) {
        let packets = self.burst.packets();
        if swaps {
            swap(packets);
        }
        let sent = self.queue.transmit(packets, &mut self.pool);
        self.queue.flush(&mut self.pool);
        self.sent += sent.packets as u64;
        self.burst.clear(&mut self.pool);
    }

    /// Fills the burst with new frames.
    fn make(&mut self, length: usize) {
        while self.burst.room() > 0
            && let Some(mut packet) = self.pool.alloc_packet(length, PortId(0))
        {
            let header = [0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0];
            packet.bytes_mut()[..14].copy_from_slice(&header);
            drop(self.burst.push(packet));
        }
    }
}

/// Returns the median round-trip time of a frame in nanoseconds.
fn ping(end: &mut End, length: usize, time: Duration) -> u64 {
    let (mut times, began) = (Vec::with_capacity(1 << 20), Instant::now());
    while began.elapsed() < time {
        let header = [0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0];
        let mut packet = end.pool.alloc_packet(length, PortId(0)).expect("a frame");
        packet.bytes_mut()[..14].copy_from_slice(&header);
        let sent = Instant::now();
        end.queue.transmit(std::slice::from_mut(&mut packet), &mut end.pool);
        end.queue.flush(&mut end.pool);
        while end.burst.is_empty() && sent.elapsed() < Duration::from_millis(100) {
            end.queue.receive(&mut end.burst, &mut end.pool);
        }
        times.push(sent.elapsed().as_nanos() as u64);
        end.burst.clear(&mut end.pool);
        while sent.elapsed() < Duration::from_micros(10) {
            std::hint::spin_loop();
        }
    }
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [role, socket, what, seconds, rest @ ..] = &arguments[..] else {
        panic!("exchange server|client SOCKET swap|send|ping|count SECONDS [LENGTH]");
    };
    let role = if role == "server" { Role::Server } else { Role::Client };
    let length: usize = rest.first().map_or(64, |length| length.parse().expect("a length"));
    let seconds: f64 = seconds.parse().expect("seconds");
    let address = socket.parse().expect("an address");
    let settings = MemifSettings { ring_size: 2048, ..MemifSettings::new(address, role) };
    let (_link, mut queues) = fastlane_memif::open(settings, PortId(0)).expect("a port");
    let memory = SharedMemory::create("exchange", 4096 * 2048).expect("memory");
    let pool = Pool::new(memory, 2048, 192).expect("a pool");
    let queue = Box::new(queues.remove(0));
    let mut end = End { queue, pool, burst: Burst::new(32), received: 0, sent: 0 };
    let mut began = (seconds > 0.0).then(|| (Instant::now(), cpu()));
    let time = Duration::from_secs_f64(seconds.abs());
    let mut turns = 0u64;
    if what == "ping" {
        return println!("median {} ns", ping(&mut end, length, time));
    }
    loop {
        end.queue.receive(&mut end.burst, &mut end.pool);
        end.received += end.burst.len() as u64;
        match what.as_str() {
            "swap" => end.transmit(true),
            "send" => {
                end.burst.clear(&mut end.pool);
                end.make(length);
                end.transmit(false);
            }
            _ => end.burst.clear(&mut end.pool),
        }
        turns += 1;
        if turns.is_multiple_of(1024) {
            match began {
                None if end.received > 0 => began = Some((Instant::now(), cpu())),
                Some((began, _)) if began.elapsed() > time => break,
                _ => {}
            }
        }
    }
    let spent = cpu() - began.map_or(0, |(_, cpu)| cpu);
    let each = spent as f64 / end.received.max(1) as f64;
    let End { received, sent, .. } = end;
    let full = received as f64 / turns as f64;
    println!("received {received} sent {sent} ns {each:.2} burst {full:.1}");
}
