//! Tunnel of a user, and the text line by which the control plane configures it in a base station.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Both ends of a PDU session's tunnel on N3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Address of the user; for IPv6 any address in the prefix of 64 bits.
    pub user: IpAddr,
    /// Address of the UPF's tunnel endpoint.
    pub upf: IpAddr,
    /// TEID at the UPF, for uplink packets.
    pub uplink: u32,
    /// TEID at the base station, for downlink packets.
    pub downlink: u32,
    /// QoS flow identifier of uplink packets, 0 to 63.
    pub qfi: u8,
}

/// Line for a base station: `tunnel USER UPF UPLINK DOWNLINK QFI`, or `release USER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Tunnel to add; it replaces an earlier one of the user.
    Tunnel(Tunnel),
    /// User whose tunnel is removed.
    Release(IpAddr),
}

impl fmt::Display for Line {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tunnel(Tunnel { user, upf, uplink, downlink, qfi }) => {
                write!(to, "tunnel {user} {upf} {uplink:#x} {downlink:#x} {qfi}")
            }
            Self::Release(user) => write!(to, "release {user}"),
        }
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{line}` is no line for a base station; write `tunnel USER UPF UPLINK DOWNLINK \
                 QFI` or `release USER`"
            )
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let read = || match *words {
            ["tunnel", user, upf, uplink, downlink, qfi] => Some(Self::Tunnel(Tunnel {
                user: user.parse().ok()?,
                upf: upf.parse().ok()?,
                uplink: number(uplink)?,
                downlink: number(downlink)?,
                qfi: qfi.parse().ok().filter(|qfi| *qfi < 64)?,
            })),
            ["release", user] => Some(Self::Release(user.parse().ok()?)),
            _ => None,
        };
        read().ok_or_else(wrong)
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let tunnel = Tunnel {
            user: "10.45.0.2".parse().unwrap(),
            upf: "10.3.0.1".parse().unwrap(),
            uplink: 0x0100_0007,
            downlink: 9,
            qfi: 1,
        };
        for line in [Line::Tunnel(tunnel), Line::Release("2001:db8::1".parse().unwrap())] {
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        let wrong = ["", "tunnel", "tunnel 1 2 3 4 5", "tunnel ::1 ::2 1 2 64", "release", "x ::1"];
        for line in wrong {
            assert!(line.parse::<Line>().is_err(), "{line}");
        }
    }
}
