//! Packet detection: elements of the PDI.

use alloc::vec::Vec;
use core::fmt;

use super::{Ie, Octets, bit, put_string16, put_u24};
use crate::{Cause, IeType};

small! {
    /// Source Interface: side from which packets arrive (TS 29.244 clause 8.2.2).
    SourceInterface & 0x0f = SOURCE_INTERFACE {
        /// Access side.
        ACCESS = 0,
        /// Core side.
        CORE = 1,
        /// SGi-LAN or N6-LAN.
        SGI_LAN = 2,
        /// CP function.
        CP_FUNCTION = 3,
        /// 5G VN internal.
        VN_INTERNAL = 4,
    }
    /// 3GPP Interface Type: reference point of an interface (clause 8.2.118).
    ThreeGppInterfaceType & 0x3f = THREE_GPP_INTERFACE_TYPE {
        /// S1-U, eNB to SGW.
        S1_U = 0,
        /// S5-U or S8-U.
        S5_U = 1,
        /// N3 3GPP access.
        N3 = 11,
        /// N3 trusted non-3GPP access.
        N3_TRUSTED = 12,
        /// N3 untrusted non-3GPP access.
        N3_UNTRUSTED = 13,
        /// N3 for data forwarding.
        N3_FORWARDING = 14,
        /// N9, or N9 for non-roaming.
        N9 = 15,
        /// SGi, PGW to data network.
        SGI = 16,
        /// N6, UPF to data network.
        N6 = 17,
        /// N19, between PSA UPFs.
        N19 = 18,
        /// S8-U, home routed.
        S8_U = 19,
        /// Gp-U, roaming Gn.
        GP_U = 20,
        /// N9 for roaming.
        N9_ROAMING = 21,
    }
}

/// SDF Filter (clause 8.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SdfFilter<'a> {
    /// IPFilterRule (RFC 6733 section 4.3.1), not checked here.
    pub flow_description: Option<&'a [u8]>,
    /// Type of service or traffic class: value and mask.
    pub tos_traffic_class: Option<[u8; 2]>,
    /// IPsec security parameter index.
    pub security_parameter_index: Option<u32>,
    /// IPv6 flow label, 24 bits.
    pub flow_label: Option<u32>,
    /// Number of the filter, by which other PDRs of the session refer to it.
    pub filter_id: Option<u32>,
}

impl<'a> Ie<'a> for SdfFilter<'a> {
    const TYPE: IeType = IeType::SDF_FILTER;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let [flags, _] = octets.array()?;
        Ok(Self {
            flow_description: octets.when(flags & 1 != 0, Octets::string16)?,
            tos_traffic_class: octets.when(flags & 2 != 0, Octets::array)?,
            security_parameter_index: octets.when(flags & 4 != 0, Octets::u32)?,
            flow_label: octets.when(flags & 8 != 0, Octets::u24)?,
            filter_id: octets.when(flags & 0x10 != 0, Octets::u32)?,
        })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let flags = bit(self.flow_description.is_some(), 0)
            | bit(self.tos_traffic_class.is_some(), 1)
            | bit(self.security_parameter_index.is_some(), 2)
            | bit(self.flow_label.is_some(), 3)
            | bit(self.filter_id.is_some(), 4);
        to.extend_from_slice(&[flags, 0]);
        if let Some(flow) = self.flow_description {
            put_string16(to, flow);
        }
        to.extend(self.tos_traffic_class.into_iter().flatten());
        to.extend(self.security_parameter_index.into_iter().flat_map(u32::to_be_bytes));
        if let Some(label) = self.flow_label {
            put_u24(to, label);
        }
        to.extend(self.filter_id.into_iter().flat_map(u32::to_be_bytes));
    }
}

/// Flow Information (clause 8.2.61): flow of a detected application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowInformation<'a> {
    /// Direction: 0 unspecified, 1 downlink, 2 uplink, 3 both.
    pub direction: u8,
    /// Packet filter, as an IPFilterRule.
    pub description: &'a [u8],
}

impl<'a> Ie<'a> for FlowInformation<'a> {
    const TYPE: IeType = IeType::FLOW_INFORMATION;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        Ok(Self { direction: octets.u8()? & 7, description: octets.string16()? })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.direction & 7);
        put_string16(to, self.description);
    }
}

/// S-NSSAI: network slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SNssai {
    /// Slice or service type (SST).
    pub sst: u8,
    /// Slice differentiator (SD), 24 bits; [`NO_SD`](Self::NO_SD) for none.
    pub sd: u32,
}

impl SNssai {
    /// SD of a slice without one (TS 23.003 clause 28.4.2).
    pub const NO_SD: u32 = 0xFF_FFFF;
}

/// Writes the SST in decimal and the SD, if there is one, as six hexadecimal digits: `1` or
/// `1-010203`.
impl fmt::Display for SNssai {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sd {
            Self::NO_SD => write!(to, "{}", self.sst),
            sd => write!(to, "{}-{sd:06x}", self.sst),
        }
    }
}

impl Ie<'_> for SNssai {
    const TYPE: IeType = IeType::S_NSSAI;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        Ok(Self { sst: octets.u8()?, sd: octets.u24()? })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.sst);
        put_u24(to, self.sd);
    }
}
