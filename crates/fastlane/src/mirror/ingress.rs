//! Ingress interface of each port, published to the lanes by the mirror's thread.

use std::sync::atomic::{AtomicU64, Ordering};

use super::netconf::Conf;
use crate::PortId;

/// Reverse-path filter for IPv4 packets (`rp_filter`, RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// No check.
    #[default]
    Any,
    /// The route to the source must use the ingress interface.
    Strict,
    /// Any route to the source suffices.
    Loose,
}

/// Linux interface on which packets of a port arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngressInterface {
    /// Index of the interface.
    pub link: u32,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// True if Linux forwards IPv4 packets that arrive on it (`net.ipv4.conf.*.forwarding`).
    pub forwards4: bool,
    /// True if Linux forwards IPv6 packets that arrive on it (`net.ipv6.conf.all.forwarding`, and
    /// `disable_ipv6` of the interface).
    pub forwards6: bool,
    /// True if the interface belongs to a VRF: Linux routes its packets by the table of that.
    pub is_in_vrf: bool,
    /// Reverse-path filter for IPv4 sources.
    pub reverse_path: ReversePath,
}

const FORWARDS4: u64 = 1 << 32;
const FORWARDS6: u64 = 1 << 33;
const REVERSE_PATH: u32 = 34;

/// One u64 per port: the interface index in the lower 32 bits, 0 for none; flags in the upper ones.
#[derive(Debug)]
pub(super) struct IngressTable(Vec<AtomicU64>);

impl IngressTable {
    pub(super) fn new(ports: usize) -> Self {
        Self((0..ports).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns the ingress interface of a port, with a zero MAC address and no VRF.
    #[inline]
    pub(super) fn get(&self, port: PortId) -> Option<IngressInterface> {
        let word = self.0.get(usize::from(port.0))?.load(Ordering::Relaxed);
        let link = word as u32;
        (link != 0).then_some(IngressInterface {
            link,
            mac: [0; 6],
            forwards4: word & FORWARDS4 != 0,
            forwards6: word & FORWARDS6 != 0,
            is_in_vrf: false,
            reverse_path: match word >> REVERSE_PATH & 3 {
                0 => ReversePath::Any,
                1 => ReversePath::Strict,
                _ => ReversePath::Loose,
            },
        })
    }

    /// Publishes the current settings of each port's interface, whose index is in
    /// `linux_interfaces`. `takes_ipv6` says whether Linux takes IPv6 packets from an interface.
    pub(super) fn publish(
        &self,
        linux_interfaces: &[Option<u32>],
        conf: &Conf,
        takes_ipv6: impl Fn(u32) -> bool,
    ) {
        for (word, link) in self.0.iter().zip(linux_interfaces) {
            let Some(link) = *link else {
                word.store(0, Ordering::Relaxed);
                continue;
            };
            let flag = |is, flag| if is { flag } else { 0 };
            let value = u64::from(link)
                | flag(conf.forwards4(link), FORWARDS4)
                | flag(conf.forwards6() && takes_ipv6(link), FORWARDS6)
                | u64::from(conf.reverse_path(link).min(2)) << REVERSE_PATH;
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Removes all interfaces, so that lanes leave all packets to Linux.
    pub(super) fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_says_what_linux_says_of_its_interface() {
        let (ingress, linux_interfaces) = (IngressTable::new(3), [Some(7), None, Some(9)]);
        let mut conf = Conf::default();
        ingress.publish(&linux_interfaces, &conf, |_| true);
        let get = |port| ingress.get(PortId(port));
        let closed = get(0).unwrap();
        assert_eq!((closed.link, closed.forwards4, closed.forwards6), (7, false, false));
        assert_eq!((get(1), get(3)), (None, None));
        conf.say4(7, Some(true), Some(1));
        conf.say6(-1, true);
        ingress.publish(&linux_interfaces, &conf, |link| link == 7);
        let open = get(0).unwrap();
        assert_eq!((open.forwards4, open.forwards6), (true, true));
        assert_eq!(open.reverse_path, ReversePath::Strict);
        assert!(!get(2).unwrap().forwards4 && !get(2).unwrap().forwards6);
        ingress.clear();
        assert_eq!(get(0), None);
    }
}
