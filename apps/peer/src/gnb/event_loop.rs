//! Event loop of a base station: UDP socket, TUN device and lines of the control plane.

use std::io::{self, Read};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use fastlane_kernel::tun::Tun;
use fastlane_wire::GtpU;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::{Counts, DownlinkAction, Tunnels};
use crate::tunnel::Line;

/// Maximum number of packets of one side that are handled before the other side's turn.
const BURST: usize = 64;
/// Receive buffer of the socket in octets.
const BUFFER: usize = 8 << 20;
/// Maximum length of a packet or message in octets.
const LONGEST: usize = 65535;
/// Maximum length of a line in octets. A longer one is discarded.
const LONGEST_LINE: usize = 4096;
/// Maximum wait before the loop checks if it must end.
const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Error of a base station.
#[derive(Debug, thiserror::Error)]
pub enum GnbError {
    /// The address cannot be bound.
    #[error("cannot listen at {address}, port 2152: {source}; add the address to an interface")]
    Listen {
        /// Local address.
        address: std::net::IpAddr,
        /// Error of the system call.
        source: io::Error,
    },
    /// The TUN device or an address on it cannot be created.
    #[error(transparent)]
    Tun(#[from] fastlane_kernel::Error),
    /// Waiting for packets failed.
    #[error("cannot wait: {0}")]
    Wait(io::Error),
}

/// Base station.
#[derive(Debug)]
pub struct Gnb {
    socket: UdpSocket,
    local: SocketAddr,
    tun: Tun,
    tunnels: Tunnels,
    line: Vec<u8>,
}

impl Gnb {
    /// Opens the GTP-U socket at `address` and creates the TUN interface `name` for users.
    ///
    /// # Errors
    /// Returns an error if the address cannot be bound or the interface cannot be created.
    pub fn open(address: std::net::IpAddr, name: &str, mtu: u32) -> Result<Self, GnbError> {
        let listen = |source| GnbError::Listen { address, source };
        let local = SocketAddr::new(address, GtpU::PORT);
        let socket = UdpSocket::bind(local).map_err(listen)?;
        socket.set_nonblocking(true).map_err(listen)?;
        // A burst must not be lost here. Only a privileged process may exceed the limit of the
        // host.
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
        }
        let (tunnels, line) = (Tunnels::default(), Vec::new());
        Ok(Self { socket, local, tun: Tun::open(name, mtu)?, tunnels, line })
    }

    /// Passes packets until `stop` is set, and changes tunnels by the lines of `control`. Malformed
    /// lines are reported on standard error.
    ///
    /// # Errors
    /// Returns an error if waiting fails or a user's address is refused.
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
            let readable = waiting.get(2).is_some_and(|it| !it.revents().is_empty());
            if let Some(from) = control.as_mut().filter(|_| readable)
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
            // A packet that the socket refuses is lost, as on any link.
            let _ = to.map(|to| self.socket.send_to(message, to));
        }
    }

    fn give_downlink(&mut self, datagram: &mut [u8]) {
        for _ in 0..BURST {
            let Ok((length, from)) = self.socket.recv_from(datagram) else { return };
            match self.tunnels.downlink(&datagram[..length], self.local.ip()) {
                DownlinkAction::Packet(packet) => drop(rustix::io::write(&self.tun, packet)),
                DownlinkAction::Answer(answer) => drop(self.socket.send_to(&answer, from)),
                DownlinkAction::Nothing => {}
            }
        }
    }

    /// Reads and applies the available lines. Returns false at the end of the input.
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
