//! Information elements with their fields (TS 29.244 clause 8.2), under the names of the
//! specification.
//!
//! A value may be longer than this crate knows; the additional octets are ignored (clause 7.6.7).
//! Enumerations keep unknown values, which the user of the crate must interpret. Spare bits are
//! written as zero and not read.

#[macro_use]
mod macros;

mod address;
mod detection;
mod enforcement;
mod features;
mod flags;
mod forwarding;
mod identity;
mod node;
mod numbers;
mod redirect;
mod report;
mod strings;
mod tunnel;
mod usage;
mod user;

use alloc::vec::Vec;

use crate::{Cause, IeType};

pub use address::{
    AlternativeSmfIpAddress, CpPfcpEntityIpAddress, IpVersion, UeIpAddress, UeIpAddressPoolIdentity,
};
pub use detection::{FlowInformation, SNssai, SdfFilter, SourceInterface, ThreeGppInterfaceType};
pub use enforcement::{DlFlowLevelMarking, Gate, GateStatus, Gbr, Mbr, PacketRate, Rate};
pub use features::{CpFunctionFeatures, UpFunctionFeatures};
pub use flags::*;
pub use forwarding::{
    DestinationInterface, ForwardingPolicy, HeaderEnrichment, OuterHeaderCreation,
    OuterHeaderRemoval, TransportLevelMarking,
};
pub use identity::{FSeid, FailedRuleId, FqCsid, NodeId};
pub use node::{RemoteGtpUPeer, SmfSetId, UserPlaneIpResourceInformation};
pub use numbers::*;
pub use redirect::{RedirectAddress, RedirectInformation};
pub use report::{DownlinkDataServiceInformation, PfdContents};
pub use strings::*;
pub use tunnel::FTeid;
pub use usage::{
    AdditionalUsageReportsInformation, DroppedDlTrafficThreshold, Multiplier,
    SubsequentVolumeQuota, SubsequentVolumeThreshold, TimeQuotaMechanism, VolumeMeasurement,
    VolumeQuota, VolumeThreshold, Volumes,
};
pub use user::UserId;

/// Information element with known fields.
pub trait Ie<'a>: Sized {
    /// Type of the element.
    const TYPE: IeType;

    /// Decodes the value.
    ///
    /// # Errors
    ///
    /// Returns cause 68 if fields are missing, and 69 if a field is invalid.
    fn decode(value: &'a [u8]) -> Result<Self, Cause>;

    /// Appends the value.
    fn encode(&self, to: &mut Vec<u8>);
}

/// Returns bit `number` of the octet that flags the present fields, if `set`.
const fn bit(set: bool, number: u8) -> u8 {
    (set as u8) << number
}

/// Appends a string of at most 65,535 octets after its length in two octets.
fn put_string16(to: &mut Vec<u8>, string: &[u8]) {
    let length = u16::try_from(string.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(&string[..length.into()]);
}

/// Appends a string of at most 255 octets after its length in one octet.
fn put_string8(to: &mut Vec<u8>, string: &[u8]) {
    let length = u8::try_from(string.len()).unwrap_or(u8::MAX);
    to.push(length);
    to.extend_from_slice(&string[..length.into()]);
}

/// Appends the lower 24 bits.
fn put_u24(to: &mut Vec<u8>, number: u32) {
    to.extend_from_slice(&number.to_be_bytes()[1..]);
}

/// Appends the octets of an address, if present.
fn put_address<const N: usize>(to: &mut Vec<u8>, octets: Option<[u8; N]>) {
    to.extend(octets.into_iter().flatten());
}
