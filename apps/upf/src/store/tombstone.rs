//! Tombstone of a removed session: the time of removal and its addresses, so that they are not the
//! first to be allocated after a restart.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::codec::DELETED;
use super::record::SessionRecord;
use crate::session::{InstanceId, Session, Source};

/// UE addresses allocated to a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatedAddresses {
    /// Time of establishment, in nanoseconds since 1970.
    pub established: u64,
    /// Network instance towards the data network, if given.
    pub instance: Option<InstanceId>,
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Address within the IPv6 prefix.
    pub v6: Option<Ipv6Addr>,
}

impl AllocatedAddresses {
    /// Returns the addresses allocated to a session.
    #[must_use]
    pub fn to(session: &Session) -> Self {
        let ours = || session.pdrs.iter().filter_map(|pdr| pdr.user).filter(|user| user.is_ours);
        let outside =
            session.pdrs.iter().filter(|it| matches!(it.source, Source::Core | Source::SgiLan));
        Self {
            established: session.established,
            instance: outside.filter_map(|pdr| pdr.instance).next(),
            v4: ours().find_map(|user| user.v4),
            v6: ours().find_map(|user| user.v6).map(|(address, _)| address),
        }
    }
}

/// Length of a tombstone in bytes: time of removal, time of establishment, network instance (all
/// ones for none), both addresses (zero for none).
const LENGTH: usize = 8 + 8 + 2 + 4 + 16;

impl SessionRecord {
    /// Returns true if the record holds a session, not a tombstone.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.flags & DELETED == 0
    }

    /// Turns the record into the tombstone of a session removed `at`, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub(super) fn make_tombstone(&mut self, session: &Session, at: u64) {
        let given = AllocatedAddresses::to(session);
        self.flags = DELETED;
        self.length = LENGTH as u32;
        self.body[..8].copy_from_slice(&at.to_le_bytes());
        self.body[8..16].copy_from_slice(&given.established.to_le_bytes());
        let v4 = given.v4.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let instance = given.instance.unwrap_or(InstanceId::MAX);
        self.body[16..18].copy_from_slice(&instance.to_le_bytes());
        self.body[18..22].copy_from_slice(&v4.octets());
        let v6 = given.v6.unwrap_or(Ipv6Addr::UNSPECIFIED);
        self.body[22..LENGTH].copy_from_slice(&v6.octets());
    }

    /// Returns the time of removal of a tombstone, in nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn gone_at(&self) -> Option<u64> {
        let at = self.body.first_chunk().copied().map(u64::from_le_bytes);
        at.filter(|_| !self.is_live())
    }

    /// Returns the addresses of the removed session, if the record is a tombstone.
    #[must_use]
    pub fn had(&self) -> Option<AllocatedAddresses> {
        let bytes = |at: usize| self.body.get(at..).filter(|_| !self.is_live());
        let v4 = Ipv4Addr::from(*bytes(18)?.first_chunk::<4>()?);
        let v6 = Ipv6Addr::from(*bytes(22)?.first_chunk::<16>()?);
        let instance = InstanceId::from_le_bytes(*bytes(16)?.first_chunk()?);
        Some(AllocatedAddresses {
            established: u64::from_le_bytes(*bytes(8)?.first_chunk()?),
            instance: Some(instance).filter(|it| *it != InstanceId::MAX),
            v4: Some(v4).filter(|it| !it.is_unspecified()),
            v6: Some(v6).filter(|it| !it.is_unspecified()),
        })
    }
}
