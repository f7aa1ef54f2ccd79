//! Raw sockets as peers of a device.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::system;
use crate::Peer;

/// A raw socket on an interface: the [`Peer`] of a device whose other end is an interface of Linux
/// (veth, TAP).
///
/// VLAN tags are restored into the frame. Frames that Linux itself sends to the device are not
/// received.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
    space: Vec<u8>,
}

impl Wire {
    /// Opens an interface of the thread's namespace, which must be up.
    ///
    /// # Errors
    /// The interface does not exist, or `CAP_NET_RAW` is missing.
    pub fn open(interface: &str) -> io::Result<Self> {
        Ok(Self { socket: system::packet_socket(interface)?, space: vec![0; 128 * 1024] })
    }
}

impl Peer for Wire {
    fn send(&mut self, frame: &[u8]) -> bool {
        system::send(&self.socket, frame)
    }

    fn receive(&mut self, within: Duration) -> Option<Vec<u8>> {
        let (length, tag) = system::receive_with_tag(&self.socket, &mut self.space, within)?;
        let mut frame = self.space[..length].to_vec();
        if let Some([protocol, control]) = tag.filter(|_| length >= 12) {
            let tag = [protocol.to_be_bytes(), control.to_be_bytes()].concat();
            frame.splice(12..12, tag);
        }
        Some(frame)
    }
}
