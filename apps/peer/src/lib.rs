//! Minimal peers to test a UPF with: `smf` is its PFCP peer, `gnb` has the users.
//!
//! They replace a whole core network. The information that an AMF sends to a base station over N2
//! is a line of text, a [`Tunnel`](tunnel::Tunnel), that `smf` writes and `gnb` reads.

#![forbid(unsafe_code)]

pub mod gnb;
pub mod smf;
pub mod tunnel;
