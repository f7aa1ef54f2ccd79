//! Finds the layers of a frame in one pass.
//!
//! `inline(always)` stands where it halves the time: kept in registers, [`Layers`] need not be
//! written and read back in pieces.

mod extensions;

use crate::error::{HeaderName, ParseError};
use crate::{
    Arp, EtherType, Ethernet, Icmp, Icmpv6, IpProtocol, Ipv4, Ipv6, Tcp, Udp, Vlan, header,
};

/// The most VLAN tags that [`Layers::parse`] looks behind.
pub const MAX_VLANS: u8 = 2;
/// The most IPv6 extension headers that [`Layers::parse`] walks.
pub const MAX_IPV6_EXTENSIONS: u8 = 8;

/// Which part of an IP packet a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fragment {
    /// All of it. An IPv6 fragment header that divides nothing (RFC 6946) counts as none.
    None,
    /// The first fragment: the transport header is there, the data is not all there.
    First,
    /// A later fragment: there is no transport header.
    Later,
}

/// Where the layers of a frame begin and end, 16 bytes. All offsets are in bytes from the start of
/// the frame.
///
/// A frame that parses holds its network header whole, and unless it is a later fragment the fixed
/// part of its TCP, UDP, ICMP or ICMPv6 header too. What is neither IP nor ARP parses always, and
/// so does IP that carries another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Where the IP packet ends, before any padding; the end of the frame if it is cut short or
    /// does not carry IP.
    pub end: u32,
    /// Where the network header begins: behind the Ethernet header and its VLAN tags.
    pub network: u16,
    /// Where what IP carries begins: behind IPv4 options and IPv6 extension headers. The same as
    /// `network` if the frame does not carry IP.
    pub transport: u16,
    /// What lies at `network`, an [`EtherType`]. Still a VLAN tag's if there are more than
    /// [`MAX_VLANS`]; a length if below 1536.
    pub ethertype: u16,
    /// What lies at `transport`, an [`IpProtocol`]; 255 (reserved) if the frame does not carry IP.
    /// In a later fragment it tells what the first one begins with.
    pub protocol: u8,
    /// VLAN tags between the Ethernet header and `network`, at most [`MAX_VLANS`].
    pub vlans: u8,
    /// Which part of the IP packet this is.
    pub fragment: Fragment,
    /// Whether IP promises more bytes than the frame holds.
    pub truncated: bool,
    /// Whether an IPv6 routing header has segments left, so that the IPv6 header's destination is
    /// not the final one, which the transport checksum covers.
    pub routed: bool,
}

impl Layers {
    /// Finds the layers of an Ethernet frame, in 2 to 5 ns.
    ///
    /// # Errors
    /// Names the header that is cut short or contradicts itself. Such a frame is not for a fast
    /// path.
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

    /// Finds the layers of an IP packet `network` bytes into `frame`, whose version tells which IP
    /// it is: the inner packet of a tunnel.
    ///
    /// # Errors
    /// As [`Layers::parse`]; what is neither IPv4 nor IPv6 has the wrong version.
    #[inline]
    pub fn parse_ip(frame: &[u8], network: u16) -> Result<Self, ParseError> {
        match frame.get(usize::from(network)).map(|first| first >> 4) {
            Some(6) => Self::parse_network(frame, network, EtherType::IPV6),
            _ => Self::parse_network(frame, network, EtherType::IPV4),
        }
    }

    /// Finds the layers from the network header on, which lies `network` bytes into `frame` and is
    /// of type `ethertype`.
    ///
    /// # Errors
    /// As [`Layers::parse`].
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

    /// The layers of a frame that does not carry IP.
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

    /// These layers, if the fixed part of the transport header is there.
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

    /// Whether the frame carries IPv4.
    #[inline]
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.ethertype == EtherType::IPV4
    }

    /// Whether the frame carries IPv6.
    #[inline]
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.ethertype == EtherType::IPV6
    }

    /// Whether a header of `protocol` lies at `transport`.
    #[inline]
    #[must_use]
    pub fn carries(&self, protocol: u8) -> bool {
        self.protocol == protocol && self.fragment != Fragment::Later
    }

    /// The IPv4 header of the frame that was parsed.
    #[inline]
    #[must_use]
    pub fn ipv4<'a>(&self, frame: &'a [u8]) -> Option<&'a Ipv4> {
        if self.is_ipv4() { header(frame, self.network.into()) } else { None }
    }

    /// The IPv6 header of the frame that was parsed.
    #[inline]
    #[must_use]
    pub fn ipv6<'a>(&self, frame: &'a [u8]) -> Option<&'a Ipv6> {
        if self.is_ipv6() { header(frame, self.network.into()) } else { None }
    }

    /// The UDP header of the frame that was parsed.
    #[inline]
    #[must_use]
    pub fn udp<'a>(&self, frame: &'a [u8]) -> Option<&'a Udp> {
        if self.carries(IpProtocol::UDP) { header(frame, self.transport.into()) } else { None }
    }

    /// The TCP header of the frame that was parsed.
    #[inline]
    #[must_use]
    pub fn tcp<'a>(&self, frame: &'a [u8]) -> Option<&'a Tcp> {
        if self.carries(IpProtocol::TCP) { header(frame, self.transport.into()) } else { None }
    }

    /// Source and destination port of the frame that was parsed, if it has a TCP or UDP header.
    #[inline]
    #[must_use]
    pub fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        if !self.carries(IpProtocol::UDP) && !self.carries(IpProtocol::TCP) {
            return None;
        }
        // Both headers begin alike.
        let [source, destination]: &[crate::U16; 2] = header(frame, self.transport.into())?;
        Some((source.get(), destination.get()))
    }

    /// Bytes of the transport header and its data, as the transport checksum covers them: what UDP
    /// says of itself, else all that IP carries. `None` if there is no transport header, or UDP's
    /// length is less than its header or more than there is.
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

    /// The data behind the UDP header, or behind the TCP header and its options. `None` if there is
    /// neither, or its own length does not fit.
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
