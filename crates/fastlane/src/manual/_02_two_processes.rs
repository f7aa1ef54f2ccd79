//! Two processes: a fast path that never waits, and a slow path that may be killed at any time.
//!
//! # The division
//! | fast path | slow path |
//! |---|---|
//! | every packet of the user traffic | everything else: protocols, APIs, storage |
//! | reads tables, writes lane state | writes tables, reads lane state |
//! | lanes, which neither block nor allocate | an ordinary program on the Linux stack |
//!
//! Both are processes, or the slow path is a thread of the fast path's process. They meet at the
//! session, a Unix socket with the application's name. To port an existing program, keep its
//! control plane and move only its packet loop.
//!
//! # Attaching
//! The slow path attaches by name and becomes the writer of the tables that it names:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), fastlane::slow::SlowError> {
//! let slow = fastlane::slow::attach_wait("firewall", Duration::from_secs(10))?;
//! let mut blocked = slow.hash_writer::<[u8; 4], u64>("blocked")?;
//! blocked.insert(&[10, 0, 0, 7], &1)?; // in force from the next packet on
//!
//! let hits = slow.state::<1>("blocked")?;
//! for (address, found) in blocked.iter() {
//!     println!("{address:?}: {} packets", hits.read(found.entry)[0]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A table has one writer at a time. A second one gets an error that names the first. A grant ends
//! with the attachment, even if the process is killed.
//!
//! # Messages and punted packets
//! With `"messages": {}` in the configuration, each lane has a ring to the slow path and one from
//! it. A lane sends a message, or punts a copy of a packet with a reason:
//!
//! ```no_run
//! use fastlane::{App, Packet, Turn, Verdict};
//!
//! /// Reason of a punted packet, and kind of a message: numbers that both processes know.
//! const UNKNOWN_PEER: u32 = 1;
//! const STOP: u32 = 2;
//!
//! struct Gateway;
//!
//! impl App for Gateway {
//!     fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
//!         for packet in packets {
//!             turn.punt(packet, UNKNOWN_PEER); // false if the ring is full, which is counted
//!             packet.set_verdict(Verdict::Drop);
//!         }
//!     }
//!
//!     fn turn(&mut self, turn: &mut Turn) {
//!         while let Some(message) = turn.receive() {
//!             if message.kind == STOP {
//!                 turn.end();
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! The slow path receives them from all lanes:
//!
//! ```no_run
//! # use std::time::Duration;
//! # fn serve(slow: &fastlane::slow::SlowPath) -> Result<(), fastlane::slow::SlowError> {
//! let mut messages = slow.messages()?;
//! while let Some(message) = messages.receive(Duration::from_secs(1))? {
//!     match message.punted() {
//!         Some(punted) => println!("reason {}: {} bytes", punted.reason, punted.length),
//!         None => println!("lane {}: kind {}", message.lane, message.kind),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A message is a hint: it is lost, and counted, if its ring is full. Information that must not be
//! lost belongs in lane state and [pending events](super::_03_tables).
//!
//! # The slow path restarts
//! The lanes continue with the tables as they are. The next slow path attaches, and each writer
//! repairs the operation that was in progress. Compare the tables with the wanted content, write
//! the difference, and scan the pending events.
//!
//! # The fast path restarts
//! Tables, AF_XDP sockets, TAP devices and frames outlive the process if `fastlane keep NAME`
//! runs, or under systemd with a file descriptor store. The next process inherits them, and
//! packets wait in the device's rings meanwhile. It must be of the same program, release and
//! configuration except `steer`, and start within a minute (`fastlane keep --seconds`); otherwise
//! everything starts empty and the log says why. Zero-copy queues of AF_XDP are opened anew. A
//! slow path sees [`SlowPath::is_alive`](crate::slow::SlowPath::is_alive) become false, drops its
//! writers and attaches again.
//!
//! Whole program: `examples/firewall.rs`. Reference: [`slow`](crate::slow).
