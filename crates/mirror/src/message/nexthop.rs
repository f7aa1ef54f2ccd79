//! Next-hop objects, which routes refer to by id: `struct nhmsg` and `NHA_*` of `linux/nexthop.h`.

use super::{Hop, Malformed, ip, malformed};
use fastlane_netlink::{attributes, number};

/// Attributes `NHA_*`.
const ID: u16 = 1;
const GROUP: u16 = 2;
const BLACKHOLE: u16 = 4;
const LINK: u16 = 5;
const GATEWAY: u16 = 6;
const ENCAP: u16 = 8;
const FORWARDING_DATABASE: u16 = 11;

/// Flag `RTNH_F_DEAD`.
const DEAD: u8 = 1;

/// A next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Id of the object.
    pub id: u32,
    /// Kind and contents.
    pub kind: NextHopKind,
}

/// Kind of a next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHopKind {
    /// A single next hop.
    Hop(Hop),
    /// A group of next hops.
    Group(Vec<Member>),
    /// Drops packets.
    Blackhole,
    /// Not a next hop for IP packets.
    Other,
}

/// Member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Id of the next-hop object.
    pub id: u32,
    /// Relative weight, 1 to 65,536.
    pub weight: u32,
}

/// Parses a next-hop object.
pub(super) fn read(body: &[u8]) -> Result<NextHop, Malformed> {
    let wrong = malformed("a next-hop object");
    let (header, rest) = body.split_first_chunk::<8>().ok_or(wrong)?;
    let (family, flags) =
        (header[0], u32::from_ne_bytes([header[4], header[5], header[6], header[7]]));
    let dead = flags as u8 & DEAD != 0;
    let mut hop = Hop { gateway: None, link: 0, weight: 1, dead, encapsulated: false };
    let (mut id, mut kind) = (None, None);
    for (attribute, value) in attributes(rest) {
        match attribute {
            ID => id = number(value),
            GROUP => kind = Some(NextHopKind::Group(value.chunks_exact(8).map(member).collect())),
            BLACKHOLE => kind = Some(NextHopKind::Blackhole),
            FORWARDING_DATABASE => kind = Some(NextHopKind::Other),
            LINK => hop.link = number(value).ok_or(wrong)?,
            GATEWAY => hop.gateway = Some(ip(family, value).ok_or(wrong)?),
            ENCAP => hop.encapsulated = true,
            _ => {}
        }
    }
    Ok(NextHop { id: id.ok_or(wrong)?, kind: kind.unwrap_or(NextHopKind::Hop(hop)) })
}

/// Parses `struct nexthop_grp`. Newer kernels store the upper eight bits of the weight minus one in
/// a formerly reserved byte.
fn member(octets: &[u8]) -> Member {
    let weight =
        octets.get(4..6).map_or(0, |weight| u32::from(u16::from_le_bytes([weight[0], weight[1]])));
    Member { id: number(octets).unwrap_or(0), weight: weight + 1 }
}
