//! PFCP session.

use std::net::IpAddr;

use super::{Buffering, Far, Pdr, Qer, Reporting, Urr};

/// Session index: the slot of a session, less than the capacity of the tables. The lower 8 bits are
/// its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// CP F-SEID (TS 29.244 clause 8.2.37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpSeid {
    /// SEID of the control plane.
    pub seid: u64,
    /// Address for our requests.
    pub address: IpAddr,
}

/// PFCP session and all its rules, in the order of their creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Session index.
    pub id: SessionId,
    /// UP SEID: the index in the lower 32 bits, a generation that never repeats in the upper ones.
    pub seid: u64,
    /// CP F-SEID.
    pub control: CpSeid,
    /// Index of its association.
    pub peer: u16,
    /// Version, increased by each change of any session. Published rules and stored responses refer
    /// to it.
    pub version: u64,
    /// Generation of the next TEID of this index, increased by each allocation.
    pub generation: u32,
    /// Last version that discarded all packets buffered before (DROBU, clause 8.2.70); 0 if none.
    pub discarded: u64,
    /// The record is a tombstone, kept while a request can be retransmitted.
    pub is_deleted: bool,
    /// Time of establishment, in nanoseconds of `CLOCK_REALTIME`.
    pub established: u64,
    /// PDN type (clause 8.2.79): 1 IPv4, 2 IPv6, 3 both; 0 if absent.
    pub pdn_type: u8,
    /// SUPI, as the digits of the IMSI, if the control plane sends it (User ID, clause 8.2.101).
    pub supi: Option<String>,
    /// DNN (clause 8.2.117).
    pub network: Option<String>,
    /// User plane inactivity timer in seconds (clause 8.2.57).
    pub inactivity_s: Option<u32>,
    /// FQ-CSIDs of the session as received (clause 8.2.61).
    pub sets: Vec<Vec<u8>>,
    /// PDRs.
    pub pdrs: Vec<Pdr>,
    /// FARs.
    pub fars: Vec<Far>,
    /// QERs.
    pub qers: Vec<Qer>,
    /// URRs.
    pub urrs: Vec<Urr>,
    /// BARs.
    pub bars: Vec<Buffering>,
    /// Reports sent to the control plane and not acknowledged.
    pub reporting: Reporting,
}

impl Session {
    /// Returns the number of PDRs, FARs, QERs, URRs and BARs.
    #[must_use]
    pub const fn rules(&self) -> [usize; 5] {
        let Self { pdrs, fars, qers, urrs, bars, .. } = self;
        [pdrs.len(), fars.len(), qers.len(), urrs.len(), bars.len()]
    }
}
