//! The programs of the tier, and their links to interfaces.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fastlane_steer::{ProgramError, XdpMode, link, link_ingress, link_xdp};

use crate::tier_port::{InterfaceKind, TierHook, TierPort};

/// The programs of the tier.
#[derive(Debug)]
pub(crate) struct TierPrograms {
    pub(crate) xdp: OwnedFd,
    pub(crate) ingress: OwnedFd,
}

/// Link of a program to an interface.
#[derive(Debug)]
pub(crate) struct TierLink {
    pub(crate) descriptor: OwnedFd,
    pub(crate) is_ingress: bool,
}

impl TierLink {
    /// Takes the program off the interface, also if other processes have descriptors of the link.
    pub(crate) fn detach(self) -> io::Result<()> {
        link::detach(self.descriptor.as_fd())
    }
}

impl TierPrograms {
    /// Attaches the program that fits an interface.
    ///
    /// # Errors
    /// Returns an error if another XDP program is attached, or the interface cannot have one.
    pub(crate) fn attach(&self, port: &TierPort) -> Result<TierLink, ProgramError> {
        if port.is_at_ingress() {
            let descriptor = link_ingress(self.ingress.as_fd(), &port.interface)?;
            return Ok(TierLink { descriptor, is_ingress: true });
        }
        let xdp = |mode| {
            let descriptor = link_xdp(self.xdp.as_fd(), &port.interface, mode)?;
            Ok(TierLink { descriptor, is_ingress: false })
        };
        match (port.hook, port.kind) {
            (Some(TierHook::Xdp(XdpMode::Native)), InterfaceKind::Aggregate) => {
                Err(ProgramError::NoNativeXdp {
                    interface: port.interface.clone(),
                    source: io::Error::other("the members of a bond or team run it"),
                })
            }
            (Some(TierHook::Xdp(mode)), _) => xdp(mode),
            (_, InterfaceKind::Aggregate | InterfaceKind::WithoutXdp) => xdp(XdpMode::Generic),
            (_, InterfaceKind::Device | InterfaceKind::Pair) => match xdp(XdpMode::Native) {
                Err(ProgramError::NoNativeXdp { .. }) => xdp(XdpMode::Generic),
                other => other,
            },
        }
    }

    /// Exchanges the program of a link for one of these, of its kind.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    pub(crate) fn renew(&self, descriptor: OwnedFd) -> io::Result<TierLink> {
        let is_ingress = link::is_ingress(descriptor.as_fd())?;
        link::renew(descriptor.as_fd(), self.of(is_ingress))?;
        Ok(TierLink { descriptor, is_ingress })
    }

    fn of(&self, is_ingress: bool) -> BorrowedFd<'_> {
        if is_ingress { self.ingress.as_fd() } else { self.xdp.as_fd() }
    }
}
