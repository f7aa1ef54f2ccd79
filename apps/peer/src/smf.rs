//! Session management function as a UPF sees it: PFCP (TS 29.244) over one UDP socket.
//!
//! It sets up the association, keeps a window of requests outstanding, retransmits them (clause
//! 6.4) and answers requests of the UPF.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

mod client;
mod cpu;
mod phase;
mod request;
#[cfg(test)]
mod tests;

pub use client::{Client, Counts};
pub use cpu::CpuTime;
pub use phase::{Phase, Report, Smf};

/// Parameters of the sessions.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// Number of sessions.
    pub count: u32,
    /// Address of the base station, to which downlink packets are sent.
    pub gnb: IpAddr,
    /// True if users have an IPv4 address.
    pub v4: bool,
    /// True if users have an IPv6 prefix.
    pub v6: bool,
    /// IPv4 address of the first user; the other users get the following ones. If absent, the UPF
    /// chooses.
    pub first_user: Option<Ipv4Addr>,
    /// Network instance of N3.
    pub access: String,
    /// Network instance of N6.
    pub core: String,
    /// QoS flow identifier, 0 to 63.
    pub qfi: u8,
    /// Maximum bit rate of each direction, in kilobits a second.
    pub rate: u64,
    /// Volume threshold of usage reports, in octets.
    pub threshold: u64,
    /// URL to which HTTP requests of users are redirected.
    pub redirect: Option<String>,
}

/// Error that ends an SMF.
#[derive(Debug, thiserror::Error)]
pub enum SmfError {
    /// The socket failed.
    #[error("the socket {local} for PFCP failed: {error}")]
    Socket {
        /// Local address of the socket.
        local: SocketAddr,
        /// Error of the system call.
        #[source]
        error: std::io::Error,
    },
    /// The UPF did not answer a request and its retransmissions.
    #[error("{upf} does not answer: is there a UPF, and may {local} talk to it?")]
    Silent {
        /// Address of the UPF.
        upf: SocketAddr,
        /// Local address.
        local: SocketAddr,
    },
    /// The UPF refused a request.
    #[error("the UPF refuses the {what}: {fault}")]
    Refused {
        /// Name of the request.
        what: &'static str,
        /// Cause and offending element of the response.
        fault: fastlane_pfcp::Fault,
    },
    /// The CPU time of a process cannot be read.
    #[error("the CPU time of process {pid} cannot be read: {error}")]
    Cpu {
        /// Process id.
        pid: u32,
        /// Error of the system call.
        #[source]
        error: std::io::Error,
    },
}

/// Identifiers and addresses of an established session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Established {
    /// SEID of the session at the UPF.
    pub seid: u64,
    /// TEID of the UPF for uplink packets.
    pub uplink: u32,
    /// Address of the UPF's tunnel endpoint.
    pub upf: Option<IpAddr>,
    /// IPv4 address of the user.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 prefix of the user.
    pub v6: Option<std::net::Ipv6Addr>,
}

impl fmt::Display for Phase {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Establish => "establishment",
            Self::Modify => "modification",
            Self::Delete => "deletion",
        })
    }
}
