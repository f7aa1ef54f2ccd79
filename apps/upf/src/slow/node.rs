//! The PFCP node: what it does with each datagram, each message of a lane, and when time passes.

pub mod record;
pub mod statistics;
