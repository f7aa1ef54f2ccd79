//! QoS enforcement: elements of the QER.

use alloc::vec::Vec;

use super::{Ie, Octets, bit};
use crate::{Cause, IeType};

/// State of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// Packets pass.
    Open,
    /// Packets are dropped.
    Closed,
}

impl Gate {
    /// Converts from the coded value. Undefined values are closed (TS 29.244 table 8.2.7-1).
    const fn new(value: u8) -> Self {
        if value & 3 == 0 { Self::Open } else { Self::Closed }
    }
}

/// Gate Status (clause 8.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GateStatus {
    /// Gate for uplink packets.
    pub uplink: Gate,
    /// Gate for downlink packets.
    pub downlink: Gate,
}

impl Ie<'_> for GateStatus {
    const TYPE: IeType = IeType::GATE_STATUS;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let octet = Octets::new(value).u8()?;
        Ok(Self { uplink: Gate::new(octet >> 2), downlink: Gate::new(octet) })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let closed = |gate, at| bit(gate == Gate::Closed, at);
        to.push(closed(self.uplink, 2) | closed(self.downlink, 0));
    }
}

macro_rules! bit_rates {
    ($($(#[$doc:meta])* $name:ident = $type:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name {
            /// Uplink bit rate, in kilobits (1000 bits) per second; 40 bits.
            pub uplink: u64,
            /// Downlink bit rate, in kilobits (1000 bits) per second; 40 bits.
            pub downlink: u64,
        }

        impl Ie<'_> for $name {
            const TYPE: IeType = IeType::$type;

            fn decode(value: &[u8]) -> Result<Self, Cause> {
                let mut octets = Octets::new(value);
                Ok(Self { uplink: octets.u40()?, downlink: octets.u40()? })
            }

            fn encode(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.uplink.to_be_bytes()[3..]);
                to.extend_from_slice(&self.downlink.to_be_bytes()[3..]);
            }
        }
    )*};
}

bit_rates! {
    /// Maximum bit rate (clause 8.2.8).
    Mbr = MBR;
    /// Guaranteed bit rate (clause 8.2.9).
    Gbr = GBR;
}

/// Packet rate: packets per unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Unit of time: 0 minute, 1 six minutes, 2 hour, 3 day, 4 week.
    pub unit: u8,
    /// Number of packets per unit.
    pub packets: u16,
}

impl Rate {
    fn read(octets: &mut Octets<'_>) -> Result<Self, Cause> {
        Ok(Self { unit: octets.u8()? & 7, packets: octets.u16()? })
    }

    fn write(rate: Option<Self>, to: &mut Vec<u8>) {
        if let Some(rate) = rate {
            to.push(rate.unit & 7);
            to.extend_from_slice(&rate.packets.to_be_bytes());
        }
    }
}

/// Packet Rate (clause 8.2.63). Additional rates exist either for every direction with a rate, or
/// for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketRate {
    /// Rate of uplink packets.
    pub uplink: Option<Rate>,
    /// Rate of downlink packets.
    pub downlink: Option<Rate>,
    /// Additional rate of uplink packets.
    pub additional_uplink: Option<Rate>,
    /// Additional rate of downlink packets.
    pub additional_downlink: Option<Rate>,
}

impl Ie<'_> for PacketRate {
    const TYPE: IeType = IeType::PACKET_RATE;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let (up, down, additional) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        Ok(Self {
            uplink: octets.when(up, Rate::read)?,
            downlink: octets.when(down, Rate::read)?,
            additional_uplink: octets.when(up && additional, Rate::read)?,
            additional_downlink: octets.when(down && additional, Rate::read)?,
        })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let additional = self.additional_uplink.is_some() || self.additional_downlink.is_some();
        let rates = bit(self.uplink.is_some(), 0) | bit(self.downlink.is_some(), 1);
        to.push(rates | bit(additional, 2));
        Rate::write(self.uplink, to);
        Rate::write(self.downlink, to);
        if additional {
            Rate::write(self.uplink.and(self.additional_uplink.or(self.uplink)), to);
            Rate::write(self.downlink.and(self.additional_downlink.or(self.downlink)), to);
        }
    }
}

/// DL Flow Level Marking (clause 8.2.66).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DlFlowLevelMarking {
    /// Type of service or traffic class: value and mask.
    pub tos_traffic_class: Option<[u8; 2]>,
    /// Service class indicator (TS 29.281 clause 5.2.2.3).
    pub service_class_indicator: Option<[u8; 2]>,
}

impl Ie<'_> for DlFlowLevelMarking {
    const TYPE: IeType = IeType::DL_FLOW_LEVEL_MARKING;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        Ok(Self {
            tos_traffic_class: octets.when(flags & 1 != 0, Octets::array)?,
            service_class_indicator: octets.when(flags & 2 != 0, Octets::array)?,
        })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let flags = bit(self.tos_traffic_class.is_some(), 0);
        to.push(flags | bit(self.service_class_indicator.is_some(), 1));
        to.extend(self.tos_traffic_class.into_iter().flatten());
        to.extend(self.service_class_indicator.into_iter().flatten());
    }
}
