//! Parsing of addresses and prefixes.

use std::net::IpAddr;

use crate::session::Prefix;

/// Parses `10.45.0.0/16`; bits behind the prefix must be zero. The error contains the remedy.
pub(crate) fn prefix(text: &str) -> Result<Prefix, String> {
    let form = || format!("`{text}` is no prefix; write address and length, such as 10.45.0.0/16");
    let (address, length) = text.split_once('/').ok_or_else(form)?;
    let address: IpAddr = address.parse().map_err(|_| form())?;
    let length: u8 = length.parse().map_err(|_| form())?;
    if length > bits(address) {
        return Err(form());
    }
    let inside = masked(address, length);
    if inside != address {
        return Err(format!("`{text}` has bits set behind the prefix; write {inside}/{length}"));
    }
    Ok(Prefix { address, length })
}

/// Parses `02:00:00:00:00:02`, the Ethernet address of one host. The error contains the remedy.
pub(super) fn ethernet(text: &str) -> Result<[u8; 6], String> {
    let form = || format!("`{text}` is no Ethernet address of a host; write 02:00:00:00:00:02");
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        let is_hex = |part: &&str| part.len() == 2 && part.bytes().all(|it| it.is_ascii_hexdigit());
        let part = parts.next().filter(is_hex).ok_or_else(form)?;
        *octet = u8::from_str_radix(part, 16).map_err(|_| form())?;
    }
    // The lowest bit of the first octet marks a group (IEEE 802, clause 8.2).
    let is_host = parts.next().is_none() && octets[0] & 1 == 0 && octets != [0; 6];
    is_host.then_some(octets).ok_or_else(form)
}

/// Returns true if two prefixes overlap.
pub(super) fn overlap(one: Prefix, other: Prefix) -> bool {
    let length = one.length.min(other.length);
    one.address.is_ipv4() == other.address.is_ipv4()
        && masked(one.address, length) == masked(other.address, length)
}

/// Returns true if a prefix contains an address.
pub(crate) fn contains(prefix: Prefix, address: IpAddr) -> bool {
    overlap(prefix, Prefix { address, length: bits(address) }) && prefix.length <= bits(address)
}

const fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - length.min(32)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - length.min(128)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

/// Returns true for an IPv6 link-local address (RFC 4291 clause 2.5.6): only an interface and such
/// an address together name a host, and the UPF stores addresses alone.
#[must_use]
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Returns the reason if an address cannot be a local address, if any.
pub(super) fn unfit(address: IpAddr) -> Option<&'static str> {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() {
        Some("means any address; write the address that peers use")
    } else if address.is_multicast() || broadcast {
        Some("is a group; write the address of one host")
    } else if is_link_local(address) {
        Some("has a meaning on one link only; write a global or unique local address")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_an_address_and_a_length() {
        assert_eq!(prefix("10.45.0.0/16").unwrap().length, 16);
        assert_eq!(prefix("2001:db8::/40").unwrap().length, 40);
        assert_eq!(prefix("0.0.0.0/0").unwrap().length, 0);
        for wrong in ["10.45.0.0", "10.45/16", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/-1"] {
            assert!(prefix(wrong).unwrap_err().contains("is no prefix"), "{wrong}");
        }
        let error = prefix("10.45.1.0/16").unwrap_err();
        assert!(error.ends_with("write 10.45.0.0/16"), "{error}");
    }

    #[test]
    fn an_ethernet_address_is_of_one_host() {
        assert_eq!(ethernet("02:00:00:00:00:fE"), Ok([2, 0, 0, 0, 0, 0xfe]));
        for wrong in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:02:03",
            "2:0:0:0:0:2",
            "02-00-00-00-00-02",
            "01:00:5e:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
            "02:00:00:00:00:+2",
            "02:00:00:00:00:g2",
        ] {
            assert!(ethernet(wrong).unwrap_err().contains("is no Ethernet address"), "{wrong}");
        }
    }

    #[test]
    fn prefixes_overlap_when_one_is_in_the_other() {
        let of = |text| prefix(text).unwrap();
        assert!(overlap(of("10.0.0.0/8"), of("10.45.0.0/16")));
        assert!(overlap(of("0.0.0.0/0"), of("10.45.0.0/16")));
        assert!(!overlap(of("10.44.0.0/16"), of("10.45.0.0/16")));
        assert!(!overlap(of("0.0.0.0/0"), of("::/0")));
        assert!(contains(of("2001:db8::/40"), "2001:db8:ff::1".parse().unwrap()));
        assert!(!contains(of("2001:db8::/40"), "2001:db8:100::1".parse().unwrap()));
    }
}
