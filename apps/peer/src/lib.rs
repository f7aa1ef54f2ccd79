//! The neighbours of a UPF, as small as they can be, to try it with: `smf` speaks PFCP to it, `gnb`
//! has the users.
//!
//! They stand in for a whole core network: what an AMF would tell the base station over N2 is a
//! line of text, a [`Tunnel`](tunnel::Tunnel), that `smf` writes and `gnb` reads.

#![forbid(unsafe_code)]

pub mod gnb;
pub mod smf;
pub mod tunnel;
