//! The reference: what a frame says, and whether a rule holds for it.
//!
//! The eBPF programs mirror this file (`read_key` and `rule_matches` in `bpf/steer.bpf.c`). A
//! change here is a change there.

use crate::rule::{GTP_U_PORT, IPV4, IPV6, Prefix, Rule, Rules, TCP, UDP, VLAN};

/// VLAN tags that are stepped over; a frame with more has a tag as its EtherType.
const MAX_TAGS: usize = 2;
/// IPv6 extension headers that are stepped over; behind more the protocol counts as unknown.
const MAX_EXTENSIONS: usize = 6;
/// IPv6 next header: hop-by-hop options, routing, destination options (RFC 8200 4).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// IPv6 next header: fragment (RFC 8200 4.5).
const FRAGMENT: u8 = 44;

/// What could be read from a frame. A field is `None` when the frame ends before it.
#[derive(Clone, Copy, Debug, Default)]
struct Key {
    ethertype: Option<u16>,
    addresses: Option<Addresses>,
    protocol: Option<u8>,
    udp_port: Option<u16>,
    tcp_port: Option<u16>,
    gtp_u: bool,
    fragment: bool,
}

/// IP addresses in network byte order; IPv4 uses the first four octets.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    version: u8,
    source: [u8; 16],
    destination: [u8; 16],
}

impl Rules {
    /// True when the frame is fast. `frame` begins at the Ethernet header, its VLAN tags included.
    ///
    /// With no rules every frame is fast, runts too. With rules:
    /// * A frame that cannot be read far enough for a rule does not match it. A rule on the
    ///   EtherType needs Ethernet only, a prefix the fixed IP header, a port the whole fixed UDP or
    ///   TCP header, GTP-U its eight mandatory octets. The frame's end bounds the reading; lengths
    ///   that the headers claim are left for the application to check.
    /// * An IP fragment is never fast, the first one neither: only the first carries the ports, so
    ///   the rest of its datagram goes to Linux, and Linux can only reassemble what it gets whole.
    ///   An IPv6 packet with a fragment header is one, also when it is alone (RFC 6946).
    ///
    /// Neither allocates nor panics; a few nanoseconds and one comparison per rule.
    pub fn matches(&self, frame: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        let key = Key::read(frame);
        !key.fragment && self.as_slice().iter().any(|rule| rule.holds(&key))
    }
}

impl Rule {
    fn holds(&self, key: &Key) -> bool {
        let addresses = key.addresses.as_ref();
        self.ethertype.is_none_or(|wanted| key.ethertype == Some(wanted))
            && self.protocol.is_none_or(|wanted| key.protocol == Some(wanted))
            && self.source.is_none_or(|prefix| {
                addresses.is_some_and(|is| prefix.holds(is.version, &is.source))
            })
            && self.destination.is_none_or(|prefix| {
                addresses.is_some_and(|is| prefix.holds(is.version, &is.destination))
            })
            && self.udp_port.is_none_or(|range| key.udp_port.is_some_and(|is| range.contains(is)))
            && self.tcp_port.is_none_or(|range| key.tcp_port.is_some_and(|is| range.contains(is)))
            && (!self.gtp_u || key.gtp_u)
    }
}

impl Prefix {
    fn holds(self, version: u8, address: &[u8; 16]) -> bool {
        let same_version = self.address.is_ipv4() == (version == 4);
        let mut difference = 0;
        for ((is, wanted), mask) in address.iter().zip(self.octets()).zip(self.mask()) {
            difference |= (is ^ wanted) & mask;
        }
        same_version && difference == 0
    }
}

impl Key {
    fn read(frame: &[u8]) -> Key {
        let mut key = Key::default();
        // Every step returns None when the frame ends; what was found before stays in the key.
        let _ = key.read_ethernet(frame);
        key
    }

    fn read_ethernet(&mut self, frame: &[u8]) -> Option<()> {
        let mut offset = 12;
        let mut ethertype = u16::from_be_bytes(bytes(frame, offset)?);
        for _ in 0..MAX_TAGS {
            if !VLAN.contains(&ethertype) {
                break;
            }
            offset += 4;
            ethertype = u16::from_be_bytes(bytes(frame, offset)?);
        }
        self.ethertype = Some(ethertype);
        match ethertype {
            IPV4 => self.read_ipv4(frame, offset + 2),
            IPV6 => self.read_ipv6(frame, offset + 2),
            _ => None,
        }
    }

    /// RFC 791 3.1.
    fn read_ipv4(&mut self, frame: &[u8], offset: usize) -> Option<()> {
        let header: [u8; 20] = bytes(frame, offset)?;
        let header_length = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_length < header.len() {
            return None;
        }
        let mut addresses = Addresses { version: 4, source: [0; 16], destination: [0; 16] };
        addresses.source[..4].copy_from_slice(&header[12..16]);
        addresses.destination[..4].copy_from_slice(&header[16..20]);
        self.addresses = Some(addresses);
        // More-fragments flag or an offset; the don't-fragment flag and the reserved bit do not
        // count.
        self.fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        self.protocol = Some(header[9]);
        self.read_transport(frame, offset + header_length, header[9])
    }

    /// RFC 8200 3 and 4.
    fn read_ipv6(&mut self, frame: &[u8], offset: usize) -> Option<()> {
        let header: [u8; 40] = bytes(frame, offset)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        self.addresses = Some(Addresses {
            version: 6,
            source: bytes(&header, 8)?,
            destination: bytes(&header, 24)?,
        });
        let (mut next, mut offset) = (header[6], offset + header.len());
        for _ in 0..MAX_EXTENSIONS {
            if !EXTENSIONS.contains(&next) {
                break;
            }
            let extension: [u8; 2] = bytes(frame, offset)?;
            next = extension[0];
            offset += (usize::from(extension[1]) + 1) * 8;
        }
        if EXTENSIONS.contains(&next) {
            return None;
        }
        self.fragment = next == FRAGMENT;
        self.protocol = Some(next);
        self.read_transport(frame, offset, next)
    }

    /// RFC 768, RFC 9293 3.1, 3GPP TS 29.281 5.1.
    fn read_transport(&mut self, frame: &[u8], offset: usize, protocol: u8) -> Option<()> {
        match protocol {
            UDP => {
                let header: [u8; 8] = bytes(frame, offset)?;
                let port = u16::from_be_bytes([header[2], header[3]]);
                self.udp_port = Some(port);
                if port == GTP_U_PORT {
                    let gtp: [u8; 8] = bytes(frame, offset + header.len())?;
                    // Version 1 in the upper three bits, protocol type GTP in the fourth.
                    self.gtp_u = gtp[0] >> 4 == 0b0011;
                }
            }
            TCP => {
                let header: [u8; 20] = bytes(frame, offset)?;
                self.tcp_port = Some(u16::from_be_bytes([header[2], header[3]]));
            }
            _ => {}
        }
        Some(())
    }
}

/// `N` octets at `offset`, when the frame has them.
fn bytes<const N: usize>(frame: &[u8], offset: usize) -> Option<[u8; N]> {
    frame.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
