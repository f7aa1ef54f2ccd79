//! Tables: shared memory that the slow path writes and the lanes read without a lock.
//!
//! # Kinds
//! A lane gets its readers from [`LaneInfo`](crate::LaneInfo), the slow path its writers from
//! [`SlowPath`](crate::slow::SlowPath).
//!
//! | kind | lookup | reader | writer |
//! |---|---|---|---|
//! | hash | exact match of a key | `hash` | `hash_writer` |
//! | array | index | `array` | `array_writer` |
//! | record | one value, exchanged as a whole | `record` | `record_writer` |
//! | longest prefix | IPv4 or IPv6 address | `lpm4`, `lpm6` | `lpm4_writer`, `lpm6_writer` |
//! | classifier | first rule that matches a packet | `classifier` | `classifier_writer` |
//!
//! The configuration names each table with its capacity, which is ignored for a record:
//! `"tables": { "users": { "capacity": 1024 }, "limits": { "capacity": 1 } }`. Memory is allocated
//! once, at start. Keys and values are plain data without padding. Both sides name the
//! same types, and a mismatch is an error when they attach.
//!
//! # Reading
//! A lane reads with its [`Turn`](crate::Turn). The value is borrowed for that turn, so it cannot
//! change or be reused while the application has it:
//!
//! ```no_run
//! use fastlane::table::{HashReader, RecordReader};
//! use fastlane::{App, Packet, Turn, Verdict};
//!
//! struct Limiter {
//!     users: HashReader<[u8; 4], u64>,
//!     longest: RecordReader<u64>,
//! }
//!
//! impl App for Limiter {
//!     fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
//!         let longest = self.longest.get(turn).copied().unwrap_or(1514);
//!         for packet in packets {
//!             let key = packet.bytes().first_chunk().copied().unwrap_or_default();
//!             let known = self.users.get(turn, &key).is_some();
//!             let passes = known && packet.len() as u64 <= longest;
//!             packet.set_verdict(if passes { Verdict::Reflect } else { Verdict::Drop });
//!         }
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     fastlane::main(|lane| {
//!         Ok(Limiter { users: lane.hash("users")?, longest: lane.record("limits")? })
//!     })
//! }
//! ```
//!
//! [`HashReader::get_many`](crate::table::HashReader::get_many) looks up a whole burst and overlaps
//! its cache misses.
//!
//! # Writing
//! One store publishes an operation: a lane sees the value before or after it, never a mixture. A
//! replaced slot is reused after a grace period, when each lane has finished a turn.
//!
//! ```
//! use std::sync::Arc;
//!
//! use fastlane::table::{HashWriter, Readers, Spec, State};
//!
//! // In one process, as in a test; a slow path gets its writers from `SlowPath`.
//! let memory = Spec::hash::<[u8; 4], u64>("users", 1024).create()?;
//! let readers = Arc::new(Readers::unknown());
//! let mut users = HashWriter::<[u8; 4], u64>::attach(&memory, &readers)?;
//! let entry = users.insert(&[10, 0, 0, 1], &5)?;
//! assert_eq!(users.insert(&[10, 0, 0, 1], &6)?, entry); // an update keeps the entry id
//!
//! // Packets and octets of each user, one copy for each of two lanes.
//! let memory = Spec::state::<2>("users", 1024, 2).create()?;
//! let usage = State::<2>::attach(&memory)?;
//! let lane = usage.lane(1);
//! lane.at(entry).add(0, 1);
//! lane.at(entry).add(1, 60);
//! assert_eq!(usage.read(entry), [1, 60]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `insert` fails if the table is full, or after one second in which a lane has not finished a turn
//! and no slot is free; as long as that lane stands, it fails at once. The table is unchanged then.
//!
//! # Lane state
//! [`LaneInfo::state`](crate::LaneInfo::state) gives a lane words for each entry of a table, under
//! the table's name. The lane writes them, the slow path reads them, and a removed entry's words
//! are zeroed before another key gets the entry. With [`Shape::PerLane`](crate::Shape::PerLane)
//! each lane writes a copy of its own and readers add them up.
//! [`Shape::Owner`](crate::Shape::Owner) is one copy, for keys whose packets all reach one lane
//! ([sharding](super::_04_sharding)).
//!
//! # Pending events
//! [`LaneInfo::pending`](crate::LaneInfo::pending) is for events that must not be lost, such as
//! "this quota is used up". The lane raises an event of an entry and sends a message as a hint. The
//! slow path scans after it has attached, after messages were lost, and periodically. It
//! acknowledges each event when it has handled it.
//!
//! # Routes of Linux
//! With `"mirror": {}` the framework keeps the links, addresses, neighbours and routes of Linux in
//! tables. [`LaneInfo::mirror`](crate::LaneInfo::mirror) returns their reader, whose `route4` and
//! `route6` return the next hop. The program `apps/router` forwards by nothing else.
