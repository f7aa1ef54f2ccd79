//! Message rings between the lanes and the slow path: created here, given to the lanes and to one
//! client of the session.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fastlane_core::{LaneConfig, Messages};
use fastlane_table::messages::{Channel, Doorbells, size};
use fastlane_table::{Doorbell, SharedMemory};

use crate::Error;

/// Rings inherited from the previous process: descriptors in the order of [`MessageRings::parts`].
#[derive(Debug)]
pub(crate) struct InheritedRings(pub(crate) Vec<OwnedFd>);

/// Descriptors of the message rings of all lanes.
#[derive(Debug)]
pub(crate) struct MessageRings {
    lanes: usize,
    /// The rings, the slow path's doorbell, then the doorbell of each lane.
    descriptors: Vec<Arc<OwnedFd>>,
    /// True if they were inherited.
    pub(crate) is_inherited: bool,
}

impl MessageRings {
    /// Opens the rings of all lanes, with `kib` KiB in each direction, and gives each lane its
    /// side. Inherited rings are used if they fit, so that messages in them still arrive.
    pub(crate) fn open(
        lanes: &mut [LaneConfig],
        kib: usize,
        inherited: Option<InheritedRings>,
    ) -> Result<Self, Error> {
        if let Some(InheritedRings(descriptors)) = inherited {
            match Self::adopt(lanes, kib, descriptors) {
                Ok(rings) => {
                    tracing::info!("messages: the rings are inherited from the previous process");
                    return Ok(rings);
                }
                Err(reason) => tracing::warn!("messages: the rings are new: {reason}"),
            }
        }
        Self::create(lanes, kib)
    }

    /// Adopts inherited rings.
    ///
    /// # Errors
    /// The reason that they cannot be used.
    fn adopt(
        lanes: &mut [LaneConfig],
        kib: usize,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("the inherited ones cannot be mapped ({error})");
        let share = |of: &OwnedFd| of.try_clone().map_err(failed);
        let [rings, slow, bells @ ..] = &descriptors[..] else {
            return Err("none were inherited".to_owned());
        };
        let memory = SharedMemory::attach_writable(share(rings)?).map_err(failed)?;
        if bells.len() != lanes.len() || memory.len() != size(lanes.len(), kib << 10) {
            return Err("the inherited ones have another size".to_owned());
        }
        memory.populate().map_err(failed)?;
        let memory = Arc::new(memory);
        let bell = |of: &OwnedFd| Doorbell::attach(share(of)?).map_err(failed);
        let channels = bells.iter().enumerate().map(|(number, lane)| {
            let bells = Doorbells { lane: bell(lane)?, slow: bell(slow)? };
            let channel = Channel::attach_lane(&memory, number, bells);
            channel.map_err(|error| format!("the inherited ones of lane {number}: {error}"))
        });
        let channels: Vec<Channel> = channels.collect::<Result<_, _>>()?;
        for (number, (parts, channel)) in lanes.iter_mut().zip(channels).enumerate() {
            parts.messages = Some(Messages::new(channel, number as u16));
        }
        let descriptors = descriptors.into_iter().map(Arc::new).collect();
        Ok(Self { lanes: lanes.len(), descriptors, is_inherited: true })
    }

    fn create(lanes: &mut [LaneConfig], kib: usize) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            let reason =
                format!("messages: no memory for the rings ({error}); reduce `messages.ring-kib`");
            Error::Service { what: "messages", reason }
        };
        let unfit = |error| failed(io::Error::other(error));
        let bytes = size(lanes.len(), kib << 10);
        let memory = Arc::new(SharedMemory::create("fastlane-messages", bytes).map_err(failed)?);
        memory.populate().map_err(failed)?;
        let slow = Doorbell::create().map_err(failed)?;
        let share =
            |bell: &Doorbell| bell.as_fd().try_clone_to_owned().map(Arc::new).map_err(failed);
        let rings = memory.as_fd().try_clone_to_owned().map_err(failed)?;
        let mut descriptors = vec![Arc::new(rings), share(&slow)?];
        for (number, parts) in lanes.iter_mut().enumerate() {
            let lane = Doorbell::create().map_err(failed)?;
            descriptors.push(share(&lane)?);
            let bells = Doorbells { lane, slow: slow.try_clone().map_err(failed)? };
            let channel = Channel::create(&memory, number, kib << 10, bells).map_err(unfit)?;
            parts.messages = Some(Messages::new(channel, number as u16));
        }
        Ok(Self { lanes: lanes.len(), descriptors, is_inherited: false })
    }

    /// Returns the number of lanes and the descriptors.
    pub(crate) fn parts(&self) -> (usize, Vec<Arc<OwnedFd>>) {
        (self.lanes, self.descriptors.clone())
    }
}
