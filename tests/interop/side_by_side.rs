//! Lives with addresses and TEIDs of their own, so that one UPF serves several at a time. The
//! octets are those recorded but for these values, whose lengths stay the same.

use std::net::{IpAddr, Ipv4Addr};

use crate::life::{Action, Life, Part, Step, Uplink};
use crate::namespaces::{GNB, N3, SMF, UPF};

/// Largest number of a life.
pub(crate) const MOST: u8 = 40;

/// Life at the place of one SMF and gNB among several.
pub(crate) struct Placement {
    /// The life, with the addresses of this SMF, gNB and user.
    pub(crate) life: Life,
    /// Address of the SMF.
    pub(crate) smf: Ipv4Addr,
    /// Address of the gNB.
    pub(crate) gnb: Ipv4Addr,
}

/// Returns the address of the SMF or gNB of a life; life 0 has the recorded one.
pub(crate) fn numbered(recorded: Ipv4Addr, number: u8) -> Ipv4Addr {
    let [a, b, c, d] = recorded.octets();
    Ipv4Addr::new(a, b, c, d + number)
}

impl Placement {
    /// Gives a life the number `number`, at most [`MOST`]. Number 0 leaves it as recorded.
    pub(crate) fn new(mut life: Life, number: u8) -> Self {
        assert!(number <= MOST, "life {number}");
        let (smf, gnb) = (numbered(SMF, number), numbered(GNB, number));
        let users: Vec<_> = life.ue.iter().map(|ue| (*ue, user(*ue, number))).collect();
        let mut changes = vec![(SMF.octets().to_vec(), smf.octets().to_vec())];
        changes.push((GNB.octets().to_vec(), gnb.octets().to_vec()));
        changes.extend(users.iter().map(|(from, to)| (octets(*from), octets(*to))));
        life.ue = users.into_iter().map(|(_, to)| to).collect();
        for step in &mut life.steps {
            match step {
                Step::Request(_, parts) => {
                    let all = parts.iter_mut().filter_map(|part| match part {
                        Part::Octets(octets) => Some(octets),
                        Part::UpSeid | Part::Teid(_) => None,
                    });
                    for octets in all {
                        changes.iter().for_each(|(from, to)| replace(octets, from, to));
                        renumber_tunnels(octets, number);
                    }
                }
                Step::Uplink(uplink) => renumber_uplink(uplink, number),
                Step::Action(Action::Data { uplink: Some(uplink), .. }) => {
                    renumber_uplink(uplink, number);
                }
                Step::Action(Action::Relay { into, .. }) => *into = teid(*into, number),
                Step::Action(_) => {}
            }
        }
        Self { life, smf, gnb }
    }
}

/// Returns the address of a user of a life: the third octet of an IPv4 address grows, and the
/// fourth part of an IPv6 prefix.
fn user(recorded: IpAddr, number: u8) -> IpAddr {
    match recorded {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            IpAddr::from([a, b, c + number, d])
        }
        IpAddr::V6(address) => {
            let mut segments = address.segments();
            segments[3] += u16::from(number) << 8;
            IpAddr::from(segments)
        }
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Replaces each occurrence of `from` by `to`, which is as long.
fn replace(octets: &mut [u8], from: &[u8], to: &[u8]) {
    let mut at = 0;
    while at + from.len() <= octets.len() {
        if octets[at..].starts_with(from) {
            octets[at..at + to.len()].copy_from_slice(to);
            at += to.len();
        } else {
            at += 1;
        }
    }
}

/// Returns a TEID that the SMF of a life chooses.
const fn teid(recorded: u32, number: u8) -> u32 {
    recorded + ((number as u32) << 16)
}

fn renumber_uplink(uplink: &mut Uplink, number: u8) {
    if let Uplink::Teid(chosen) = uplink {
        *chosen = teid(*chosen, number);
    }
}

/// Renumbers the TEIDs that the SMF chose: those before an address of the UPF.
fn renumber_tunnels(octets: &mut [u8], number: u8) {
    for address in [N3, UPF].map(|address| address.octets()) {
        for at in 4..octets.len().saturating_sub(3) {
            // An F-TEID has its flags, V4 alone, before the TEID (TS 29.244, 8.2.3).
            if octets[at..].starts_with(&address) && at > 4 && octets[at - 5] == 1 {
                let recorded = u32::from_be_bytes([0, 1, 2, 3].map(|octet| octets[at - 4 + octet]));
                octets[at - 4..at].copy_from_slice(&teid(recorded, number).to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_life_keeps_its_shape() {
        let text = "! ueip 10.45.0.2 2001:db8:cafe::2\n! ulteid 0x2\n\
                    > establish 0015000901000000020a030001005d00050a2d0002003c00050a040002\n";
        let recorded = Life::parse(text).unwrap();
        assert_eq!(Placement::new(recorded.clone(), 0).life, recorded);
        let placement = Placement::new(recorded, 3);
        let text = "! ueip 10.45.3.2 2001:db8:cafe:300::2\n! ulteid 0x30002\n\
                    > establish 0015000901000300020a030001005d00050a2d0302003c00050a040005\n";
        assert_eq!(placement.life, Life::parse(text).unwrap());
        assert_eq!((placement.smf, placement.gnb), ([10, 4, 0, 5].into(), [10, 3, 0, 5].into()));
    }
}
