//! Frames to an application that reflects, one at a time.

use std::time::{Duration, Instant};

use fastlane_testing::namespace::Wire;
use fastlane_testing::{Addresses, Peer, Tag};

use crate::{Host, LEFT_MAC, PATIENCE, RIGHT_MAC};

/// A raw socket that sends frames and waits for each to return with swapped MAC addresses.
#[derive(Debug)]
pub struct Echo {
    wire: Wire,
    addresses: Addresses,
    next: Tag,
}

impl Echo {
    /// Opens an interface of `host` towards the left `wire0`.
    ///
    /// # Panics
    /// When there is no such interface.
    #[track_caller]
    #[must_use]
    pub fn new(host: &Host, interface: &str) -> Self {
        Self::towards(host, interface, LEFT_MAC)
    }

    /// Opens an interface of `host` towards the MAC address `device`.
    ///
    /// # Panics
    /// When there is no such interface.
    #[track_caller]
    #[must_use]
    pub fn towards(host: &Host, interface: &str, device: &str) -> Self {
        let wire = host.enter(|| Wire::open(interface)).expect("a raw socket");
        let addresses = Addresses { device: mac(device), peer: mac(RIGHT_MAC) };
        Self { wire, addresses, next: Tag { test: std::process::id(), sequence: 0 } }
    }

    /// Sends a frame. Returns true if it has returned within `limit`.
    ///
    /// # Panics
    /// When more than its MAC addresses has changed.
    #[track_caller]
    pub fn try_once(&mut self, limit: Duration) -> bool {
        let tag = self.next;
        self.next.sequence += 1;
        let frame = tag.frame(self.addresses, 100);
        let end = Instant::now() + limit;
        if !self.wire.send(&frame) {
            return false;
        }
        let swapped = [&frame[6..12], &frame[..6], &frame[12..]].concat();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(back) = self.wire.receive(left) else { return false };
            if Tag::find(&back).is_some_and(|(found, _)| found == tag) {
                assert_eq!(back, swapped, "the returned frame has changed");
                return true;
            }
        }
    }

    /// Sends a frame and waits until it returns.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn once(&mut self) {
        assert!(self.try_once(PATIENCE), "frame {} has not returned", self.next.sequence - 1);
    }
}

/// Parses a MAC address.
///
/// # Panics
/// When `text` is none.
#[must_use]
pub fn mac(text: &str) -> [u8; 6] {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().expect("hexadecimal numbers");
    bytes.try_into().expect("six bytes")
}
