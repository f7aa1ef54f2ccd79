//! A session management function as a UPF sees it: PFCP (TS 29.244) over one UDP socket.
//!
//! It sets the association up, keeps a window of requests outstanding, sends them again as clause
//! 6.4 wants, and answers what the UPF asks meanwhile.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

mod client;
mod cpu;
mod request;
mod run;
#[cfg(test)]
mod tests;

pub use client::{Client, Counts};
pub use cpu::CpuTime;
pub use run::{Phase, Report, Smf};

/// What the sessions are.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// How many.
    pub count: u32,
    /// The base station's address, which downlink packets are sent to.
    pub gnb: IpAddr,
    /// Whether users have an IPv4 address.
    pub v4: bool,
    /// Whether users have an IPv6 prefix.
    pub v6: bool,
    /// The IPv4 address of the first user; the others follow. Without it the UPF chooses.
    pub first_user: Option<Ipv4Addr>,
    /// The network instance of N3.
    pub access: String,
    /// The network instance of N6.
    pub core: String,
    /// The QoS flow: 0 to 63.
    pub qfi: u8,
    /// The maximum bit rate of each direction in kilobits a second.
    pub rate: u64,
    /// After so many octets the UPF reports usage.
    pub threshold: u64,
    /// Where web requests of users are redirected to: a URL.
    pub redirect: Option<String>,
}

/// Why an SMF cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SmfError {
    /// The socket failed.
    #[error("the socket {local} for PFCP failed: {error}")]
    Socket {
        /// Its address.
        local: SocketAddr,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// A request was sent as often as it may be and not answered.
    #[error("{upf} does not answer: is there a UPF, and may {local} talk to it?")]
    Silent {
        /// The UPF.
        upf: SocketAddr,
        /// Our address.
        local: SocketAddr,
    },
    /// The UPF refused.
    #[error("the UPF refuses the {what}: {fault}")]
    Refused {
        /// What it was asked for.
        what: &'static str,
        /// Its cause, and the offending element.
        fault: fastlane_pfcp::Fault,
    },
    /// The CPU time of a process cannot be read.
    #[error("the CPU time of process {pid} cannot be read: {error}")]
    Cpu {
        /// The process.
        pid: u32,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
}

/// A session that is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Established {
    /// Its number at the UPF.
    pub seid: u64,
    /// The UPF's tunnel endpoint for packets from the user.
    pub uplink: u32,
    /// Its address.
    pub upf: Option<IpAddr>,
    /// The user's IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// The user's IPv6 prefix.
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
