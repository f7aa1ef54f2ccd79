//! Tunnel endpoints (TS 29.244 clause 8.2.3).

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::{Ie, bit, put_address};
use crate::tlv::Octets;
use crate::{Cause, IeType};

/// F-TEID: a tunnel endpoint, or the request that the UPF choose one (CHOOSE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FTeid {
    /// Tunnel endpoint identifier; 0 if the UPF is to choose it.
    pub teid: u32,
    /// IPv4 address of the endpoint.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address of the endpoint.
    pub v6: Option<Ipv6Addr>,
    /// True if the UPF is to choose an IPv4 address and the TEID.
    pub choose_v4: bool,
    /// True if the UPF is to choose an IPv6 address and the TEID.
    pub choose_v6: bool,
    /// CHOOSE ID: endpoints of the session with the same value are to be one endpoint.
    pub choose_id: Option<u8>,
}

impl FTeid {
    /// Returns true if the UPF is to choose the endpoint.
    #[must_use]
    pub const fn is_choose(&self) -> bool {
        self.choose_v4 || self.choose_v6
    }
}

impl Ie<'_> for FTeid {
    const TYPE: IeType = IeType::F_TEID;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let (v4, v6) = (flags & 1 != 0, flags & 2 != 0);
        if !v4 && !v6 {
            return Err(Cause::MANDATORY_IE_INCORRECT);
        }
        if flags & 4 != 0 {
            let choose_id = octets.when(flags & 8 != 0, Octets::u8)?;
            return Ok(Self { choose_v4: v4, choose_v6: v6, choose_id, ..Self::default() });
        }
        let teid = octets.u32()?;
        let v4 = octets.when(v4, Octets::v4)?;
        let v6 = octets.when(v6, Octets::v6)?;
        Ok(Self { teid, v4, v6, ..Self::default() })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        if self.is_choose() {
            let id = bit(self.choose_id.is_some(), 3);
            to.push(bit(self.choose_v4, 0) | bit(self.choose_v6, 1) | bit(true, 2) | id);
            to.extend(self.choose_id);
            return;
        }
        to.push(bit(self.v4.is_some(), 0) | bit(self.v6.is_some(), 1));
        to.extend_from_slice(&self.teid.to_be_bytes());
        put_address(to, self.v4.map(|v4| v4.octets()));
        put_address(to, self.v6.map(|v6| v6.octets()));
    }
}
