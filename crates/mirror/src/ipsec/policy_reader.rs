//! Reader of the policies of a network namespace: dumps them, and again after each event.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::{IpsecPolicies, IpsecPolicy};
use crate::socket::{Received, Socket};

/// Multicast groups `XFRMNLGRP_EXPIRE` and `XFRMNLGRP_POLICY`.
const GROUPS: [u32; 2] = [2, 4];
/// Types `XFRM_MSG_NEWPOLICY` and `XFRM_MSG_GETPOLICY` of messages.
const POLICY: u16 = 0x13;
const GET_POLICY: u16 = 0x15;
/// `sizeof(struct xfrm_userpolicy_id)`.
const ID: usize = 64;
/// Maximum number of attempts of a dump that is interrupted by changes.
const ATTEMPTS: usize = 4;

/// Reader of the policies, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct PolicyReader {
    /// Sockets; `None` if the kernel has no IPsec.
    sockets: Option<Sockets>,
    policies: IpsecPolicies,
    /// True if the policies may have changed since the last dump.
    is_stale: bool,
}

#[derive(Debug)]
struct Sockets {
    events: Socket,
    requests: Socket,
    sequence: u32,
}

impl PolicyReader {
    /// Subscribes to changes and reads the policies.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket or the dump, for example without
    /// CAP_NET_ADMIN.
    pub fn open() -> io::Result<Self> {
        let sockets = match Socket::of_ipsec_events(&GROUPS) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT) => None,
            events => Some(Sockets {
                events: events?,
                requests: Socket::of_ipsec_requests()?,
                sequence: 0,
            }),
        };
        let mut reader = Self { sockets, policies: IpsecPolicies::default(), is_stale: true };
        reader.follow()?;
        Ok(reader)
    }

    /// Returns the policies as they were last read.
    #[must_use]
    pub fn policies(&self) -> &IpsecPolicies {
        &self.policies
    }

    /// Returns the event socket, which is readable when policies may have changed, unless the
    /// kernel has no IPsec.
    #[must_use]
    pub fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().map(|sockets| sockets.events.as_fd())
    }

    /// Reads the policies again if Linux has reported a change. Does not wait for one. Returns true
    /// if they have changed.
    ///
    /// # Errors
    /// Returns an error if a socket fails, or the kernel refuses the dump.
    pub fn follow(&mut self) -> io::Result<bool> {
        let Some(sockets) = &mut self.sockets else { return Ok(false) };
        while !matches!(sockets.events.receive()?, Received::Nothing) {
            self.is_stale = true;
        }
        if !self.is_stale {
            return Ok(false);
        }
        for _ in 0..ATTEMPTS {
            let mut policies = Vec::new();
            if sockets.dump(&mut policies)? {
                let policies = IpsecPolicies::new(policies);
                self.is_stale = false;
                return Ok(std::mem::replace(&mut self.policies, policies) != self.policies);
            }
        }
        Ok(false) // the next call tries again
    }
}

impl Sockets {
    /// Dumps the policies. Returns false if changes interrupted it.
    fn dump(&mut self, policies: &mut Vec<IpsecPolicy>) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let request = fastlane_netlink::Request::new(GET_POLICY, libc::NLM_F_DUMP, &[0; ID]);
        self.requests.dump(request, self.sequence, |header, body| {
            if header.kind() == POLICY {
                policies.extend(IpsecPolicy::read(body)?);
            }
            Ok(())
        })
    }
}
