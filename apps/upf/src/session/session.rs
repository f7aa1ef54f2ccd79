//! A session.

use std::net::IpAddr;

use super::{Buffering, Far, Pdr, Qer, Reporting, Urr};

/// The place of a session: less than the capacity of the tables. Its lower 8 bits are its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// The control plane's end of a session (F-SEID, TS 29.244 clause 8.2.37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpSeid {
    /// Its number there.
    pub seid: u64,
    /// Where requests of ours go.
    pub address: IpAddr,
}

/// A PFCP session and all its rules. Rules are in the order in which they were created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its place.
    pub id: SessionId,
    /// Its number at this end: the place in the lower 32 bits, a number that is never used again
    /// in the upper ones.
    pub seid: u64,
    /// The control plane's end.
    pub control: CpSeid,
    /// The place of the association that it belongs to.
    pub peer: u16,
    /// Grows with each change, of any session: what is published and answered is compared to it.
    pub version: u64,
    /// What the next tunnel identifier of its place begins with: grows with each that is given out.
    pub generation: u32,
    /// The last version that gave up all packets held before it (DROBU, clause 8.2.70); 0: none.
    pub discarded: u64,
    /// Whether it is gone: it is kept for as long as a request can be repeated.
    pub is_deleted: bool,
    /// When it was established: nanoseconds of `CLOCK_REALTIME`.
    pub established: u64,
    /// PDN type (clause 8.2.79): 1 IPv4, 2 IPv6, 3 both; 0 when it was not said.
    pub pdn_type: u8,
    /// The subscriber's permanent identifier, if the control plane says who it is (User ID, clause
    /// 8.2.101): digits of the IMSI.
    pub supi: Option<String>,
    /// The data network's name (clause 8.2.117).
    pub network: Option<String>,
    /// No packet for so many seconds is reported (clause 8.2.57).
    pub inactivity_s: Option<u32>,
    /// The sets of sessions that it belongs to (FQ-CSID, clause 8.2.61), as sent.
    pub sets: Vec<Vec<u8>>,
    /// How packets are found.
    pub pdrs: Vec<Pdr>,
    /// What becomes of them.
    pub fars: Vec<Far>,
    /// What they may use.
    pub qers: Vec<Qer>,
    /// What is counted.
    pub urrs: Vec<Urr>,
    /// How they are held.
    pub bars: Vec<Buffering>,
    /// What the control plane has been told, and has not yet said that it knows.
    pub reporting: Reporting,
}

impl Session {
    /// How many PDRs, FARs, QERs, URRs and BARs it has.
    #[must_use]
    pub const fn rules(&self) -> [usize; 5] {
        let Self { pdrs, fars, qers, urrs, bars, .. } = self;
        [pdrs.len(), fars.len(), qers.len(), urrs.len(), bars.len()]
    }
}
