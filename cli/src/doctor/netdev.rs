//! XDP features of an interface, queried through the generic netlink family `netdev`
//! (kernel: Documentation/netlink/specs/netdev.yaml, Linux 6.3 and later).

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// Longest wait for a response of the kernel.
const PATIENCE: Duration = Duration::from_secs(2);
/// Size of the receive buffer, larger than any expected response.
const LONGEST: usize = 16 << 10;

// <linux/netlink.h>, <linux/genetlink.h>
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const CONTROL_FAMILY: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
/// Length of `struct nlmsghdr` and `struct genlmsghdr` in bytes.
const HEADERS: usize = 16 + 4;

// <linux/netdev.h>
const DEVICE_GET: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;

/// `NETDEV_XDP_ACT_BASIC`: the driver runs XDP programs natively.
const BASIC: u64 = 1;
/// `NETDEV_XDP_ACT_REDIRECT`: programs may redirect, which AF_XDP needs.
const REDIRECT: u64 = 2;
/// `NETDEV_XDP_ACT_XSK_ZEROCOPY`: the driver supports zero-copy AF_XDP.
const ZERO_COPY: u64 = 8;

/// Features reported by a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features(u64);

impl Features {
    /// Returns true if native XDP can redirect frames to an AF_XDP socket.
    pub(super) fn native(self) -> bool {
        self.0 & (BASIC | REDIRECT) == BASIC | REDIRECT
    }

    /// Returns true if it can do so without a copy.
    pub(super) fn zero_copy(self) -> bool {
        self.native() && self.0 & ZERO_COPY != 0
    }
}

/// Socket of the family, in the network namespace of the thread that opened it.
pub(super) struct Netdev {
    socket: OwnedFd,
    family: u16,
}

impl Netdev {
    /// Opens the socket. Returns `None` if the kernel does not have the family.
    pub(super) fn open() -> io::Result<Option<Self>> {
        let flags = SocketFlags::CLOEXEC;
        let protocol = Some(netlink::GENERIC);
        let kind = SocketType::RAW;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        let mut netdev = Self { socket, family: CONTROL_FAMILY };
        let answer = netdev.ask(CONTROL_GET_FAMILY, CONTROL_FAMILY_NAME, b"netdev\0");
        let answer = match answer {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let family = attribute(&answer, CONTROL_FAMILY_ID).and_then(|value| value.try_into().ok());
        netdev.family = u16::from_ne_bytes(family.ok_or(ErrorKind::InvalidData)?);
        Ok(Some(netdev))
    }

    /// Returns the features of the interface with this index.
    pub(super) fn features(&self, index: u32) -> io::Result<Features> {
        let answer = self.ask(DEVICE_GET, DEVICE_INDEX, &index.to_ne_bytes())?;
        let features = attribute(&answer, DEVICE_XDP_FEATURES);
        let features = features.and_then(|value| value.try_into().ok());
        Ok(Features(u64::from_ne_bytes(features.ok_or(ErrorKind::InvalidData)?)))
    }

    /// Sends a request with one attribute. Returns the attributes of the response.
    fn ask(&self, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
        let kernel = SocketAddrNetlink::new(0, 0);
        let request = request(self.family, command, kind, value);
        rustix::net::sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
        let mut answer = vec![0; LONGEST];
        loop {
            let received = rustix::net::recvfrom(&self.socket, &mut answer[..], RecvFlags::TRUNC);
            let (_, length, sender) = received?;
            // Other processes can send to this socket too.
            let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
            if sender.is_some_and(|sender| sender.pid() == 0) {
                answer.truncate(length);
                return read(&answer, self.family).map(<[u8]>::to_vec);
            }
        }
    }
}

fn request(family: u16, command: u8, kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADERS];
    bytes[4..6].copy_from_slice(&family.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    bytes[16] = command;
    bytes[17] = 1; // version of the family
    bytes.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// Returns the attributes of a response of `family`, or the error that it carries.
fn read(answer: &[u8], family: u16) -> io::Result<&[u8]> {
    let invalid = || io::Error::from(ErrorKind::InvalidData);
    let (header, _) = answer.split_first_chunk::<HEADERS>().ok_or_else(invalid)?;
    let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    if kind == ERROR {
        let error = i32::from_ne_bytes([header[16], header[17], header[18], header[19]]);
        return Err(io::Error::from_raw_os_error(error.checked_neg().ok_or_else(invalid)?));
    }
    if kind != family {
        return Err(invalid());
    }
    answer.get(HEADERS..length).ok_or_else(invalid)
}

/// Returns the value of the first attribute of this kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some((header, _)) = attributes.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..length)?;
        // The two upper bits are flags: nested, network byte order.
        if u16::from_ne_bytes([header[2], header[3]]) & 0x3fff == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_can_be_read() {
        let message = request(23, DEVICE_GET, DEVICE_INDEX, &7_u32.to_ne_bytes());
        let attributes = read(&message, 23).unwrap();
        assert_eq!(attribute(attributes, DEVICE_INDEX), Some(&7_u32.to_ne_bytes()[..]));
        assert_eq!(attribute(attributes, DEVICE_XDP_FEATURES), None);
        assert!(read(&message, 24).is_err(), "another family");
    }

    #[test]
    fn errors_are_the_kernels() {
        let mut message = request(ERROR, 0, 0, &[]);
        message[16..20].copy_from_slice(&(-19_i32).to_ne_bytes());
        assert_eq!(read(&message, 23).unwrap_err().raw_os_error(), Some(19));
        message[16..20].copy_from_slice(&i32::MIN.to_ne_bytes());
        assert_eq!(read(&message, 23).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn broken_answers_are_refused() {
        let message = request(23, 1, DEVICE_XDP_FEATURES, &[1; 8]);
        for length in 0..message.len() {
            assert!(read(&message[..length], 23).is_err(), "{length} bytes");
        }
        // Every value of every byte, complete and truncated, must neither panic nor loop.
        let whole = read(&message, 23).unwrap();
        for length in 0..=whole.len() {
            for at in 0..length {
                for value in 0..=u8::MAX {
                    let mut broken = whole[..length].to_vec();
                    broken[at] = value;
                    let _ = attribute(&broken, 9);
                }
            }
        }
    }

    #[test]
    fn features_are_bits() {
        let read = |bits| (Features(bits).native(), Features(bits).zero_copy());
        assert_eq!(read(0), (false, false));
        assert_eq!(read(BASIC), (false, false), "not without redirect");
        assert_eq!(read(BASIC | REDIRECT), (true, false));
        assert_eq!(read(BASIC | REDIRECT | ZERO_COPY | 64), (true, true));
    }

    #[test]
    fn the_kernel_answers() {
        let Some(netdev) = Netdev::open().unwrap() else {
            return fastlane_testing::skip("the_kernel_answers", "this kernel has no `netdev`");
        };
        // The loopback is interface 1 of every network namespace and has no native XDP.
        let features = netdev.features(1).unwrap();
        assert!(!features.zero_copy());
        let error = netdev.features(i32::MAX as u32).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(19), "no such device: {error}");
    }
}
