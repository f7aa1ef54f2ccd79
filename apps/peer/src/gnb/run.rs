//! The loop of a base station: a socket, a TUN device, lines of the control plane.

use std::io::{self, Read};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use fastlane_kernel::tun::Tun;
use fastlane_wire::GtpU;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::{Counts, Taken, Tunnels};
use crate::tunnel::Line;

/// Packets of one side that are dealt with before the other side's turn.
const BURST: usize = 64;
/// Octets that the kernel keeps for the socket.
const BUFFER: usize = 8 << 20;
/// The longest packet, and message.
const LONGEST: usize = 65535;
/// The longest line; what is longer is no line of ours.
const LONGEST_LINE: usize = 4096;
/// How long is slept at most: then it is looked whether to end.
const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Why there is no base station.
#[derive(Debug, thiserror::Error)]
pub enum GnbError {
    /// The address cannot be had.
    #[error("cannot listen at {address}, port 2152: {source}; add the address to an interface")]
    Listen {
        /// Which.
        address: std::net::IpAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no TUN device, or no address on it.
    #[error(transparent)]
    Tun(#[from] fastlane_kernel::Error),
    /// It cannot be waited.
    #[error("cannot wait: {0}")]
    Wait(io::Error),
}

/// A base station.
#[derive(Debug)]
pub struct Gnb {
    socket: UdpSocket,
    local: SocketAddr,
    tun: Tun,
    tunnels: Tunnels,
    line: Vec<u8>,
}

impl Gnb {
    /// With its GTP-U at `address` and its users on a new interface `name`.
    ///
    /// # Errors
    /// When the address or the interface cannot be had.
    pub fn open(address: std::net::IpAddr, name: &str, mtu: u32) -> Result<Self, GnbError> {
        let listen = |source| GnbError::Listen { address, source };
        let local = SocketAddr::new(address, GtpU::PORT);
        let socket = UdpSocket::bind(local).map_err(listen)?;
        socket.set_nonblocking(true).map_err(listen)?;
        // A burst must not be lost here. Beyond the limit of this host only who may set limits.
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
        }
        let (tunnels, line) = (Tunnels::default(), Vec::new());
        Ok(Self { socket, local, tun: Tun::open(name, mtu)?, tunnels, line })
    }

    /// Moves packets until `stop` is set, and changes tunnels as the lines of `control` say. Lines
    /// that say nothing are reported to standard error.
    ///
    /// # Errors
    /// When it cannot be waited, or a user's address is refused.
    pub fn run(
        &mut self,
        control: impl Read + AsFd,
        stop: &AtomicBool,
    ) -> Result<Counts, GnbError> {
        let mut control = Some(control);
        let (mut packet, mut message) = (vec![0; LONGEST], Vec::new());
        while !stop.load(Ordering::Relaxed) {
            let mut waiting = vec![
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(&self.tun, PollFlags::IN),
            ];
            waiting.extend(control.as_ref().map(|it| PollFd::new(it, PollFlags::IN)));
            match poll(&mut waiting, Some(&STEP)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(GnbError::Wait(error.into())),
            }
            let said = waiting.get(2).is_some_and(|it| !it.revents().is_empty());
            if let Some(from) = control.as_mut().filter(|_| said)
                && !self.listen(from, &mut packet)?
            {
                control = None;
            }
            self.take_uplink(&mut packet, &mut message);
            self.give_downlink(&mut packet);
        }
        Ok(self.tunnels.counts)
    }

    fn take_uplink(&mut self, packet: &mut [u8], message: &mut Vec<u8>) {
        for _ in 0..BURST {
            let Ok(length) = rustix::io::read(&self.tun, &mut *packet) else { return };
            let to = self.tunnels.uplink(&packet[..length], message);
            // What the socket does not take is lost, as on any wire.
            let _ = to.map(|to| self.socket.send_to(message, to));
        }
    }

    fn give_downlink(&mut self, datagram: &mut [u8]) {
        for _ in 0..BURST {
            let Ok((length, from)) = self.socket.recv_from(datagram) else { return };
            match self.tunnels.downlink(&datagram[..length], self.local.ip()) {
                Taken::Packet(packet) => drop(rustix::io::write(&self.tun, packet)),
                Taken::Answer(answer) => drop(self.socket.send_to(&answer, from)),
                Taken::Nothing => {}
            }
        }
    }

    /// Reads what there is of lines. Whether there may be more.
    fn listen(&mut self, control: &mut impl Read, buffer: &mut [u8]) -> Result<bool, GnbError> {
        let length = match control.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(length) => length,
            Err(error) => return Ok(error.kind() == io::ErrorKind::Interrupted),
        };
        for octet in &buffer[..length] {
            if *octet != b'\n' {
                self.line.push(*octet);
                if self.line.len() > LONGEST_LINE {
                    self.line.clear();
                }
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).into_owned();
            self.line.clear();
            match line.parse() {
                Ok(line) => self.change(line)?,
                Err(error) if !line.trim().is_empty() => eprintln!("gnb: {error}"),
                Err(_) => {}
            }
        }
        Ok(true)
    }

    fn change(&mut self, line: Line) -> Result<(), GnbError> {
        if let Line::Tunnel(tunnel) = line {
            let length = if tunnel.user.is_ipv4() { 32 } else { 128 };
            self.tun.add_address(tunnel.user, length)?;
        }
        self.tunnels.change(line);
        Ok(())
    }
}
