//! ICMP errors to the senders of packets: time exceeded, packet too big or fragmentation needed,
//! and no route.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::wire::checksum::{self, Sum};
use fastlane::wire::{Fragment, Icmp, Icmpv6, IpProtocol, Ipv4, Ipv6, U16, U32, header_mut};

use super::encap::{ipv4, ipv6};
use super::inner_packet::InnerPacket;
use super::rate_limiter::RateLimiter;
use crate::rules::layout::drop_reason::DropReason;
use crate::session::InstanceId;

/// Quoted octets of the original packet, which limit an error to 576 octets in IPv4 (RFC 1812
/// clause 4.3.2.3) and 1280 in IPv6 (RFC 4443 clause 2.4).
const MAX_QUOTED4: usize = 576 - Ipv4::LENGTH - Icmp::LENGTH;
const MAX_QUOTED6: usize = 1280 - Ipv6::LENGTH - Icmp::LENGTH;
/// Maximum length of an error in octets.
pub(crate) const MAX_LENGTH: usize = 1280;

/// Code of an ICMP message: network unreachable (RFC 792).
const NET_UNREACHABLE: u8 = 0;
/// Code of an ICMP message: host unreachable (RFC 6888, REQ-11 B).
const HOST_UNREACHABLE: u8 = 1;

/// Kind of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpError {
    /// TTL or hop limit has expired.
    TimeExceeded,
    /// Longer than this MTU.
    TooLong(u32),
    /// No route to the destination.
    NoRoute,
    /// NAT has no mapping for it, for this reason.
    NoMapping(DropReason),
}

/// ICMP error that is due, with the network instance to which a packet of a UE goes, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueIcmpError {
    pub(crate) icmp_error: IcmpError,
    pub(crate) instance: Option<InstanceId>,
}

impl DueIcmpError {
    pub(crate) const fn new(icmp_error: IcmpError, instance: Option<InstanceId>) -> Self {
        Self { icmp_error, instance }
    }
}

/// Rate limit of ICMP errors.
pub(crate) struct IcmpLimiter {
    limiter: RateLimiter,
}

impl IcmpLimiter {
    /// Creates a limit of up to `per_second` errors per second.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { limiter: RateLimiter::new(per_second) }
    }

    /// Returns true if an error may be sent now.
    pub(crate) fn take(&mut self, now: u64) -> bool {
        self.limiter.take(now)
    }
}

/// Returns true if an error may be sent about a packet: not about errors, later fragments, or
/// packets from or to a group (RFC 1122 clause 3.2.2, RFC 4443 clause 2.4).
pub(crate) fn may_send(inner: &InnerPacket, bytes: &[u8], icmp_error: IcmpError) -> bool {
    if inner.fragment == Fragment::Later {
        return false;
    }
    let kind = || bytes.get(usize::from(inner.transport)).copied();
    if inner.is_v6 {
        let is_group = |address: u128| address >> 120 == 0xff;
        let is_one = !is_group(inner.source) && inner.source != 0;
        // Path MTU discovery works for groups (RFC 4443 clause 2.4 e.3).
        let asks = !is_group(inner.destination) || matches!(icmp_error, IcmpError::TooLong(_));
        let is_error = inner.protocol == IpProtocol::ICMPV6 && kind().is_none_or(|it| it < 128);
        is_one && asks && !is_error
    } else {
        let first = |address: u128| (address >> 120) as u8;
        let is_one = !matches!(first(inner.source), 0 | 127 | 224..);
        let is_error = inner.protocol == IpProtocol::ICMP
            && !matches!(kind(), Some(Icmp::ECHO_REPLY | Icmp::ECHO_REQUEST | 13..=18));
        is_one && first(inner.destination) < 224 && !is_error
    }
}

/// Writes the error about the packet `bytes`, from the address `source`; returns its length, or
/// `None` if the address is of the other family or the buffer is too short.
pub(crate) fn write(
    to: &mut [u8],
    icmp_error: IcmpError,
    source: IpAddr,
    inner: &InnerPacket,
    bytes: &[u8],
) -> Option<usize> {
    match source {
        IpAddr::V4(source) if !inner.is_v6 => four(to, icmp_error, source, inner, bytes),
        IpAddr::V6(source) if inner.is_v6 => six(to, icmp_error, source, inner, bytes),
        _ => None,
    }
}

fn four(
    to: &mut [u8],
    icmp_error: IcmpError,
    source: Ipv4Addr,
    inner: &InnerPacket,
    bytes: &[u8],
) -> Option<usize> {
    let quoted = bytes.get(..bytes.len().min(MAX_QUOTED4))?;
    let carried = Icmp::LENGTH + quoted.len();
    let to = to.get_mut(..Ipv4::LENGTH + carried)?;
    let destination = Ipv4Addr::from_bits((inner.source >> 96) as u32);
    *header_mut::<Ipv4>(to, 0)? = ipv4(source, destination, 0xc0, carried, IpProtocol::ICMP);
    let (message_type, code, rest) = match icmp_error {
        IcmpError::TimeExceeded => (Icmp::TIME_EXCEEDED, 0, 0),
        IcmpError::NoRoute => (Icmp::DESTINATION_UNREACHABLE, NET_UNREACHABLE, 0),
        IcmpError::NoMapping(_) => (Icmp::DESTINATION_UNREACHABLE, HOST_UNREACHABLE, 0),
        IcmpError::TooLong(mtu) => {
            (Icmp::DESTINATION_UNREACHABLE, Icmp::FRAGMENTATION_NEEDED, mtu.min(0xffff))
        }
    };
    let icmp = &mut to[Ipv4::LENGTH..];
    let (checksum, rest) = (U16::new(0), U32::new(rest));
    *header_mut::<Icmp>(icmp, 0)? = Icmp { message_type, code, checksum, rest };
    icmp.get_mut(Icmp::LENGTH..)?.copy_from_slice(quoted);
    let sum = checksum::checksum(icmp);
    header_mut::<Icmp>(icmp, 0)?.checksum.set(sum);
    Some(to.len())
}

fn six(
    to: &mut [u8],
    icmp_error: IcmpError,
    source: Ipv6Addr,
    inner: &InnerPacket,
    bytes: &[u8],
) -> Option<usize> {
    let quoted = bytes.get(..bytes.len().min(MAX_QUOTED6))?;
    let carried = Icmp::LENGTH + quoted.len();
    let to = to.get_mut(..Ipv6::LENGTH + carried)?;
    let destination = Ipv6Addr::from_bits(inner.source);
    *header_mut::<Ipv6>(to, 0)? = ipv6(source, destination, 0, carried, IpProtocol::ICMPV6);
    let (message_type, rest) = match icmp_error {
        IcmpError::TimeExceeded => (Icmpv6::TIME_EXCEEDED, 0),
        IcmpError::NoRoute | IcmpError::NoMapping(_) => (Icmpv6::DESTINATION_UNREACHABLE, 0),
        IcmpError::TooLong(mtu) => (Icmpv6::PACKET_TOO_BIG, mtu),
    };
    let icmp = &mut to[Ipv6::LENGTH..];
    let (checksum, rest) = (U16::new(0), U32::new(rest));
    *header_mut::<Icmp>(icmp, 0)? = Icmp { message_type, code: 0, checksum, rest };
    icmp.get_mut(Icmp::LENGTH..)?.copy_from_slice(quoted);
    let sum = Sum::pseudo_ipv6(
        &source.octets(),
        &destination.octets(),
        IpProtocol::ICMPV6,
        carried as u32,
    );
    let sum = sum.add_bytes(icmp).checksum();
    header_mut::<Icmp>(icmp, 0)?.checksum.set(sum);
    Some(to.len())
}

#[cfg(test)]
mod tests {
    use fastlane::wire::Layers;

    use super::super::inner_packet;
    use super::*;

    fn packet4(protocol: u8, kind: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 120, 0, 1, 0x40, 0, 1, protocol, 0, 0];
        packet.extend([10, 0, 0, 5, 192, 0, 2, 1]);
        packet.resize(120, kind);
        packet
    }

    #[test]
    fn errors_are_complete_packets_with_right_checksums() {
        let own: [IpAddr; 2] = [[192, 0, 2, 254].into(), "2001:db8::fe".parse().unwrap()];
        let mut packet6 = vec![0x60, 0, 0, 0, 0x05, 0xb0, 17, 1];
        packet6.extend([0x20; 16]);
        packet6.extend([0x30; 16]);
        packet6.resize(40 + 0x5b0, 0xab);
        for (own, packet) in own.into_iter().zip([packet4(17, 0xab), packet6]) {
            let inner = inner_packet::read(&packet).unwrap();
            for icmp_error in [IcmpError::TimeExceeded, IcmpError::TooLong(1400)] {
                assert!(may_send(&inner, &packet, icmp_error));
                let mut to = [0; MAX_LENGTH];
                let length = write(&mut to, icmp_error, own, &inner, &packet).unwrap();
                let error = inner_packet::read(&to[..length]).unwrap();
                assert_eq!((error.destination, error.length), (inner.source, length as u32));
                let ethertype = if own.is_ipv4() { 0x0800 } else { 0x86dd };
                let layers = Layers::parse_network(&to[..length], 0, ethertype).unwrap();
                assert_eq!(checksum::verify_transport(&to[..length], &layers), Ok(true));
                let start = usize::from(layers.transport);
                let mtu = u32::from_be_bytes(to[start + 4..start + 8].try_into().unwrap());
                let expected = if icmp_error == IcmpError::TimeExceeded { 0 } else { 1400 };
                assert_eq!(mtu, expected);
                let quoted = &to[start + 8..length];
                assert_eq!(quoted, &packet[..quoted.len()]);
            }
        }
    }

    #[test]
    fn nobody_is_told_of_errors_or_groups() {
        let send_icmp_error = |packet: &[u8]| {
            may_send(&inner_packet::read(packet).unwrap(), packet, IcmpError::TimeExceeded)
        };
        assert!(send_icmp_error(&packet4(1, 8)));
        assert!(!send_icmp_error(&packet4(1, 3)) && !send_icmp_error(&packet4(1, 11)));
        let mut group = packet4(17, 0);
        group[16] = 239;
        assert!(!send_icmp_error(&group));
        let mut deferred = packet4(17, 0);
        deferred[7] = 3;
        assert!(!send_icmp_error(&deferred));
    }
}
