//! Prepared headers of all flows and lengths. Only the mark is missing in them.

use std::net::IpAddr;

use crate::addresses::Addresses;
use crate::payload::{MARK_LENGTH, Mark};
use crate::settings::{Flows, FrameBytes, Mix, Settings, SettingsError, refuse};
use crate::wire::checksum::{self, Sum};
use crate::wire::{EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, Udp, Vlan, header_mut};

/// Length of the longest headers: Ethernet, VLAN tag, IPv6 and UDP.
const LONGEST_HEADERS: usize = 66;
/// Maximum frame length in bytes. The limit of a port is known only after it was opened.
const LONGEST_FRAME: u32 = 16_000;
/// Order of the lengths in IMIX: seven, four and one of twelve, spread out.
const IMIX: [u16; 12] = [0, 1, 0, 0, 1, 0, 2, 0, 1, 0, 0, 1];

/// Headers of one flow at one length.
#[derive(Clone, Debug)]
struct Template {
    headers: [u8; LONGEST_HEADERS],
    length: u16,
    /// Sum over pseudo header, UDP header and filler: the UDP checksum without the mark.
    sum: Sum,
}

/// All frames of a run without their marks. Shared by the lanes, read-only.
#[derive(Debug)]
pub struct Plan {
    templates: Vec<Template>,
    /// Index of the length of each successive packet of a flow.
    pattern: Vec<u16>,
    lengths: usize,
    flows: usize,
    header_length: usize,
    filler: Vec<u8>,
}

impl Plan {
    /// Builds the headers of all flows.
    ///
    /// # Errors
    /// Names the setting of flows or lengths that is not allowed.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let flows = &settings.flows;
        let addresses = Addresses::check(flows)?;
        let header_length = header_length(flows);
        let (lengths, pattern) = lengths(&settings.frame_bytes, header_length + MARK_LENGTH)?;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        // Filler in which a shift or a cut is detected.
        let filler: Vec<u8> = (0..longest).map(|n| ((u32::from(n) * 167) >> 3) as u8).collect();
        let flow_count = flows.count as usize;
        let templates = (0..flows.count)
            .flat_map(|flow| lengths.iter().map(move |length| (flow, *length)))
            .map(|(flow, length)| {
                let filler = &filler[..usize::from(length) - header_length - MARK_LENGTH];
                template(flows, addresses.of(flows, flow), length, filler)
            })
            .collect();
        Ok(Self {
            templates,
            pattern,
            lengths: lengths.len(),
            flows: flow_count,
            header_length,
            filler,
        })
    }

    /// Returns the number of flows.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows
    }

    /// Returns the number of packets of a flow after which its lengths repeat.
    #[must_use]
    pub fn period(&self) -> usize {
        self.pattern.len()
    }

    /// Returns the template of the packet at `phase` of a flow. `phase` is less than
    /// [`period`](Self::period).
    #[inline]
    #[must_use]
    pub fn template(&self, flow: usize, phase: usize) -> usize {
        flow * self.lengths + usize::from(self.pattern[phase])
    }

    /// Returns the frame length of a template in bytes.
    #[inline]
    #[must_use]
    pub fn length(&self, template: usize) -> usize {
        usize::from(self.templates[template].length)
    }

    /// Writes a frame with its checksums. `frame` is exactly [`length`](Self::length) bytes long.
    #[inline]
    pub fn write(&self, template: usize, mark: Mark, frame: &mut [u8]) {
        let template = &self.templates[template];
        let mark = mark.bytes();
        let (headers, payload) = frame.split_at_mut(self.header_length);
        headers.copy_from_slice(&template.headers[..self.header_length]);
        let sum = checksum::udp(template.sum.add_bytes(&mark).checksum());
        headers[self.header_length - 2..].copy_from_slice(&sum.to_be_bytes());
        let (start, rest) = payload.split_at_mut(MARK_LENGTH);
        start.copy_from_slice(&mark);
        rest.copy_from_slice(&self.filler[..rest.len()]);
    }
}

fn header_length(flows: &Flows) -> usize {
    let network = if flows.source_address.is_ipv4() { Ipv4::LENGTH } else { Ipv6::LENGTH };
    let tag = if flows.vlan.is_some() { Vlan::LENGTH } else { 0 };
    Ethernet::LENGTH + tag + network + Udp::LENGTH
}

/// Returns the distinct lengths, and their order as indices into them.
fn lengths(written: &FrameBytes, shortest: usize) -> Result<(Vec<u16>, Vec<u16>), SettingsError> {
    let list = match written {
        FrameBytes::Named(Mix::Imix) => {
            return Ok((vec![shortest.max(60) as u16, 590, 1514], IMIX.to_vec()));
        }
        FrameBytes::One(length) => std::slice::from_ref(length),
        FrameBytes::List(list) => list,
    };
    if !(1..=1024).contains(&list.len()) {
        refuse("frame-bytes", format!("has {} lengths; allowed is 1 to 1024", list.len()))?;
    }
    let shortest = shortest as u32;
    if let Some(length) = list.iter().find(|n| !(shortest..=LONGEST_FRAME).contains(*n)) {
        let reason = format!(
            "has {length}; the headers of these flows and the mark take {shortest} bytes, so \
             allowed is {shortest} to {LONGEST_FRAME}"
        );
        refuse("frame-bytes", reason)?;
    }
    let mut distinct: Vec<u32> = list.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let index = |length: &u32| distinct.binary_search(length).unwrap_or(0) as u16;
    let pattern = list.iter().map(index).collect();
    Ok((distinct.iter().map(|length| *length as u16).collect(), pattern))
}

fn template(flows: &Flows, ends: [(IpAddr, u16); 2], length: u16, filler: &[u8]) -> Template {
    let mut headers = [0; LONGEST_HEADERS];
    let [(source, source_port), (destination, destination_port)] = ends;
    let ethertype = if source.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    let mut offset = Ethernet::LENGTH;
    put(&mut headers, 0, |ethernet: &mut Ethernet| {
        ethernet.source = flows.source_mac;
        ethernet.destination = flows.destination_mac;
        ethernet.ethertype.set(if flows.vlan.is_some() { EtherType::VLAN } else { ethertype });
    });
    if let Some(vlan) = flows.vlan {
        put(&mut headers, offset, |tag: &mut Vlan| {
            tag.tag_control.set(vlan);
            tag.ethertype.set(ethertype);
        });
        offset += Vlan::LENGTH;
    }
    let network = offset;
    let pseudo = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            put(&mut headers, network, |ipv4: &mut Ipv4| {
                ipv4.version_ihl = 0x45;
                ipv4.total_length.set(length - network as u16);
                // Don't Fragment is set, so no identification is needed (RFC 6864).
                ipv4.flags_fragment_offset.set(0x4000);
                ipv4.time_to_live = 64;
                ipv4.protocol = IpProtocol::UDP;
                ipv4.source = source.octets();
                ipv4.destination = destination.octets();
            });
            let sum = checksum::checksum(&headers[network..network + Ipv4::LENGTH]);
            put(&mut headers, network, |ipv4: &mut Ipv4| ipv4.header_checksum.set(sum));
            offset += Ipv4::LENGTH;
            let udp_length = length - offset as u16;
            Sum::pseudo_ipv4(source.octets(), destination.octets(), IpProtocol::UDP, udp_length)
        }
        (source, destination) => {
            let (source, destination) = (octets(source), octets(destination));
            offset += Ipv6::LENGTH;
            let udp_length = length - offset as u16;
            put(&mut headers, network, |ipv6: &mut Ipv6| {
                ipv6.version_class_flow.set(6 << 28);
                ipv6.payload_length.set(udp_length);
                ipv6.next_header = IpProtocol::UDP;
                ipv6.hop_limit = 64;
                ipv6.source = source;
                ipv6.destination = destination;
            });
            Sum::pseudo_ipv6(&source, &destination, IpProtocol::UDP, u32::from(udp_length))
        }
    };
    put(&mut headers, offset, |udp: &mut Udp| {
        udp.source_port.set(source_port);
        udp.destination_port.set(destination_port);
        udp.length.set(length - offset as u16);
    });
    let sum = pseudo.add_bytes(&headers[offset..offset + Udp::LENGTH]).add_bytes(filler);
    Template { headers, length, sum }
}

/// Fills in the header at `offset`, which lies within the longest headers.
fn put<T: crate::wire::Header>(headers: &mut [u8], offset: usize, fill: impl FnOnce(&mut T)) {
    if let Some(header) = header_mut(headers, offset) {
        fill(header);
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests;
