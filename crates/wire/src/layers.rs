//! One-pass parser that finds the layers of a frame.
//!
//! `inline(always)` is used where it halves the time: [`Layers`] then stays in registers instead of
//! being written to memory and read back in pieces.

mod extensions;

use crate::error::{HeaderName, ParseError};
use crate::{
    Arp, EtherType, Ethernet, Icmp, Icmpv6, IpProtocol, Ipv4, Ipv6, Tcp, Udp, Vlan, header,
};

/// Maximum number of VLAN tags that [`Layers::parse`] skips.
pub const MAX_VLANS: u8 = 2;
/// Maximum number of IPv6 extension headers that [`Layers::parse`] walks.
pub const MAX_IPV6_EXTENSIONS: u8 = 8;

/// Part of an IP packet that a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fragment {
    /// The whole packet. An atomic IPv6 fragment (RFC 6946) counts as whole.
    None,
    /// First fragment: it has the transport header, but not all data.
    First,
    /// Later fragment: it has no transport header.
    Later,
}

/// Offsets of the layers of a frame, 16 bytes. All offsets are in bytes from the start of the
/// frame.
///
/// A frame that parses contains its whole network header. Unless it is a later fragment, it also
/// contains the fixed part of its TCP, UDP, ICMP or ICMPv6 header. Frames that are neither IP nor
/// ARP always parse, and so does IP with another protocol.
///
/// # Examples
/// ```
/// use fastlane_wire::{EtherType, IpProtocol, Layers};
///
/// let frame = [
///     &[0xff; 12][..], &[0x08, 0x00],                        // Ethernet: IPv4
///     &[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0],           // IPv4: 28 bytes, UDP
///     &[10, 0, 0, 1, 10, 0, 0, 2],                           // from 10.0.0.1 to 10.0.0.2
///     &[0x13, 0x88, 0x08, 0x68, 0, 8, 0, 0],                 // UDP: port 5000 to 2152
/// ]
/// .concat();
/// let layers = Layers::parse(&frame)?;
/// assert_eq!((layers.network, layers.transport), (14, 34));
/// assert_eq!((layers.ethertype, layers.protocol), (EtherType::IPV4, IpProtocol::UDP));
/// assert_eq!(layers.ports(&frame), Some((5000, 2152)));
/// assert_eq!(layers.ipv4(&frame).map(|ip| ip.destination), Some([10, 0, 0, 2]));
/// # Ok::<(), fastlane_wire::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// End of the IP packet, before any padding. End of the frame if the packet is cut short or the
    /// frame does not carry IP.
    pub end: u32,
    /// Start of the network header, after the Ethernet header and its VLAN tags.
    pub network: u16,
    /// Start of the IP payload, after IPv4 options and IPv6 extension headers. Equal to `network`
    /// if the frame does not carry IP.
    pub transport: u16,
    /// Type of the network header, an [`EtherType`]. It is still a VLAN tag's if there are more
    /// than [`MAX_VLANS`], and a length if below 1536.
    pub ethertype: u16,
    /// Protocol of the IP payload, an [`IpProtocol`]; 255 (reserved) if the frame does not carry
    /// IP. In a later fragment it is the protocol with which the first one begins.
    pub protocol: u8,
    /// Number of VLAN tags between the Ethernet header and `network`, at most [`MAX_VLANS`].
    pub vlans: u8,
    /// Part of the IP packet that the frame carries.
    pub fragment: Fragment,
    /// True if the IP header states more bytes than the frame contains.
    pub truncated: bool,
    /// True if an IPv6 routing header has segments left. The IPv6 header's destination is not the
    /// final one then, which the transport checksum covers.
    pub routed: bool,
}

impl Layers {
    /// Finds the layers of an Ethernet frame, in 2 to 5 ns.
    ///
    /// # Errors
    /// Returns the header that is cut short or inconsistent. The fast path should not process such
    /// a frame.
    #[inline(always)]
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        let ethernet: &Ethernet =
            header(frame, 0).ok_or(ParseError::Short(HeaderName::Ethernet))?;
        let mut ethertype = ethernet.ethertype.get();
        let mut network = Ethernet::LENGTH;
        let mut vlans = 0;
        while vlans < MAX_VLANS && EtherType::is_vlan(ethertype) {
            let tag: &Vlan = header(frame, network).ok_or(ParseError::Short(HeaderName::Vlan))?;
            ethertype = tag.ethertype.get();
            network += Vlan::LENGTH;
            vlans += 1;
        }
        let mut layers = Self::parse_network(frame, network as u16, ethertype)?;
        layers.vlans = vlans;
        Ok(layers)
    }

    /// Finds the layers of an IP packet `network` bytes into `frame`, such as the inner packet of a
    /// tunnel. The version field selects IPv4 or IPv6.
    ///
    /// # Errors
    /// Returns the errors of [`Layers::parse`], and a version error for other versions.
    #[inline]
    pub fn parse_ip(frame: &[u8], network: u16) -> Result<Self, ParseError> {
        match frame.get(usize::from(network)).map(|first| first >> 4) {
            Some(6) => Self::parse_network(frame, network, EtherType::IPV6),
            _ => Self::parse_network(frame, network, EtherType::IPV4),
        }
    }

    /// Finds the layers from the network header on, which is `network` bytes into `frame` and of
    /// type `ethertype`.
    ///
    /// # Errors
    /// Returns the errors of [`Layers::parse`].
    #[inline(always)]
    pub fn parse_network(frame: &[u8], network: u16, ethertype: u16) -> Result<Self, ParseError> {
        match ethertype {
            EtherType::IPV4 => Self::parse_ipv4(frame, network),
            EtherType::IPV6 => Self::parse_ipv6(frame, network),
            EtherType::ARP => {
                let arp = header::<Arp>(frame, network.into());
                arp.ok_or(ParseError::Short(HeaderName::Arp))?;
                Self::opaque(frame, network, ethertype)
            }
            _ => Self::opaque(frame, network, ethertype),
        }
    }

    /// Returns the layers of a frame that does not carry IP.
    #[inline(always)]
    fn opaque(frame: &[u8], network: u16, ethertype: u16) -> Result<Self, ParseError> {
        if frame.len() < usize::from(network) {
            return Err(ParseError::Short(HeaderName::Ethernet));
        }
        Ok(Self {
            end: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            network,
            transport: network,
            ethertype,
            protocol: 255,
            vlans: 0,
            fragment: Fragment::None,
            truncated: false,
            routed: false,
        })
    }

    #[inline(always)]
    fn parse_ipv4(frame: &[u8], network: u16) -> Result<Self, ParseError> {
        let offset = usize::from(network);
        let ipv4: &Ipv4 = header(frame, offset).ok_or(ParseError::Short(HeaderName::Ipv4))?;
        if ipv4.version() != 4 {
            return Err(ParseError::Version(HeaderName::Ipv4));
        }
        let header_length = ipv4.header_length();
        let total_length = usize::from(ipv4.total_length.get());
        if header_length < Ipv4::LENGTH || total_length < header_length {
            return Err(ParseError::Length(HeaderName::Ipv4));
        }
        let transport = offset + header_length;
        if transport > frame.len() {
            return Err(ParseError::Short(HeaderName::Ipv4));
        }
        let fragment = match (ipv4.fragment_offset(), ipv4.more_fragments()) {
            (0, false) => Fragment::None,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
        let layers = Self {
            end: (offset + total_length).min(frame.len()) as u32,
            network,
            transport: u16::try_from(transport)
                .map_err(|_| ParseError::TooFar(HeaderName::Ipv4))?,
            ethertype: EtherType::IPV4,
            protocol: ipv4.protocol,
            vlans: 0,
            fragment,
            truncated: offset + total_length > frame.len(),
            routed: false,
        };
        layers.with_transport_header()
    }

    /// Returns these layers if the fixed part of the transport header is complete.
    #[inline(always)]
    fn with_transport_header(self) -> Result<Self, ParseError> {
        let (length, name) = match self.protocol {
            _ if self.fragment == Fragment::Later => return Ok(self),
            IpProtocol::TCP => (Tcp::LENGTH, HeaderName::Tcp),
            IpProtocol::UDP => (Udp::LENGTH, HeaderName::Udp),
            IpProtocol::ICMP => (Icmp::LENGTH, HeaderName::Icmp),
            IpProtocol::ICMPV6 => (Icmpv6::LENGTH, HeaderName::Icmpv6),
            _ => return Ok(self),
        };
        if u32::from(self.transport) + length as u32 > self.end {
            return Err(ParseError::Short(name));
        }
        Ok(self)
    }

    /// Returns true if the frame carries IPv4.
    #[inline]
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.ethertype == EtherType::IPV4
    }

    /// Returns true if the frame carries IPv6.
    #[inline]
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.ethertype == EtherType::IPV6
    }

    /// Returns true if a header of `protocol` begins at `transport`.
    #[inline]
    #[must_use]
    pub fn carries(&self, protocol: u8) -> bool {
        self.protocol == protocol && self.fragment != Fragment::Later
    }

    /// Returns the IPv4 header of the parsed frame.
    #[inline]
    #[must_use]
    pub fn ipv4<'a>(&self, frame: &'a [u8]) -> Option<&'a Ipv4> {
        if self.is_ipv4() { header(frame, self.network.into()) } else { None }
    }

    /// Returns the IPv6 header of the parsed frame.
    #[inline]
    #[must_use]
    pub fn ipv6<'a>(&self, frame: &'a [u8]) -> Option<&'a Ipv6> {
        if self.is_ipv6() { header(frame, self.network.into()) } else { None }
    }

    /// Returns the UDP header of the parsed frame.
    #[inline]
    #[must_use]
    pub fn udp<'a>(&self, frame: &'a [u8]) -> Option<&'a Udp> {
        if self.carries(IpProtocol::UDP) { header(frame, self.transport.into()) } else { None }
    }

    /// Returns the TCP header of the parsed frame.
    #[inline]
    #[must_use]
    pub fn tcp<'a>(&self, frame: &'a [u8]) -> Option<&'a Tcp> {
        if self.carries(IpProtocol::TCP) { header(frame, self.transport.into()) } else { None }
    }

    /// Returns the source and destination port of the parsed frame, if it has a TCP or UDP header.
    #[inline]
    #[must_use]
    pub fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        if !self.carries(IpProtocol::UDP) && !self.carries(IpProtocol::TCP) {
            return None;
        }
        // Both headers begin with the ports.
        let [source, destination]: &[crate::U16; 2] = header(frame, self.transport.into())?;
        Some((source.get(), destination.get()))
    }

    /// Returns the length of the transport header and its data in bytes, as the transport checksum
    /// covers them: UDP's own length, otherwise the whole IP payload. Returns `None` without a
    /// transport header, or if UDP's length is smaller than its header or exceeds the payload.
    #[inline]
    #[must_use]
    pub fn transport_length(&self, frame: &[u8]) -> Option<usize> {
        if self.fragment == Fragment::Later || !(self.is_ipv4() || self.is_ipv6()) {
            return None;
        }
        let carried = (self.end as usize).checked_sub(self.transport.into())?;
        match self.udp(frame) {
            None => Some(carried),
            Some(udp) => {
                let length = usize::from(udp.length.get());
                (Udp::LENGTH..=carried).contains(&length).then_some(length)
            }
        }
    }

    /// Returns the data after the UDP header, or after the TCP header and its options. Returns
    /// `None` if there is neither, or its length field does not fit.
    #[inline]
    #[must_use]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let header_length = match self.tcp(frame) {
            Some(tcp) if tcp.header_length() >= Tcp::LENGTH => tcp.header_length(),
            Some(_) => return None,
            None => self.udp(frame).map(|_| Udp::LENGTH)?,
        };
        let transport = usize::from(self.transport);
        let end = transport + self.transport_length(frame)?;
        frame.get(transport + header_length..end)
    }
}
