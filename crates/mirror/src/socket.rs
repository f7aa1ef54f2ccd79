//! Sockets of netlink(7).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fastlane_netlink::Request;
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink, XFRM};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};

use super::message::{Dump, Header, Malformed, Message, Messages, code};

/// Receive size for any datagram. The kernel makes none above 32 KiB, except for single messages of
/// up to 64 KiB.
const BUFFER: usize = 65536;

/// Receive buffer of the dump socket in bytes: a few datagrams. The kernel waits when it is full.
const DUMP_BUFFER: usize = 1 << 20;

/// Maximum number of attempts of a dump that is interrupted by changes.
const ATTEMPTS: u32 = 4;

/// Multicast groups (`RTNLGRP_*`) of the objects in the model.
pub(super) const ROUTING_GROUPS: [u32; 9] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_NEXTHOP,
];

/// Multicast group of traffic control.
pub(super) const TRAFFIC_CONTROL_GROUP: u32 = libc::RTNLGRP_TC;

/// Multicast groups of forwarding settings.
pub(super) const NETCONF_GROUPS: [u32; 2] =
    [libc::RTNLGRP_IPV4_NETCONF, libc::RTNLGRP_IPV6_NETCONF];

/// Protocol 0, which is `NETLINK_ROUTE`.
const ROUTE: Option<Protocol> = None;

/// Netlink socket of a network namespace, for events or dumps.
#[derive(Debug)]
pub(super) struct Socket {
    file: OwnedFd,
    buffer: Box<[u8]>,
}

/// Result of one receive call.
#[derive(Debug)]
pub(super) enum Received<'a> {
    /// Messages from the kernel.
    Messages(Messages<'a>),
    /// No datagram was pending.
    Nothing,
    /// Events were lost because the receive buffer was full.
    Lost,
}

impl Socket {
    /// Subscribes to multicast groups (`RTNLGRP_*`, below 33). The receive buffer has
    /// `receive_buffer` bytes as far as the privilege of the process allows.
    pub(super) fn of_events(groups: &[u32], receive_buffer: usize) -> io::Result<Self> {
        Self::subscribed(ROUTE, groups, receive_buffer)
    }

    /// Subscribes to multicast groups of nfnetlink (`NFNLGRP_*`, below 33).
    pub(super) fn of_netfilter_events(groups: &[u32], receive_buffer: usize) -> io::Result<Self> {
        Self::subscribed(Some(NETFILTER), groups, receive_buffer)
    }

    /// Subscribes to multicast groups of IPsec (`XFRMNLGRP_*`).
    pub(super) fn of_ipsec_events(groups: &[u32]) -> io::Result<Self> {
        Self::subscribed(Some(XFRM), groups, DUMP_BUFFER)
    }

    /// Opens a socket for requests about IPsec whose replies are waited for.
    pub(super) fn of_ipsec_requests() -> io::Result<Self> {
        Self::new(Some(XFRM), DUMP_BUFFER, SocketFlags::empty())
    }

    fn subscribed(
        protocol: Option<Protocol>,
        groups: &[u32],
        receive_buffer: usize,
    ) -> io::Result<Self> {
        let groups = groups.iter().fold(0, |groups, group| groups | 1 << (group - 1));
        let socket = Self::new(protocol, receive_buffer, SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket.file, &SocketAddrNetlink::new(0, groups))?;
        Ok(socket)
    }

    /// Opens a socket for requests whose acknowledgements are ignored.
    pub(super) fn of_requests() -> io::Result<Self> {
        Self::new(ROUTE, DUMP_BUFFER, SocketFlags::NONBLOCK)
    }

    /// Opens a socket for requests to nfnetlink whose replies are waited for.
    pub(super) fn of_netfilter_requests() -> io::Result<Self> {
        Self::new(Some(NETFILTER), DUMP_BUFFER, SocketFlags::empty())
    }

    /// Opens a socket for requests to nfnetlink whose refusals are read without waiting.
    pub(super) fn of_netfilter_changes() -> io::Result<Self> {
        Self::new(Some(NETFILTER), DUMP_BUFFER, SocketFlags::NONBLOCK)
    }

    /// Sends requests, all in one message of the socket. The kernel acts on them before it returns.
    pub(super) fn send_all(&mut self, requests: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.file, requests, SendFlags::empty())?;
        Ok(())
    }

    /// Sends a request after the rest of earlier replies was discarded.
    pub(super) fn request_from_start(&mut self, request: &[u8]) -> io::Result<()> {
        self.pass_over();
        self.send_all(request)
    }

    /// Requests a dump and passes its messages to `take`. Returns false if changes interrupted it.
    ///
    /// # Errors
    /// Returns the error that the kernel reports, or that of reading its reply.
    pub(super) fn dump(
        &mut self,
        request: Request,
        sequence: u32,
        mut take: impl FnMut(Header, &[u8]) -> Result<(), Malformed>,
    ) -> io::Result<bool> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut request = request.finish();
        request[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.request_from_start(&request)?;
        let mut is_whole = true;
        loop {
            let Received::Messages(mut messages) = self.receive()? else {
                return Err(Errno::NOBUFS.into());
            };
            while let Some(message) = messages.next_body() {
                let (header, body) = message.map_err(invalid)?;
                if header.sequence() != sequence {
                    continue; // of an earlier request
                }
                is_whole &= !header.was_interrupted();
                match i32::from(header.kind()) {
                    libc::NLMSG_DONE | libc::NLMSG_ERROR => match code(body).unwrap_or(0) {
                        0 => return Ok(is_whole),
                        error => return Err(io::Error::from_raw_os_error(error)),
                    },
                    _ => take(header, body).map_err(invalid)?,
                }
            }
        }
    }

    /// Sends a request and discards earlier acknowledgements.
    pub(super) fn request(&mut self, request: &[u8]) {
        self.pass_over();
        // A request that is not taken is repeated at the next event that calls for it.
        let _ = rustix::net::send(&self.file, request, SendFlags::empty());
    }

    /// Empties the receive buffer. Pending acknowledgements or the rest of an abandoned dump would
    /// delay the next dump.
    fn pass_over(&mut self) {
        loop {
            match rustix::net::recv(&self.file, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(_) => return, // there is no more
            }
        }
    }

    fn new(
        protocol: Option<Protocol>,
        receive_buffer: usize,
        flags: SocketFlags,
    ) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC | flags);
        let file = rustix::net::socket_with(family, SocketType::RAW, flags, protocol)?;
        let half = receive_buffer / 2; // the kernel doubles it (socket(7))
        if sockopt::set_socket_recv_buffer_size_force(&file, half).is_err() {
            sockopt::set_socket_recv_buffer_size(&file, half)?;
        }
        Ok(Self { file, buffer: vec![0; BUFFER].into_boxed_slice() })
    }

    /// Receives the next datagram; datagrams that are not from the kernel are skipped.
    pub(super) fn receive(&mut self) -> io::Result<Received<'_>> {
        loop {
            let received =
                rustix::net::recvfrom(&self.file, &mut self.buffer[..], RecvFlags::TRUNC);
            let (_, length, from) = match received {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::NOBUFS) => return Ok(Received::Lost),
                Err(error) => return Err(error.into()),
            };
            if length > BUFFER {
                return Ok(Received::Lost);
            }
            let sender = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
            if sender.is_some_and(|sender| sender.pid() == 0) {
                return Ok(Received::Messages(Messages::new(&self.buffer[..length])));
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Progress of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dumped {
    /// More messages follow.
    More,
    /// The dump is complete.
    Whole,
    /// The dump ended, but changes interrupted every attempt: objects may be missing.
    Interrupted,
}

/// State of a dump in progress.
#[derive(Debug)]
pub(super) struct Running {
    what: Dump,
    sequence: u32,
    whole: bool,
    attempts: u32,
    /// First error of parsing a message.
    malformed: Option<Malformed>,
}

/// Dumps the network namespace of the thread that created it, whichever thread calls.
#[derive(Debug)]
pub(super) struct Dumper {
    socket: Socket,
    sequence: u32,
}

impl Dumper {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { socket: Socket::new(ROUTE, DUMP_BUFFER, SocketFlags::empty())?, sequence: 0 })
    }

    /// Makes one dump and passes the messages of each datagram to `take` until it returns false. A
    /// repeated dump repeats messages. Returns false if changes interrupted every attempt.
    ///
    /// # Errors
    /// Returns the error that the kernel reports, or that of reading its reply.
    pub(super) fn dump(
        &mut self,
        what: Dump,
        mut take: impl FnMut(Vec<Message>) -> bool,
    ) -> io::Result<bool> {
        let mut running = self.start(what)?;
        loop {
            let mut messages = Vec::new();
            let dumped = self.next(&mut running, |message| messages.push(message))?;
            let wanted = messages.is_empty() || take(messages);
            match dumped {
                Dumped::More if wanted => {}
                Dumped::More | Dumped::Whole => return Ok(true),
                Dumped::Interrupted => return Ok(false),
            }
        }
    }

    /// Starts a dump; the rest of an earlier one is discarded.
    ///
    /// # Errors
    /// Returns an error if the kernel does not take the request.
    fn start(&mut self, what: Dump) -> io::Result<Running> {
        self.socket.pass_over();
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let sequence = self.sequence;
        rustix::net::send(&self.socket, &what.request(sequence), SendFlags::empty())?;
        Ok(Running { what, sequence, whole: true, attempts: 1, malformed: None })
    }

    /// Passes the next messages of a dump to `take`. A repeated dump repeats messages.
    ///
    /// # Errors
    /// Returns the error that the kernel reports, or that of reading its reply.
    fn next(&mut self, running: &mut Running, mut take: impl FnMut(Message)) -> io::Result<Dumped> {
        let Received::Messages(messages) = self.socket.receive()? else {
            return Err(Errno::NOBUFS.into());
        };
        let mut end = None;
        for message in messages {
            match message {
                // A reply to an abandoned dump.
                Ok((header, _)) if header.sequence() != running.sequence => {}
                Ok((header, message)) => {
                    running.whole &= !header.was_interrupted();
                    match message {
                        Message::Done(code) | Message::Ack(code) => end = Some(code),
                        Message::Overrun => running.whole = false,
                        message => take(message),
                    }
                }
                Err(error) => running.malformed = Some(error),
            }
        }
        match end {
            None => Ok(Dumped::More),
            Some(code) => self.ended(running, code),
        }
    }

    fn ended(&mut self, running: &mut Running, code: i32) -> io::Result<Dumped> {
        if let Some(error) = running.malformed {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        if code != 0 {
            let error = Errno::from_raw_os_error(code);
            let is_absent = running.what.is_optional() && UNSUPPORTED.contains(&error);
            return if is_absent { Ok(Dumped::Whole) } else { Err(error.into()) };
        }
        if running.whole {
            return Ok(Dumped::Whole);
        }
        if running.attempts == ATTEMPTS {
            return Ok(Dumped::Interrupted);
        }
        let attempts = running.attempts + 1;
        *running = Running { attempts, ..self.start(running.what)? };
        Ok(Dumped::More)
    }
}

/// Errors that mean the kernel lacks the requested kind of object.
const UNSUPPORTED: [Errno; 4] =
    [Errno::OPNOTSUPP, Errno::AFNOSUPPORT, Errno::INVAL, Errno::PROTONOSUPPORT];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::probe;

    #[test]
    fn a_dump_is_whole_after_any_number_of_probes() {
        if !fastlane_testing::namespace::private("probes") {
            return;
        }
        let mut dumper = Dumper::new().unwrap();
        // The acknowledgements of so many do not fit into the receive buffer.
        for number in 0..3000_u32 {
            let request = probe(1, std::net::Ipv4Addr::from_bits(number).into());
            let sent = rustix::net::send(&dumper.socket.file, &request, SendFlags::empty());
            assert_eq!(sent, Ok(request.len()));
        }
        let mut dump = dumper.start(Dump::Links).unwrap();
        let mut links = 0;
        while dumper.next(&mut dump, |_| links += 1).unwrap() == Dumped::More {}
        assert!(links > 0, "the loopback");
    }

    #[test]
    fn a_dump_that_was_given_up_is_not_in_the_way_of_the_next() {
        if !fastlane_testing::namespace::private("given-up") {
            return;
        }
        let mut dumper = Dumper::new().unwrap();
        for _ in 0..20 {
            dumper.start(Dump::Routes(libc::AF_INET6)).unwrap();
            let mut dump = dumper.start(Dump::Links).unwrap();
            let mut links = 0;
            while dumper.next(&mut dump, |_| links += 1).unwrap() == Dumped::More {}
            assert!(links > 0, "the loopback");
        }
    }
}
