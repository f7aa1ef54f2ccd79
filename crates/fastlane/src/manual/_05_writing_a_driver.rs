//! Writing a driver: the trait `Queue` of `fastlane-core`.
//!
//! A driver is a type that implements `Queue`: one receive and transmit queue pair of a port, in
//! one lane. Two methods are required; the others have defaults for a device that is polled.
//!
//! | method | duty |
//! |---|---|
//! | `receive` | append packets that have arrived, at most `burst.room()` |
//! | `transmit` | take packets from the front of a slice, as many as there is space for |
//! | `transmit_run` | the same for a whole burst: empties what it takes, or forgets all of it |
//! | `congestion`, `is_loop` | how full the ring is; that a lane receives only what it has sent |
//! | `flush` | send what was taken, and return frames that have left to the pool |
//! | `tx_memory`, `alloc_packet` | the memory that the device transmits from without a copy |
//! | `arm`, `interrupt` | the descriptor on which an idle lane waits (`Lane::wait_on`) |
//! | `statistics` | losses that the queue has counted; called ten times a second, reads memory |
//! | `loss_reader` | losses that the device or the kernel counts; the main thread reads them |
//! | `end_arrivals` | before the close: `receive` returns only what has arrived |
//! | `disconnect` | for a port that a running lane loses, as by `fastlane switch` |
//! | `close` | return all frames to the pool |
//!
//! # Rules
//! * A frame is in exactly one place: the pool, a packet, or the device. At its end a lane counts
//!   them, and a missing one is exit status 5. Release a packet that you do not pass on
//!   (`Pool::release`).
//! * An open queue neither allocates, locks, logs, waits nor returns errors. It counts.
//! * A full device is no error: `transmit` returns how many packets it took. The lane flushes,
//!   tries once more, then drops the rest and counts it as `drop_transmit_full`.
//! * `transmit` completes partial checksums (`Packet::complete_checksum`) unless the device does.
//! * The queue must not rely on the position of a packet in a slice.
//!
//! # A queue
//! ```
//! use std::collections::VecDeque;
//!
//! use fastlane::{Packet, PortId};
//! use fastlane_core::{Burst, Pool, Queue, Sent, TxMemory};
//!
//! /// Loop through copies: what is sent is received again.
//! struct Copies {
//!     port: PortId,
//!     frames: VecDeque<Vec<u8>>,
//! }
//!
//! impl Queue for Copies {
//!     fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
//!         while burst.room() > 0 {
//!             let Some(frame) = self.frames.front() else { return };
//!             let Some(mut packet) = pool.alloc_packet(frame.len(), self.port) else { return };
//!             packet.bytes_mut().copy_from_slice(frame);
//!             self.frames.pop_front();
//!             let _ = burst.push(packet); // there is room
//!         }
//!     }
//!
//!     fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
//!         let mut sent = Sent::default();
//!         for packet in packets {
//!             if packet.len() > 0 && packet.complete_checksum() {
//!                 self.frames.push_back(packet.bytes().to_vec()); // a real driver has a ring
//!                 sent.packets += 1;
//!                 sent.bytes += packet.len() as u64;
//!             }
//!             sent.taken += 1;
//!             pool.release(packet);
//!         }
//!         sent
//!     }
//!
//!     fn tx_memory(&self) -> TxMemory {
//!         TxMemory::Any
//!     }
//! }
//!
//! # use fastlane::counters::Counters;
//! # use fastlane::table::SharedMemory;
//! # use fastlane_core::{Lane, LaneConfig, Port};
//! # let counters = Counters::create(1, 1)?;
//! # let pool = Pool::new(SharedMemory::create("frames", 64 * 2048)?, 2048, 192)?;
//! let queue = Copies { port: PortId(0), frames: VecDeque::from([vec![0; 60]]) };
//! # let port = Port {
//! #     queues: vec![Box::new(queue)], kernel: None, filter: None, counters: counters.port(0, 0),
//! # };
//! # let config = LaneConfig::new(pool, vec![port], counters.lane(0));
//! # let mut lane = Lane::new(|_: &mut Packet| fastlane::Verdict::Reflect, config);
//! # assert_eq!((lane.turn(), lane.turn(), lane.close()), (1, 1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Conformance
//! Implement `fastlane_testing::Rig`, which creates a device and its peer, and write one line:
//!
//! ```ignore
//! fastlane_testing::conformance!(datagrams, DatagramRig);
//! ```
//!
//! The suite sends bursts of every size, runs the pool dry, fills the device, removes the peer and
//! accounts for every frame. A driver outside of this repository is used as in
//! `examples/driver.rs`: its program creates the lanes itself, without [`main`](crate::main), and
//! needs `fastlane-core`. For a word of the configuration it must be added to this tree;
//! ARCHITECTURE.md names the files. Models: `fastlane_local::memory` is the shortest,
//! `fastlane_kernel::udp` has system calls, `fastlane_af_xdp` has rings.
//!
//! Whole driver: `examples/driver.rs`.
