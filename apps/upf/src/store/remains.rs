//! What a session that is gone leaves in its record: when it went, and which addresses it had, so
//! that they are not the next ones to be given out after a restart.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::encoding::DELETED;
use super::record::SessionRecord;
use crate::session::{InstanceId, Session, Source};

/// The addresses that a session was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// When it was established: nanoseconds since 1970.
    pub established: u64,
    /// The network instance towards the data network, where it was named.
    pub instance: Option<InstanceId>,
    /// The IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// An address of the IPv6 prefix.
    pub v6: Option<Ipv6Addr>,
}

impl Given {
    /// To a session.
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

/// Bytes of what is left: when it went, when it was established, the network instance, of which all
/// ones is none, both addresses, of which zero is none.
const LENGTH: usize = 8 + 8 + 2 + 4 + 16;

impl SessionRecord {
    /// Whether a session is there.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.flags & DELETED == 0
    }

    /// Writes what a session leaves that goes `at`: nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) fn bury(&mut self, session: &Session, at: u64) {
        let given = Given::to(session);
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

    /// When the session went, if it is gone: nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn gone_at(&self) -> Option<u64> {
        let at = self.body.first_chunk().copied().map(u64::from_le_bytes);
        at.filter(|_| !self.is_live())
    }

    /// What the session was given, if it is gone.
    #[must_use]
    pub fn had(&self) -> Option<Given> {
        let bytes = |at: usize| self.body.get(at..).filter(|_| !self.is_live());
        let v4 = Ipv4Addr::from(*bytes(18)?.first_chunk::<4>()?);
        let v6 = Ipv6Addr::from(*bytes(22)?.first_chunk::<16>()?);
        let instance = InstanceId::from_le_bytes(*bytes(16)?.first_chunk()?);
        Some(Given {
            established: u64::from_le_bytes(*bytes(8)?.first_chunk()?),
            instance: Some(instance).filter(|it| *it != InstanceId::MAX),
            v4: Some(v4).filter(|it| !it.is_unspecified()),
            v6: Some(v6).filter(|it| !it.is_unspecified()),
        })
    }
}
