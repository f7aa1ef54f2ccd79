//! Usage records: what collectors learn of a session at its start, by each usage report, and at its
//! end.

use std::net::IpAddr;

use crate::session::{SNssai, Session, SessionIndex, UrrId, UsageReport};

/// Uplink octets, uplink packets, downlink octets and downlink packets.
pub type Counts = [u64; 4];

/// Usage records collected during a call, if somebody exports them.
#[derive(Clone, Debug, Default)]
pub struct UsageRecords {
    is_exported: bool,
    records: Vec<UsageRecord>,
}

/// Event of a session that is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRecord {
    /// Session of the event.
    pub session: SessionIdentity,
    /// Counters of the session's own slot at the event. They never decrease, and they do not start
    /// at 0.
    pub counters: Counts,
    /// Event of the session.
    pub event: UsageEvent,
}

/// Event of a usage record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageEvent {
    /// The session was established.
    Start,
    /// A usage report was sent to the control plane function.
    Report(ReportCarrier, UsageReport),
    /// The session has ended.
    End {
        /// True if the control plane function has deleted the session, which gets the last reports
        /// then. False if it was removed without a report.
        is_deleted: bool,
        /// Usage since the last report by URR, of a session that was removed without one.
        unreported: Vec<(UrrId, Counts)>,
    },
}

/// PFCP message that carries a usage report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportCarrier {
    /// Session Report Request.
    ReportRequest,
    /// Session Modification Response.
    ModificationResponse,
    /// Session Deletion Response.
    DeletionResponse,
}

/// Identifiers of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionIdentity {
    /// Session index.
    pub index: SessionIndex,
    /// UP SEID.
    pub seid: u64,
    /// CP SEID.
    pub cp_seid: u64,
    /// CP F-SEID address.
    pub cp_address: IpAddr,
    /// Digits of the SUPI, if the control plane function has sent it.
    pub supi: Option<String>,
    /// DNN, if the control plane function has sent it.
    pub dnn: Option<String>,
    /// Network slice, if the control plane function has sent it.
    pub s_nssai: Option<SNssai>,
    /// UE addresses and prefixes with their lengths.
    pub users: Vec<(IpAddr, u8)>,
    /// Time of establishment, in nanoseconds of `CLOCK_REALTIME`.
    pub established: u64,
}

impl SessionIdentity {
    /// Returns the identifiers of a session.
    #[must_use]
    pub fn of(session: &Session) -> Self {
        let users = session.pdrs.iter().filter_map(|pdr| pdr.user).flat_map(|user| {
            let v4 = user.v4.map(|address| (IpAddr::V4(address), 32));
            v4.into_iter().chain(user.v6.map(|(address, length)| (IpAddr::V6(address), length)))
        });
        let mut users: Vec<(IpAddr, u8)> = users.collect();
        users.sort_unstable();
        users.dedup();
        Self {
            index: session.id,
            seid: session.seid,
            cp_seid: session.cp_fseid.seid,
            cp_address: session.cp_fseid.address,
            supi: session.supi.clone(),
            dnn: session.network.clone(),
            s_nssai: session.s_nssai,
            users,
            established: session.established,
        }
    }
}

impl UsageRecords {
    /// Sets whether somebody exports the records. Otherwise they are not made.
    pub const fn export(&mut self, is_exported: bool) {
        self.is_exported = is_exported;
    }

    /// Returns true if records are made.
    #[must_use]
    pub const fn are_exported(&self) -> bool {
        self.is_exported
    }

    /// Appends a record of an event, unless nobody exports it. `counters` are those of the
    /// session's own slot.
    pub fn add(&mut self, session: &Session, counters: Counts, event: UsageEvent) {
        if self.is_exported {
            let session = SessionIdentity::of(session);
            self.records.push(UsageRecord { session, counters, event });
        }
    }

    /// Takes all records, in the order of the events.
    pub fn take(&mut self) -> Vec<UsageRecord> {
        std::mem::take(&mut self.records)
    }

    /// Removes all records.
    pub(super) fn clear(&mut self) {
        self.records.clear();
    }
}
