//! Whether Linux forwards, and what it asks of sources: `RTM_NEWNETCONF` of rtnetlink, which is
//! what stands under `/proc/sys/net/ipv4/conf` and `/proc/sys/net/ipv6/conf` and says when it
//! changes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// `linux/rtnetlink.h`.
const RTM_NEWNETCONF: u16 = 80;
const RTM_DELNETCONF: u16 = 81;
const RTM_GETNETCONF: u16 = 82;
/// `RTNLGRP_IPV4_NETCONF` and `RTNLGRP_IPV6_NETCONF`, as bits.
const GROUPS: u32 = 1 << (24 - 1) | 1 << (25 - 1);
/// `linux/netconf.h`.
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_RP_FILTER: u16 = 3;
const ALL: i32 = -1;
/// `linux/netlink.h`.
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER: usize = 16;
/// `AF_INET` and `AF_INET6`.
const FAMILIES: [u8; 2] = [2, 10];
/// The kernel makes no datagram of a dump above 32 KiB.
const BUFFER: usize = 65536;

/// What Linux has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conf {
    /// Of each interface, [`ALL`] is one: whether it forwards IPv4, and its `rp_filter`.
    four: BTreeMap<i32, (bool, u8)>,
    six: BTreeMap<i32, bool>,
}

impl Conf {
    /// Whether IPv4 packets that come in by an interface are forwarded.
    pub(super) fn forwards4(&self, link: u32) -> bool {
        self.four.get(&(link as i32)).is_some_and(|(forwards, _)| *forwards)
    }

    /// The greater of the interface's and that of all (`IN_DEV_MAXCONF`).
    pub(super) fn reverse_path(&self, link: u32) -> u8 {
        let of = |link| self.four.get(&link).map_or(0, |(_, reverse_path)| *reverse_path);
        of(link as i32).max(of(ALL))
    }

    /// Whether IPv6 packets are forwarded (`ip6_forward` in `net/ipv6/ip6_output.c`).
    pub(super) fn forwards6(&self) -> bool {
        self.six.get(&ALL).copied().unwrap_or(false)
    }

    pub(super) fn say4(&mut self, link: i32, forwards: Option<bool>, reverse_path: Option<u8>) {
        let known = self.four.entry(link).or_default();
        *known = (forwards.unwrap_or(known.0), reverse_path.unwrap_or(known.1));
    }

    pub(super) fn say6(&mut self, link: i32, forwards: bool) {
        self.six.insert(link, forwards);
    }

    /// Takes in the messages of a datagram. Whether it ends a dump.
    fn take(&mut self, mut datagram: &[u8]) -> bool {
        let mut ends = false;
        while let Some((length, kind)) = header(datagram) {
            let Some(message) = datagram.get(HEADER..length.max(HEADER)) else { break };
            match kind {
                RTM_NEWNETCONF => self.say(message),
                RTM_DELNETCONF => self.forget(message),
                NLMSG_ERROR | NLMSG_DONE => ends = true,
                _ => {}
            }
            let next = length.max(HEADER).next_multiple_of(4);
            datagram = datagram.get(next..).unwrap_or(&[]);
        }
        ends
    }

    fn say(&mut self, message: &[u8]) {
        let (mut link, mut forwards, mut reverse_path) = (None, None, None);
        for (kind, value) in Attributes(message.get(4..).unwrap_or(&[])) {
            match kind {
                NETCONFA_IFINDEX => link = Some(value),
                NETCONFA_FORWARDING => forwards = Some(value != 0),
                NETCONFA_RP_FILTER => reverse_path = Some(value.clamp(0, 2) as u8),
                _ => {}
            }
        }
        let (Some(link), Some(family)) = (link, message.first()) else { return };
        if *family == FAMILIES[0] {
            self.say4(link, forwards, reverse_path);
        } else if let Some(forwards) = forwards {
            self.say6(link, forwards);
        }
    }

    fn forget(&mut self, message: &[u8]) {
        let mut attributes = Attributes(message.get(4..).unwrap_or(&[]));
        let link = attributes.find(|(kind, _)| *kind == NETCONFA_IFINDEX);
        let (Some((_, link)), Some(family)) = (link, message.first()) else { return };
        if *family == FAMILIES[0] {
            self.four.remove(&link);
        } else {
            self.six.remove(&link);
        }
    }
}

/// Length and kind of the first message.
fn header(datagram: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(datagram.get(..4)?.try_into().ok()?) as usize;
    Some((length, u16::from_ne_bytes(datagram.get(4..6)?.try_into().ok()?)))
}

/// Attributes whose values are numbers of 32 bits; others are passed over.
struct Attributes<'a>(&'a [u8]);

impl Iterator for Attributes<'_> {
    type Item = (u16, i32);

    fn next(&mut self) -> Option<(u16, i32)> {
        loop {
            let length = u16::from_ne_bytes(self.0.get(..2)?.try_into().ok()?);
            let kind = u16::from_ne_bytes(self.0.get(2..4)?.try_into().ok()?);
            let value = self.0.get(4..usize::from(length));
            let next = usize::from(length).max(4).next_multiple_of(4);
            self.0 = self.0.get(next..).unwrap_or(&[]);
            if let Some(Ok(value)) = value.map(<[u8; 4]>::try_from) {
                return Some((kind, i32::from_ne_bytes(value)));
            }
        }
    }
}

/// Follows what Linux says, in the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netconf {
    events: OwnedFd,
    questions: OwnedFd,
    buffer: Box<[u8]>,
    pub(super) conf: Conf,
}

impl Netconf {
    pub(super) fn open() -> io::Result<Self> {
        // Events first, so that nothing is missed.
        let events = socket(SocketFlags::NONBLOCK)?;
        rustix::net::bind(&events, &SocketAddrNetlink::new(0, GROUPS))?;
        let questions = socket(SocketFlags::empty())?;
        let buffer = vec![0; BUFFER].into_boxed_slice();
        let mut this = Self { events, questions, buffer, conf: Conf::default() };
        this.read()?;
        Ok(this)
    }

    /// Takes in the events that are there. Whether something may differ.
    pub(super) fn step(&mut self) -> io::Result<bool> {
        let mut any = false;
        loop {
            match rustix::net::recv(&self.events, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((_, length)) => {
                    self.conf.take(&self.buffer[..length]);
                    any = true;
                }
                Err(Errno::AGAIN) => return Ok(any),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => {
                    self.read()?;
                    any = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads everything.
    fn read(&mut self) -> io::Result<()> {
        let mut fresh = Conf::default();
        for family in FAMILIES {
            rustix::net::send(&self.questions, &request(family), SendFlags::empty())?;
            loop {
                let buffer = &mut self.buffer[..];
                match rustix::net::recv(&self.questions, buffer, RecvFlags::empty()) {
                    Ok((_, length)) if fresh.take(&self.buffer[..length]) => break,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.conf = fresh;
        Ok(())
    }
}

impl AsFd for Netconf {
    /// Can be read when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC | flags);
    // Protocol 0 is NETLINK_ROUTE.
    Ok(rustix::net::socket_with(family, SocketType::RAW, flags, None)?)
}

fn request(family: u8) -> [u8; HEADER + 4] {
    let mut message = [0; HEADER + 4];
    message[..4].copy_from_slice(&((HEADER + 4) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_GETNETCONF.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    message[HEADER] = family;
    message
}

#[cfg(test)]
mod tests;
