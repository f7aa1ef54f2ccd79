//! The sockets of netlink(7).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::message::{Dump, Malformed, Message, Messages};

/// Large enough for any datagram (the kernel makes none above 32 KiB, but for one message that is
/// longer, of at most 64 KiB).
const BUFFER: usize = 65536;

/// Receive buffer of a dump, in octets: a few datagrams, for which the kernel waits.
const DUMP_BUFFER: usize = 1 << 20;

/// How often a dump is repeated when what it shows changed meanwhile.
const ATTEMPTS: u32 = 4;

/// `RTNLGRP_*`: the groups of what routes are made of.
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

/// The groups of the settings of forwarding.
pub(super) const NETCONF_GROUPS: [u32; 2] =
    [libc::RTNLGRP_IPV4_NETCONF, libc::RTNLGRP_IPV6_NETCONF];

/// A socket that belongs to a network namespace, for events or for one dump.
#[derive(Debug)]
pub(super) struct Socket {
    file: OwnedFd,
    buffer: Box<[u8]>,
}

/// What a datagram was.
#[derive(Debug)]
pub(super) enum Received<'a> {
    /// Messages of the kernel.
    Messages(Messages<'a>),
    /// There is none.
    Nothing,
    /// Events were lost: the receive buffer was full.
    Lost,
}

impl Socket {
    /// Follows events of groups (`RTNLGRP_*`, below 33) from now on; its receive buffer has so many
    /// octets, as far as the privilege of the process allows.
    pub(super) fn of_events(groups: &[u32], receive_buffer: usize) -> io::Result<Self> {
        let groups = groups.iter().fold(0, |groups, group| groups | 1 << (group - 1));
        let socket = Self::new(receive_buffer, SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket.file, &SocketAddrNetlink::new(0, groups))?;
        Ok(socket)
    }

    /// For requests whose answers nobody wants.
    pub(super) fn of_requests() -> io::Result<Self> {
        Self::new(DUMP_BUFFER, SocketFlags::NONBLOCK)
    }

    /// Sends a request. What was answered to those before is passed over.
    pub(super) fn ask(&mut self, request: &[u8]) {
        self.pass_over();
        // One that is not taken is made again when Linux next says that there is reason to.
        let _ = rustix::net::send(&self.file, request, SendFlags::empty());
    }

    /// Takes what is there out of the receive buffer: the kernel acknowledges requests for which
    /// nobody waits, and a dump that was given up would keep the next one from beginning.
    fn pass_over(&mut self) {
        loop {
            match rustix::net::recv(&self.file, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(_) => return, // there is no more
            }
        }
    }

    fn new(receive_buffer: usize, flags: SocketFlags) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC | flags);
        // Protocol 0 is NETLINK_ROUTE.
        let file = rustix::net::socket_with(family, SocketType::RAW, flags, None)?;
        let half = receive_buffer / 2; // the kernel doubles it (socket(7))
        if sockopt::set_socket_recv_buffer_size_force(&file, half).is_err() {
            sockopt::set_socket_recv_buffer_size(&file, half)?;
        }
        Ok(Self { file, buffer: vec![0; BUFFER].into_boxed_slice() })
    }

    /// The next datagram. What is not the kernel's is passed over.
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

/// How a dump goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dumped {
    /// There is more to come.
    More,
    /// That was all.
    Whole,
    /// That was all, but what it shows changed meanwhile, as often as it was tried: it may lack
    /// something.
    Interrupted,
}

/// A dump that is under way.
#[derive(Debug)]
pub(super) struct Running {
    what: Dump,
    sequence: u32,
    whole: bool,
    attempts: u32,
    /// What the kernel said that could not be read.
    malformed: Option<Malformed>,
}

/// Makes dumps in the network namespace of the thread that made it, whoever calls later.
#[derive(Debug)]
pub(super) struct Dumper {
    socket: Socket,
    sequence: u32,
}

impl Dumper {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { socket: Socket::new(DUMP_BUFFER, SocketFlags::empty())?, sequence: 0 })
    }

    /// Makes one dump, and shows `take` the messages of each datagram until it says false. Messages
    /// come again when the dump is repeated because something changed meanwhile. Whether that was
    /// all: false when something changed as often as it was tried.
    ///
    /// # Errors
    /// The kernel's answer, or that it could not be read.
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

    /// Begins a dump. What is left of another one is passed over.
    ///
    /// # Errors
    /// When the kernel does not take the request.
    fn start(&mut self, what: Dump) -> io::Result<Running> {
        self.socket.pass_over();
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let sequence = self.sequence;
        rustix::net::send(&self.socket, &what.request(sequence), SendFlags::empty())?;
        Ok(Running { what, sequence, whole: true, attempts: 1, malformed: None })
    }

    /// Shows `take` the next messages of a dump. Messages come again when the dump is repeated
    /// because something changed meanwhile.
    ///
    /// # Errors
    /// The kernel's answer, or that it could not be read.
    fn next(&mut self, running: &mut Running, mut take: impl FnMut(Message)) -> io::Result<Dumped> {
        let Received::Messages(messages) = self.socket.receive()? else {
            return Err(Errno::NOBUFS.into());
        };
        let mut end = None;
        for message in messages {
            match message {
                // What answers something else: a dump that was given up.
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

/// What a kernel answers that does not have what was asked for.
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
        // What the kernel answers to so many would not fit into the receive buffer.
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
