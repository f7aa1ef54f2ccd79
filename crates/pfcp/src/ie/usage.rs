//! What a URR counts, its limits and its reports.

use alloc::vec::Vec;

use super::{Ie, bit};
use crate::octets::Octets;
use crate::{Cause, IeType};

/// Octets of packets, or packets, in both directions, of the user, and to the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Volumes {
    /// Both.
    pub total: Option<u64>,
    /// Of the user's packets.
    pub uplink: Option<u64>,
    /// Of packets to the user.
    pub downlink: Option<u64>,
}

impl Volumes {
    fn read(octets: &mut Octets<'_>, flags: u8) -> Result<Self, Cause> {
        Ok(Self {
            total: octets.when(flags & 1 != 0, Octets::u64)?,
            uplink: octets.when(flags & 2 != 0, Octets::u64)?,
            downlink: octets.when(flags & 4 != 0, Octets::u64)?,
        })
    }

    fn flags(&self) -> u8 {
        let both = bit(self.uplink.is_some(), 1) | bit(self.downlink.is_some(), 2);
        bit(self.total.is_some(), 0) | both
    }

    fn write(&self, to: &mut Vec<u8>) {
        for volume in [self.total, self.uplink, self.downlink].into_iter().flatten() {
            to.extend_from_slice(&volume.to_be_bytes());
        }
    }
}

macro_rules! volumes {
    ($($(#[$doc:meta])* $name:ident = $type:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub Volumes);

        impl Ie<'_> for $name {
            const TYPE: IeType = IeType::$type;

            fn decode(value: &[u8]) -> Result<Self, Cause> {
                let mut octets = Octets::new(value);
                let flags = octets.u8()?;
                Volumes::read(&mut octets, flags).map(Self)
            }

            fn encode(&self, to: &mut Vec<u8>) {
                to.push(self.0.flags());
                self.0.write(to);
            }
        }
    )*};
}

volumes! {
    /// After so many octets a URR reports (TS 29.244 clause 8.2.13).
    VolumeThreshold = VOLUME_THRESHOLD;
    /// The threshold after the monitoring time (clause 8.2.16).
    SubsequentVolumeThreshold = SUBSEQUENT_VOLUME_THRESHOLD;
    /// After so many octets packets stop (clause 8.2.50).
    VolumeQuota = VOLUME_QUOTA;
    /// The quota after the monitoring time (clause 8.2.86).
    SubsequentVolumeQuota = SUBSEQUENT_VOLUME_QUOTA;
}

/// Volume Measurement (clause 8.2.44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeMeasurement {
    /// Octets.
    pub octets: Volumes,
    /// Packets.
    pub packets: Volumes,
}

impl Ie<'_> for VolumeMeasurement {
    const TYPE: IeType = IeType::VOLUME_MEASUREMENT;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        Ok(Self {
            octets: Volumes::read(&mut octets, flags)?,
            packets: Volumes::read(&mut octets, flags >> 3)?,
        })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.octets.flags() | self.packets.flags() << 3);
        self.octets.write(to);
        self.packets.write(to);
    }
}

/// Dropped DL Traffic Threshold (clause 8.2.49).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DroppedDlTrafficThreshold {
    /// Packets.
    pub packets: Option<u64>,
    /// Octets.
    pub octets: Option<u64>,
}

impl Ie<'_> for DroppedDlTrafficThreshold {
    const TYPE: IeType = IeType::DROPPED_DL_TRAFFIC_THRESHOLD;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        Ok(Self {
            packets: octets.when(flags & 1 != 0, Octets::u64)?,
            octets: octets.when(flags & 2 != 0, Octets::u64)?,
        })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(bit(self.packets.is_some(), 0) | bit(self.octets.is_some(), 1));
        for threshold in [self.packets, self.octets].into_iter().flatten() {
            to.extend_from_slice(&threshold.to_be_bytes());
        }
    }
}

/// Time Quota Mechanism (clause 8.2.81).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeQuotaMechanism {
    /// 0 continuous time periods, 1 discrete ones.
    pub base_time_interval_type: u8,
    /// Seconds.
    pub base_time_interval: u32,
}

impl Ie<'_> for TimeQuotaMechanism {
    const TYPE: IeType = IeType::TIME_QUOTA_MECHANISM;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let base_time_interval_type = octets.u8()? & 3;
        Ok(Self { base_time_interval_type, base_time_interval: octets.u32()? })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.base_time_interval_type & 3);
        to.extend_from_slice(&self.base_time_interval.to_be_bytes());
    }
}

/// Multiplier (clause 8.2.84): `digits` times ten to the `exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Multiplier {
    /// The digits.
    pub digits: i64,
    /// The exponent.
    pub exponent: i32,
}

impl Ie<'_> for Multiplier {
    const TYPE: IeType = IeType::MULTIPLIER;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let digits = i64::from_be_bytes(octets.array()?);
        Ok(Self { digits, exponent: i32::from_be_bytes(octets.array()?) })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.digits.to_be_bytes());
        to.extend_from_slice(&self.exponent.to_be_bytes());
    }
}

/// Additional Usage Reports Information (clause 8.2.91): what is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdditionalUsageReportsInformation {
    /// Whether more reports are to come (bit AURI).
    pub more: bool,
    /// So many, if that is known; 15 bits.
    pub count: u16,
}

impl Ie<'_> for AdditionalUsageReportsInformation {
    const TYPE: IeType = IeType::ADDITIONAL_USAGE_REPORTS_INFORMATION;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let word = Octets::new(value).u16()?;
        Ok(Self { more: word & 0x8000 != 0, count: word & 0x7fff })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let word = u16::from(self.more) << 15 | self.count & 0x7fff;
        to.extend_from_slice(&word.to_be_bytes());
    }
}
