//! Cost of the framework on DPDK in nanoseconds per packet: a lane that swaps addresses, and the
//! same loop written by hand in C, in alternation in one process. Not part of the suite; run it
//! with
//!
//! ```text
//! crates/dpdk/plugin/build target/release && crates/dpdk/tests/bare/build target/release
//! cargo test --release -p fastlane-dpdk --test cost -- --ignored --nocapture
//! ```
#![allow(unsafe_code, reason = "a function in C to compare with")]

mod support;

use std::ffi::CString;
use std::os::raw::c_void;
use std::sync::Arc;

use fastlane_core::{App, Burst, Idle, Lane, LaneConfig, Packet, Pool, Port, Queue, Turn, Verdict};
use fastlane_dpdk::{Device, DeviceSettings, Environment, HugePages};
use fastlane_table::counters::{Counters, PortCounter};
use fastlane_testing::Spec;
use fastlane_wire::Ethernet;
use rustix::time::{ClockId, clock_gettime};
use support::{environment_with, lanes, open, queues};

const PAIRS: usize = 61;
const ROUNDS: u32 = 20_000;
/// Packets in flight in a looped ring.
const IN_FLIGHT: usize = 256;

type Bare = unsafe extern "C" fn(u16, u32) -> u64;

struct MacSwap;

impl App for MacSwap {
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for packet in packets {
            let Some(ethernet) = packet.header::<Ethernet>() else {
                packet.set_verdict(Verdict::Drop);
                continue;
            };
            std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
            packet.set_verdict(Verdict::Reflect);
        }
    }
}

fn bare() -> Bare {
    let folder = std::env::current_exe().unwrap();
    let path = folder.ancestors().nth(2).unwrap().join("libbare.so");
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the library is ours and is never closed; the function has this signature.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "build libbare.so first");
        let symbol = libc::dlsym(library, c"bare_macswap".as_ptr());
        assert!(!symbol.is_null());
        std::mem::transmute::<*mut c_void, Bare>(symbol)
    }
}

/// Returns the CPU time of this thread in nanoseconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn quartiles(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| numbers[numbers.len() * quarter / 4])
}

fn fill(queue: &mut dyn Queue, pool: &mut Pool) {
    for _ in 0..IN_FLIGHT {
        let mut packet = queue.alloc_packet(60, pool).expect("a frame");
        assert_eq!(queue.transmit(std::slice::from_mut(&mut packet), pool).packets, 1);
    }
}

/// Measures the queue without a lane.
fn direct(queue: &mut dyn Queue, pool: &mut Pool) -> Vec<f64> {
    let mut burst = Burst::new(32);
    let mut times = Vec::new();
    for _ in 0..PAIRS {
        let (mut packets, start) = (0, cpu());
        for _ in 0..ROUNDS {
            queue.receive(&mut burst, pool);
            for packet in burst.packets() {
                if let Some(ethernet) = packet.header::<Ethernet>() {
                    std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
                }
            }
            packets += queue.transmit(burst.packets(), pool).packets;
            burst.clear(pool);
        }
        times.push((cpu() - start) / packets as f64);
    }
    times
}

fn compare(environment: &Arc<Environment>, name: &str, port: u16, filled: bool) {
    let spec = Spec { burst: 32, ..Spec::default() };
    let mut lanes = lanes(environment, &spec);
    let mut device: Device = open(environment, &DeviceSettings::new(name), &lanes, 1);
    let mut queue = queues(&mut device).pop().unwrap();
    let (mut pool, memory) = lanes.pop().unwrap();
    if filled {
        fill(&mut queue, &mut pool);
    }
    let direct = direct(&mut queue, &mut pool);
    let counters = Counters::create(1, 1).unwrap();
    let ports = vec![Port {
        queues: vec![Box::new(queue)],
        kernel: None,
        filter: None,
        counters: counters.port(0, 0),
    }];
    let parts = LaneConfig { idle: Idle::Busy, ..LaneConfig::new(pool, ports, counters.lane(0)) };
    let mut lane = Lane::new(MacSwap, parts);
    let bare = bare();
    let (mut ours, mut theirs, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let (before, start) = (counters.port_total(0, PortCounter::SentPackets), cpu());
        for _ in 0..ROUNDS {
            lane.turn();
        }
        let packets = counters.port_total(0, PortCounter::SentPackets) - before;
        let a = (cpu() - start) / packets as f64;
        let start = cpu();
        // SAFETY: the port runs, and nobody else uses its queue meanwhile.
        let packets = unsafe { bare(port, ROUNDS) };
        let b = (cpu() - start) / packets as f64;
        ours.push(a);
        theirs.push(b);
        more.push(a - b);
    }
    println!("{name}, ns per packet, quartiles: lane {:.2?}", quartiles(ours));
    println!("  queue alone {:.2?}", quartiles(direct));
    println!("  by hand {:.2?}; difference {:.2?}", quartiles(theirs), quartiles(more));
    assert_eq!(lane.close(), 0);
    drop((lane, device, memory));
}

#[test]
#[ignore = "a measurement"]
fn a_lane_against_a_loop_by_hand() {
    let Some(environment) = environment_with(HugePages::Auto) else { return };
    println!("{}", environment.warning().unwrap_or("huge pages"));
    compare(&environment, "net_ring0", 0, true);
    compare(&environment, "net_null0,size=64,copy=0", 0, false);
}
