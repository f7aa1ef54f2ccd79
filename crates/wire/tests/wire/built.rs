//! Frames built field by field, with their checksums computed as RFC 1071 defines them.

use fastlane_wire::{
    EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, Ipv6Fragment, MacAddress, Tcp, U16, U32, Udp, Vlan,
};
use zerocopy::IntoBytes;

/// An IPv6 extension header to build.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extension {
    /// Hop-by-hop or destination options of `8 * (units + 1)` bytes.
    Options { protocol: u8, units: u8 },
    /// A routing header without segments left.
    Routing { units: u8 },
    /// An atomic fragment header.
    Atomic,
    /// An authentication header with a check value of `4 * words` bytes.
    Authentication { words: u8 },
}

/// A frame to build.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) vlans: Vec<u16>,
    pub(crate) ipv6: bool,
    /// Bytes of IPv4 options, a multiple of 4 up to 40.
    pub(crate) options: usize,
    pub(crate) extensions: Vec<Extension>,
    /// Offset in units of 8 bytes, and the flag for more fragments.
    pub(crate) fragment: Option<(u16, bool)>,
    pub(crate) tcp: bool,
    pub(crate) ports: (u16, u16),
    pub(crate) payload: Vec<u8>,
    /// Padding after the IP packet.
    pub(crate) padding: Vec<u8>,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            vlans: Vec::new(),
            ipv6: false,
            options: 0,
            extensions: Vec::new(),
            fragment: None,
            tcp: false,
            ports: (40000, 2152),
            payload: b"fastlane".to_vec(),
            padding: Vec::new(),
        }
    }
}

pub(crate) const SOURCE4: [u8; 4] = [192, 0, 2, 1];
pub(crate) const DESTINATION4: [u8; 4] = [198, 51, 100, 2];
pub(crate) const SOURCE6: [u8; 16] = *b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01";
pub(crate) const DESTINATION6: [u8; 16] = *b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02";

impl Frame {
    pub(crate) fn protocol(&self) -> u8 {
        if self.tcp { IpProtocol::TCP } else { IpProtocol::UDP }
    }

    /// Returns the offset of the network header.
    pub(crate) fn network(&self) -> usize {
        14 + 4 * self.vlans.len()
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let ip = if self.ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mut frame = Ethernet {
            destination: MacAddress([2, 0, 0, 0, 0, 1]),
            source: MacAddress([2, 0, 0, 0, 0, 2]),
            ethertype: U16::new(self.vlans.first().map_or(ip, |_| self.tag_type(0))),
        }
        .as_bytes()
        .to_vec();
        for (index, &tag) in self.vlans.iter().enumerate() {
            let next = index + 1;
            let ethertype = if next < self.vlans.len() { self.tag_type(next) } else { ip };
            let tag = Vlan { tag_control: U16::new(tag), ethertype: U16::new(ethertype) };
            frame.extend(tag.as_bytes());
        }
        let transport = self.transport();
        frame.extend(if self.ipv6 { self.ipv6(&transport) } else { self.ipv4(&transport) });
        frame.extend(&self.padding);
        frame
    }

    /// Returns the type of a tag: all but the innermost are service tags.
    fn tag_type(&self, index: usize) -> u16 {
        if index + 1 < self.vlans.len() { EtherType::SERVICE_VLAN } else { EtherType::VLAN }
    }

    fn ipv4(&self, transport: &[u8]) -> Vec<u8> {
        let (offset, more) = self.fragment.unwrap_or((0, false));
        let header_length = 20 + self.options;
        let mut ipv4 = Ipv4 {
            version_ihl: 0x40 | (header_length / 4) as u8,
            total_length: U16::new((header_length + transport.len()) as u16),
            flags_fragment_offset: U16::new(offset | u16::from(more) << 13),
            time_to_live: 64,
            protocol: self.protocol(),
            source: SOURCE4,
            destination: DESTINATION4,
            ..Ipv4::default()
        };
        let options = vec![1; self.options]; // no operation
        ipv4.header_checksum = U16::new(!reference_sum(&[ipv4.as_bytes(), &options].concat()));
        [ipv4.as_bytes(), &options, transport].concat()
    }

    fn ipv6(&self, transport: &[u8]) -> Vec<u8> {
        let mut chain = Vec::new();
        let mut kinds = Vec::new();
        for extension in &self.extensions {
            kinds.push(extension.protocol());
            chain.push(extension.build());
        }
        if let Some((offset, more)) = self.fragment {
            let offset_flags = U16::new(offset << 3 | u16::from(more));
            let fragment = Ipv6Fragment { offset_flags, ..Ipv6Fragment::default() };
            kinds.push(IpProtocol::FRAGMENT);
            chain.push(fragment.as_bytes().to_vec());
        }
        kinds.push(self.protocol());
        for (header, &next) in chain.iter_mut().zip(&kinds[1..]) {
            header[0] = next;
        }
        let payload = [chain.concat().as_slice(), transport].concat();
        let ipv6 = Ipv6 {
            version_class_flow: U32::new(6 << 28),
            payload_length: U16::new(payload.len() as u16),
            next_header: kinds[0],
            hop_limit: 64,
            source: SOURCE6,
            destination: DESTINATION6,
        };
        [ipv6.as_bytes(), &payload].concat()
    }

    fn transport(&self) -> Vec<u8> {
        let (source_port, destination_port) = (U16::new(self.ports.0), U16::new(self.ports.1));
        let (header, offset) = if self.tcp {
            let data_offset_control = U16::new(0x5010);
            let window = U16::new(512);
            let tcp = Tcp {
                source_port,
                destination_port,
                data_offset_control,
                window,
                ..Tcp::default()
            };
            (tcp.as_bytes().to_vec(), 16)
        } else {
            let length = U16::new((8 + self.payload.len()) as u16);
            let udp = Udp { source_port, destination_port, length, checksum: U16::new(0) };
            (udp.as_bytes().to_vec(), 6)
        };
        let mut transport = [header.as_slice(), &self.payload].concat();
        let covered = [self.pseudo_header(transport.len()).as_slice(), &transport].concat();
        let checksum = match !reference_sum(&covered) {
            0 if !self.tcp => 0xffff,
            checksum => checksum,
        };
        transport[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
        transport
    }

    /// Returns the bytes of the pseudo header.
    pub(crate) fn pseudo_header(&self, length: usize) -> Vec<u8> {
        let length = length as u32;
        let mut bytes = Vec::new();
        if self.ipv6 {
            bytes.extend(SOURCE6);
            bytes.extend(DESTINATION6);
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0, 0, self.protocol()]);
        } else {
            bytes.extend(SOURCE4);
            bytes.extend(DESTINATION4);
            bytes.extend([0, self.protocol()]);
            bytes.extend((length as u16).to_be_bytes());
        }
        bytes
    }
}

impl Extension {
    fn protocol(self) -> u8 {
        match self {
            Self::Options { protocol, .. } => protocol,
            Self::Routing { .. } => IpProtocol::ROUTING,
            Self::Atomic => IpProtocol::FRAGMENT,
            Self::Authentication { .. } => IpProtocol::AUTHENTICATION,
        }
    }

    /// Returns the extension header; its first byte, the next header, is zero.
    fn build(self) -> Vec<u8> {
        match self {
            Self::Options { units, .. } => {
                let mut bytes = vec![0; (usize::from(units) + 1) * 8];
                bytes[1] = units;
                bytes
            }
            Self::Routing { units } => Self::Options { protocol: 0, units }.build(),
            Self::Atomic => vec![0; 8],
            Self::Authentication { words } => {
                let mut bytes = vec![0; 12 + usize::from(words) * 4];
                bytes[1] = words + 1;
                bytes
            }
        }
    }
}

/// Returns the sum as RFC 1071 clause 1 defines it, in exact arithmetic: the sum of all words
/// modulo 0xffff, where only the sum of zeros is zero.
pub(crate) fn reference_sum(data: &[u8]) -> u16 {
    let sum: u64 = data
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    match sum % 0xffff {
        0 if sum != 0 => 0xffff,
        rest => rest as u16,
    }
}
