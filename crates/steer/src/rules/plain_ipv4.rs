//! Matcher for plain IPv4 frames: IPv4 without VLAN tags, options and fragmentation.
//!
//! In a [`PlainIpv4`] every field has a fixed offset, so that a [`PlainRule`] is a mask and a value
//! of 24 bytes. All other frames take the reference matcher, which this one must agree with. It has
//! no counterpart in eBPF.

use super::{GTP_U_PORT, IPV4, Rule, TCP, UDP, knows};

/// Offset of the EtherType, at which the compared bytes begin.
const START: usize = 12;
/// Number of compared bytes: up to the first byte of a UDP payload, and one more.
const LENGTH: usize = 32;
/// Offsets of fields from the Ethernet header on.
const PROTOCOL: usize = 23;
const SOURCE: usize = 26;
const DESTINATION: usize = 30;
const PORT: usize = 36;
const UDP_PAYLOAD: usize = 42;
/// Minimum lengths of a frame whose fixed TCP header or GTP-U header is complete. The fixed UDP
/// header always is.
const TCP_END: usize = 54;
const GTP_U_END: usize = UDP_PAYLOAD + 8;

/// Plain IPv4 frame that is long enough for a comparison.
#[derive(Clone, Copy)]
pub(crate) struct PlainIpv4 {
    /// Octets 20 to 43. Those before are the same in all plain frames, or of no rule.
    words: [u64; 3],
    port: u16,
    length: usize,
}

impl PlainIpv4 {
    /// Reads the frame. Returns `None` if the reference matcher must read it.
    #[inline]
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        // EtherType, version and header length in octets 12 to 14.
        const MASK: u64 = u64::from_ne_bytes([0xff, 0xff, 0xff, 0, 0, 0, 0, 0]);
        const PLAIN: u64 = u64::from_ne_bytes([0x08, 0x00, 0x45, 0, 0, 0, 0, 0]);
        // More-fragments flag or an offset in octets 20 and 21.
        const FRAGMENT: u64 = u64::from_ne_bytes([0x3f, 0xff, 0, 0, 0, 0, 0, 0]);
        let bytes = frame.first_chunk::<{ START + LENGTH }>()?.last_chunk::<LENGTH>()?;
        let [first, second, third, fourth] = words(bytes);
        if first & MASK != PLAIN || second & FRAGMENT != 0 {
            return None;
        }
        let port = u16::from_be_bytes([bytes[PORT - START], bytes[PORT - START + 1]]);
        Some(Self { words: [second, third, fourth], port, length: frame.len() })
    }
}

/// Rule prepared for comparison with plain IPv4 frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlainRule {
    mask: [u64; 3],
    value: [u64; 3],
    /// Range of ports as the first one and the number of further ones.
    first_port: u16,
    further_ports: u16,
    /// Minimum length of a frame.
    least: usize,
}

impl PlainRule {
    /// Prepares a checked rule. Returns `None` if it matches no IPv4 frame.
    pub(crate) fn new(rule: &Rule) -> Option<Self> {
        let needs = rule.needs();
        let is_other = rule.ethertype.is_some_and(|wanted| wanted != IPV4) || rule.vlan.is_some();
        if is_other || needs & knows::IPV6 != 0 {
            return None;
        }
        let (mut mask, mut value) = ([0; LENGTH], [0; LENGTH]);
        let mut want = |offset: usize, bits: &[u8], octets: &[u8]| {
            let at = offset - START..offset - START + bits.len();
            mask[at.clone()].copy_from_slice(bits);
            value[at].copy_from_slice(octets);
        };
        let is_udp = needs & (knows::UDP | knows::GTP_U) != 0;
        let is_tcp = needs & knows::TCP != 0;
        // The check of the rule excludes two different protocols.
        let transport = is_udp.then_some(UDP).or(is_tcp.then_some(TCP));
        if let Some(protocol) = rule.protocol.or(transport) {
            want(PROTOCOL, &[0xff], &[protocol]);
        }
        for (offset, prefix) in [(SOURCE, rule.source), (DESTINATION, rule.destination)] {
            if let Some(prefix) = prefix {
                want(offset, &prefix.mask()[..4], &prefix.octets()[..4]);
            }
        }
        if rule.gtp_u {
            want(PORT, &[0xff; 2], &GTP_U_PORT.to_be_bytes());
            want(UDP_PAYLOAD, &[0xf0], &[0x30]);
        }
        let least = match (is_tcp, rule.gtp_u) {
            (true, _) => TCP_END,
            (_, true) => GTP_U_END,
            _ => START + LENGTH,
        };
        let ports = rule.ports();
        let [[_, mask @ ..], [_, value @ ..]] = [words(&mask), words(&value)];
        Some(Self {
            mask,
            value,
            first_port: ports.first,
            further_ports: ports.last - ports.first,
            least,
        })
    }

    /// Returns true if the rule matches the frame.
    #[inline]
    pub(crate) fn matches(&self, frame: &PlainIpv4) -> bool {
        let differ = |at: usize| (frame.words[at] & self.mask[at]) ^ self.value[at];
        differ(0) | differ(1) | differ(2) == 0
            && frame.port.wrapping_sub(self.first_port) <= self.further_ports
            && frame.length >= self.least
    }
}

/// Returns the bytes as words in the machine's byte order.
#[inline]
fn words(bytes: &[u8; LENGTH]) -> [u64; LENGTH / 8] {
    let (chunks, _) = bytes.as_chunks();
    std::array::from_fn(|index| u64::from_ne_bytes(chunks[index]))
}

#[cfg(test)]
mod tests;
