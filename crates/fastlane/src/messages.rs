//! The rings between the lanes and the slow path: made here, given to the lanes and to one client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fastlane_core::{LaneParts, Messages};
use fastlane_table::messages::{Bells, Channel, size};
use fastlane_table::{Bell, SharedMemory};

use crate::Error;

/// What the slow path needs of the messages.
#[derive(Debug)]
pub(crate) struct Rings {
    lanes: usize,
    /// The rings, the slow path's bell, then each lane's.
    descriptors: Vec<Arc<OwnedFd>>,
}

impl Rings {
    /// Makes the messages of all lanes, with so many KiB in each direction, and gives each lane its
    /// side.
    pub(crate) fn create(lanes: &mut [LaneParts], kib: usize) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            let reason = format!("messages: no memory ({error}); make `messages.ring-kib` smaller");
            Error::Service { what: "messages", reason }
        };
        let unfit = || failed(io::ErrorKind::InvalidInput.into());
        let bytes = size(lanes.len(), kib << 10);
        let memory = Arc::new(SharedMemory::create("fastlane-messages", bytes).map_err(failed)?);
        let slow = Bell::create().map_err(failed)?;
        let share = |bell: &Bell| bell.as_fd().try_clone_to_owned().map(Arc::new).map_err(failed);
        let rings = memory.as_fd().try_clone_to_owned().map_err(failed)?;
        let mut descriptors = vec![Arc::new(rings), share(&slow)?];
        for (number, parts) in lanes.iter_mut().enumerate() {
            let lane = Bell::create().map_err(failed)?;
            descriptors.push(share(&lane)?);
            let bells = Bells { lane, slow: slow.try_clone().map_err(failed)? };
            let channel = Channel::create(&memory, number, kib << 10, bells).ok_or_else(unfit)?;
            parts.messages = Some(Messages::new(channel, number as u16));
        }
        Ok(Self { lanes: lanes.len(), descriptors })
    }

    /// How many lanes there are, and the descriptors.
    pub(crate) fn parts(&self) -> (usize, Vec<Arc<OwnedFd>>) {
        (self.lanes, self.descriptors.clone())
    }
}
