//! Listener for forwarding settings and reverse-path filters: `RTM_NEWNETCONF` of rtnetlink.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::message::{Dump, Message};
use super::socket::{Dumper, NETCONF_GROUPS, Received, Socket};

/// Receive buffer for events in bytes: about a thousand events.
const EVENTS_BUFFER: usize = 1 << 20;

/// Outcome of [`NetconfListener::hear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetconfEvents {
    /// No event was pending.
    Nothing,
    /// All events were received.
    Events,
    /// Some events were lost or could not be parsed: everything must be read again.
    Lost,
}

/// Listens for [`Netconf`](super::message::Netconf) changes in the network namespace of the thread
/// that opened it. Any thread may use it.
#[derive(Debug)]
pub struct NetconfListener {
    events: Socket,
    dumper: Dumper,
}

impl NetconfListener {
    /// Subscribes to events.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket.
    pub fn open() -> io::Result<Self> {
        let events = Socket::of_events(&NETCONF_GROUPS, EVENTS_BUFFER)?;
        Ok(Self { events, dumper: Dumper::new()? })
    }

    /// Passes pending events to `take` without waiting.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a dump, or if its reply cannot be read.
    pub fn hear(&mut self, mut take: impl FnMut(Message)) -> io::Result<NetconfEvents> {
        let mut heard = NetconfEvents::Nothing;
        loop {
            let messages = match self.events.receive()? {
                Received::Messages(messages) => messages,
                Received::Nothing => return Ok(heard),
                Received::Lost => {
                    heard = NetconfEvents::Lost;
                    continue;
                }
            };
            for message in messages {
                match message {
                    Ok((_, Message::Overrun)) | Err(_) => heard = NetconfEvents::Lost,
                    Ok((_, message)) => {
                        take(message);
                        heard = if heard == NetconfEvents::Lost {
                            heard
                        } else {
                            NetconfEvents::Events
                        };
                    }
                }
            }
        }
    }

    /// Dumps all settings to `take` and waits for the end. A kernel without IPv6 reports none for
    /// it. Returns false if interfaces changed during every attempt, so that some may be missing.
    ///
    /// # Errors
    /// Returns the error that the kernel reports, or that of reading its reply.
    pub fn read(&mut self, mut take: impl FnMut(Message)) -> io::Result<bool> {
        let mut whole = true;
        for family in [libc::AF_INET, libc::AF_INET6] {
            whole &= self.dumper.dump(Dump::Netconf(family), |messages| {
                messages.into_iter().for_each(&mut take);
                true
            })?;
        }
        Ok(whole)
    }
}

impl AsFd for NetconfListener {
    /// Returns the event socket; it is readable when events are pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::netlink::SocketAddrNetlink;
    use rustix::net::{AddressFamily, SendFlags, SocketType};

    use super::*;
    use crate::message::Netconf;
    use fastlane_netlink::Request;

    fn write(path: &str, value: &str) {
        std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
    }

    fn forwarding(listener: &mut NetconfListener) -> (NetconfEvents, Vec<Netconf>) {
        let mut all = Vec::new();
        let heard = listener.hear(|message| {
            if let Message::Netconf(netconf) = message {
                all.push(netconf);
            }
        });
        (heard.unwrap(), all)
    }

    #[test]
    fn it_hears_each_change_and_reads_everything() {
        if !fastlane_testing::namespace::private("listener") {
            return;
        }
        let mut listener = NetconfListener::open().unwrap();
        assert_eq!(forwarding(&mut listener), (NetconfEvents::Nothing, vec![]));
        write("ipv4/conf/lo/rp_filter", "2");
        let netconf = Netconf { link: 1, ipv6: false, forwards: None, reverse_path: Some(2) };
        assert_eq!(forwarding(&mut listener), (NetconfEvents::Events, vec![netconf]));
        let mut all = Vec::new();
        assert!(listener.read(|message| all.push(message)).unwrap());
        let of = |link, ipv6| {
            let netconf = all.iter().filter_map(|message| match message {
                Message::Netconf(netconf) => Some((netconf.link, netconf.ipv6)),
                _ => None,
            });
            netconf.filter(|netconf| *netconf == (link, ipv6)).count()
        };
        assert_eq!([of(1, false), of(Netconf::ALL, false)], [1, 1]);
        assert_eq!([of(1, true), of(Netconf::ALL, true)], [1, 1]);
    }

    #[test]
    fn it_says_when_events_were_lost() {
        if !fastlane_testing::namespace::private("lost") {
            return;
        }
        let mut listener = NetconfListener::open().unwrap();
        for time in 0..6000 {
            write("ipv4/conf/lo/rp_filter", if time % 2 == 0 { "1" } else { "0" });
        }
        assert_eq!(forwarding(&mut listener).0, NetconfEvents::Lost);
        assert_eq!(forwarding(&mut listener).0, NetconfEvents::Nothing);
    }

    #[test]
    fn it_believes_only_the_kernel() {
        if !fastlane_testing::namespace::private("forged") {
            return;
        }
        let mut listener = NetconfListener::open().unwrap();
        let name = rustix::net::getsockname(&listener).unwrap();
        let name = SocketAddrNetlink::try_from(name).unwrap();
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let other = rustix::net::socket(family, kind, None).unwrap();
        let forged = Request::new(libc::RTM_NEWNETCONF, 0, &[libc::AF_INET as u8, 0, 0, 0])
            .attribute(1, &1_u32.to_ne_bytes())
            .attribute(2, &1_u32.to_ne_bytes())
            .finish();
        let sent = rustix::net::sendto(&other, &forged, SendFlags::empty(), &name);
        assert_eq!(sent, Ok(forged.len()));
        assert_eq!(forwarding(&mut listener), (NetconfEvents::Nothing, vec![]));
    }
}
