//! Information elements with their fields (TS 29.244 clause 8.2), named as they are there.
//!
//! Values are accepted that are longer than this crate knows, and what is added is ignored (clause
//! 7.6.7). Enumerations keep values that the crate does not know: what a value means is for the
//! user to say. Bits that are spare are written as zero and not read.

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

/// An information element whose fields are known.
pub trait Ie<'a>: Sized {
    /// Its type.
    const TYPE: IeType;

    /// Reads its value.
    ///
    /// # Errors
    ///
    /// Cause 68 where fields are missing, 69 where they mean nothing.
    fn decode(value: &'a [u8]) -> Result<Self, Cause>;

    /// Appends its value.
    fn encode(&self, to: &mut Vec<u8>);
}

/// One bit of the octet that says which fields are there.
const fn bit(set: bool, number: u8) -> u8 {
    (set as u8) << number
}

/// Appends a string with its length in two octets; at most 65,535 octets of it.
fn put_string16(to: &mut Vec<u8>, string: &[u8]) {
    let length = u16::try_from(string.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(&string[..length.into()]);
}

/// Appends a string with its length in one octet; at most 255 octets of it.
fn put_string8(to: &mut Vec<u8>, string: &[u8]) {
    let length = u8::try_from(string.len()).unwrap_or(u8::MAX);
    to.push(length);
    to.extend_from_slice(&string[..length.into()]);
}

/// Appends the lower 24 bits.
fn put_u24(to: &mut Vec<u8>, number: u32) {
    to.extend_from_slice(&number.to_be_bytes()[1..]);
}

/// Appends the octets of an address if there is one.
fn put_address<const N: usize>(to: &mut Vec<u8>, octets: Option<[u8; N]>) {
    to.extend(octets.into_iter().flatten());
}
