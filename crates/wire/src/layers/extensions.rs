//! IPv6 and its extension headers (RFC 8200 clause 4).

use super::{Fragment, Layers, MAX_IPV6_EXTENSIONS};
use crate::error::{HeaderName, ParseError};
use crate::{EtherType, IpProtocol, Ipv6, Ipv6Authentication, Ipv6Extension, Ipv6Fragment, header};

const SHORT: ParseError = ParseError::Short(HeaderName::Ipv6Extension);

impl Layers {
    #[inline(always)]
    pub(super) fn parse_ipv6(frame: &[u8], network: u16) -> Result<Self, ParseError> {
        let offset = usize::from(network);
        let ipv6: &Ipv6 = header(frame, offset).ok_or(ParseError::Short(HeaderName::Ipv6))?;
        if ipv6.version() != 6 {
            return Err(ParseError::Version(HeaderName::Ipv6));
        }
        let transport = offset + Ipv6::LENGTH;
        let promised = transport + usize::from(ipv6.payload_length.get());
        let layers = Self {
            end: promised.min(frame.len()) as u32,
            network,
            transport: u16::try_from(transport)
                .map_err(|_| ParseError::TooFar(HeaderName::Ipv6))?,
            ethertype: EtherType::IPV6,
            protocol: ipv6.next_header,
            vlans: 0,
            fragment: Fragment::None,
            truncated: promised > frame.len(),
            routed: false,
        };
        if IpProtocol::is_ipv6_extension(layers.protocol) {
            return layers.walk_extensions(frame)?.with_transport_header();
        }
        layers.with_transport_header()
    }

    /// Moves `transport` and `protocol` past the extension headers. Stops after the fragment header
    /// of a later fragment, whose data only the whole packet explains.
    #[inline(never)]
    fn walk_extensions(mut self, frame: &[u8]) -> Result<Self, ParseError> {
        let packet = frame.get(..self.end as usize).ok_or(SHORT)?;
        for _ in 0..MAX_IPV6_EXTENSIONS {
            let offset = usize::from(self.transport);
            let (next_header, length) = match self.protocol {
                IpProtocol::FRAGMENT => {
                    let fragment: &Ipv6Fragment = header(packet, offset).ok_or(SHORT)?;
                    self.fragment = match (fragment.fragment_offset(), fragment.more_fragments()) {
                        (0, false) => self.fragment,
                        (0, true) => Fragment::First,
                        _ => Fragment::Later,
                    };
                    (fragment.next_header, Ipv6Fragment::LENGTH)
                }
                IpProtocol::AUTHENTICATION => {
                    let authentication: &Ipv6Authentication =
                        header(packet, offset).ok_or(SHORT)?;
                    let length = authentication.header_length();
                    if length < Ipv6Authentication::LENGTH {
                        return Err(ParseError::Length(HeaderName::Ipv6Extension));
                    }
                    (authentication.next_header, length)
                }
                protocol if IpProtocol::is_ipv6_extension(protocol) => {
                    let extension: &Ipv6Extension = header(packet, offset).ok_or(SHORT)?;
                    self.routed |=
                        protocol == IpProtocol::ROUTING && extension.segments_left() != 0;
                    (extension.next_header, extension.header_length())
                }
                _ => return Ok(self),
            };
            if offset + length > packet.len() {
                return Err(SHORT);
            }
            self.transport = u16::try_from(offset + length)
                .map_err(|_| ParseError::TooFar(HeaderName::Ipv6Extension))?;
            self.protocol = next_header;
            if self.fragment == Fragment::Later {
                return Ok(self);
            }
        }
        if IpProtocol::is_ipv6_extension(self.protocol) {
            return Err(ParseError::TooMany(HeaderName::Ipv6Extension));
        }
        Ok(self)
    }
}
