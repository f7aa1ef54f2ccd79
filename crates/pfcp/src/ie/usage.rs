//! Usage: measurements, thresholds and quotas of a URR.

use alloc::vec::Vec;

use super::{Ie, Octets, bit};
use crate::{Cause, IeType};

/// Volumes in octets or packets: total, uplink and downlink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Volumes {
    /// Total of both directions.
    pub total: Option<u64>,
    /// Uplink volume.
    pub uplink: Option<u64>,
    /// Downlink volume.
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
    /// Volume threshold, in octets, at which a URR reports (TS 29.244 clause 8.2.13).
    VolumeThreshold = VOLUME_THRESHOLD;
    /// Volume threshold after the monitoring time, in octets (clause 8.2.16).
    SubsequentVolumeThreshold = SUBSEQUENT_VOLUME_THRESHOLD;
    /// Volume quota, in octets, after which packets are dropped (clause 8.2.50).
    VolumeQuota = VOLUME_QUOTA;
    /// Volume quota after the monitoring time, in octets (clause 8.2.86).
    SubsequentVolumeQuota = SUBSEQUENT_VOLUME_QUOTA;
}

/// Volume Measurement (clause 8.2.44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeMeasurement {
    /// Volumes in octets.
    pub octets: Volumes,
    /// Volumes in packets.
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
    /// Number of dropped packets.
    pub packets: Option<u64>,
    /// Number of dropped octets.
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
    /// Type of the interval: 0 continuous time periods, 1 discrete time periods.
    pub base_time_interval_type: u8,
    /// Length of the interval, in seconds.
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

/// Multiplier (clause 8.2.84): `digits` times ten to the power of `exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Multiplier {
    /// Digits of the multiplier.
    pub digits: i64,
    /// Decimal exponent.
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

/// Additional Usage Reports Information (clause 8.2.91): reports that are to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdditionalUsageReportsInformation {
    /// True if additional reports are to follow (bit AURI).
    pub more: bool,
    /// Number of these reports, if known; 15 bits.
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
