//! Packet tests of the lanes, without Linux. Numbers in names are those of the test cases in the
//! README.

mod frames;
mod fuzz;
mod support;

mod charging;
mod compiled;
mod control;
mod downlink;
mod fixed;
mod golden;
mod hold;
mod messages;
mod properties;
mod uplink;
mod users;

/// Maximum number of sessions of a test.
const SESSIONS: usize = 1024;
