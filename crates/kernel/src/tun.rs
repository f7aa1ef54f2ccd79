//! TUN devices: Linux interfaces whose other end is a file of IP packets. For tunnel endpoints in
//! programs; ports are [TAP devices](crate::tap).

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::link;
use crate::tap::{create, device, refused};

/// A TUN device, which exists until it is dropped. Its file is non-blocking: each read returns a
/// packet that Linux sends, each write is a packet that Linux receives.
#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
    name: String,
    index: u32,
}

impl Tun {
    /// Creates the interface `name`, at most 15 bytes, in the network namespace of the calling
    /// thread with this MTU, and brings it up.
    ///
    /// # Errors
    /// As [`tap::open`](crate::tap::open).
    pub fn open(name: &str, mtu: u32) -> Result<Self, Error> {
        let file = device()?;
        let name = create(&file, Some(name), libc::IFF_TUN | libc::IFF_NO_PI)?;
        let failed = |what: &str| {
            let what = format!("{what} of the TUN device {name}");
            move |error: io::Error| refused(what, error)
        };
        let index = link::index(&name).map_err(failed("finding the index"))?;
        link::set_mtu(index, mtu).map_err(failed("setting the MTU"))?;
        link::set_flags(index, libc::IFF_UP, 0).map_err(failed("setting the state"))?;
        Ok(Self { file, name, index })
    }

    /// Adds an address to the interface; an existing one is not an error.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn add_address(&self, address: IpAddr, length: u8) -> Result<(), Error> {
        match link::add_address(self.index, address, length) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            other => other.map_err(|error| {
                refused(
                    format!("setting the address {address} of the TUN device {}", self.name),
                    error,
                )
            }),
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
