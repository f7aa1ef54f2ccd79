//! Extension headers of IPv6 (RFC 8200 4), which hide the protocol behind them.

use fastlane::wire::IpProtocol;

/// Maximum number of extension headers that are read. RFC 8200 4.1 recommends each kind once, and
/// destination options twice.
const MOST: usize = 8;

/// Returns true if another header follows one of this protocol.
#[inline(always)]
pub(super) fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP
            | IpProtocol::ROUTING
            | IpProtocol::FRAGMENT
            | IpProtocol::AUTHENTICATION
            | IpProtocol::DESTINATION_OPTIONS
    )
}

/// Returns the protocol behind the extension headers that begin at `at`, the first of which is
/// `first`; `packet` ends where the IP packet does. `None` if it cannot be found: a header is cut
/// off or one too many, or it is in an earlier fragment.
#[cold]
pub(super) fn upper_protocol(packet: &[u8], first: u8, at: usize) -> Option<u8> {
    let (mut protocol, mut at) = (first, at);
    for _ in 0..MOST {
        if !is_extension(protocol) {
            return Some(protocol);
        }
        let [next, length, high, low, ..] = *packet.get(at..)?.first_chunk::<8>()?;
        let octets = match protocol {
            IpProtocol::FRAGMENT => {
                let offset = u16::from_be_bytes([high, low]) >> 3;
                if offset != 0 && is_extension(next) {
                    return None;
                } else if offset != 0 {
                    return Some(next);
                }
                8
            }
            // RFC 4302 2.2: in units of four octets, minus two.
            IpProtocol::AUTHENTICATION => 4 * (usize::from(length) + 2),
            _ => 8 * (usize::from(length) + 1),
        };
        (protocol, at) = (next, at + octets);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: u8 = IpProtocol::TCP;

    /// Headers with these contents, each of eight octets but for what its length says.
    fn behind(first: u8, headers: &[&[u8]]) -> Option<u8> {
        let packet = headers.iter().fold(vec![0; 40], |mut packet, header| {
            packet.extend_from_slice(header);
            packet.resize(packet.len().next_multiple_of(8), 0);
            packet
        });
        upper_protocol(&packet, first, 40)
    }

    #[test]
    fn the_protocol_behind_extension_headers_is_found() {
        assert_eq!(behind(60, &[&[TCP, 0]]), Some(TCP));
        assert_eq!(behind(0, &[&[60, 1, 0, 0, 0, 0, 0, 0, 0], &[43, 0], &[TCP, 0]]), Some(TCP));
        assert_eq!(
            behind(51, &[&[TCP, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]),
            Some(TCP)
        );
        assert_eq!(behind(44, &[&[60, 0, 0, 1], &[TCP, 0]]), Some(TCP), "a first fragment");
        assert_eq!(behind(44, &[&[TCP, 0, 0, 8]]), Some(TCP), "a later one");
        assert_eq!(behind(60, &[&[59, 0]]), Some(59));
    }

    #[test]
    fn a_protocol_that_cannot_be_found_is_unknown() {
        assert_eq!(behind(60, &[]), None, "cut off");
        assert_eq!(behind(60, &[&[43, 9], &[TCP, 0]]), None, "cut off by a length");
        assert_eq!(behind(44, &[&[60, 0, 0, 8], &[TCP, 0]]), None, "in an earlier fragment");
        let many = [&[60, 0][..]; 7];
        let with = |last: &'static [u8]| behind(60, &[&many[..], &[last]].concat());
        assert_eq!(with(&[TCP, 0]), None, "the eighth");
        assert_eq!(behind(60, &[&many[..6], &[&[TCP, 0]]].concat()), Some(TCP));
    }
}
