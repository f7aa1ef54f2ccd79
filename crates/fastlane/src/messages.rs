//! The rings between the lanes and the slow path: made here, given to the lanes and to one client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fastlane_core::{LaneConfig, Messages};
use fastlane_table::messages::{Channel, Doorbells, size};
use fastlane_table::{Doorbell, SharedMemory};

use crate::Error;

/// The rings of an application before this one: their descriptors, as [`Rings::parts`] gives them.
#[derive(Debug)]
pub(crate) struct KeptRings(pub(crate) Vec<OwnedFd>);

/// What the slow path needs of the messages.
#[derive(Debug)]
pub(crate) struct Rings {
    lanes: usize,
    /// The rings, the slow path's bell, then each lane's.
    descriptors: Vec<Arc<OwnedFd>>,
    /// Whether they are those of the application before.
    pub(crate) is_kept: bool,
}

impl Rings {
    /// The messages of all lanes, with so many KiB in each direction: what was `kept`, so that
    /// those under way arrive, else new ones. Each lane gets its side.
    pub(crate) fn open(
        lanes: &mut [LaneConfig],
        kib: usize,
        kept: Option<KeptRings>,
    ) -> Result<Self, Error> {
        if let Some(KeptRings(descriptors)) = kept {
            match Self::adopt(lanes, kib, descriptors) {
                Ok(rings) => {
                    tracing::info!("messages: the rings are kept from the application before");
                    return Ok(rings);
                }
                Err(reason) => tracing::warn!("messages: the rings are new ones: {reason}"),
            }
        }
        Self::create(lanes, kib)
    }

    /// Goes on with the rings of an application that has ended.
    fn adopt(
        lanes: &mut [LaneConfig],
        kib: usize,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("those that were kept cannot be used ({error})");
        let share = |of: &OwnedFd| of.try_clone().map_err(failed);
        let [rings, slow, bells @ ..] = &descriptors[..] else {
            return Err("none were kept".to_owned());
        };
        let memory = SharedMemory::attach_writable(share(rings)?).map_err(failed)?;
        if bells.len() != lanes.len() || memory.len() != size(lanes.len(), kib << 10) {
            return Err("those that were kept have another size".to_owned());
        }
        let memory = Arc::new(memory);
        let bell = |of: &OwnedFd| Doorbell::attach(share(of)?).map_err(failed);
        let channels = bells.iter().enumerate().map(|(number, lane)| {
            let bells = Doorbells { lane: bell(lane)?, slow: bell(slow)? };
            let channel = Channel::attach_lane(&memory, number, bells);
            channel.map_err(|error| {
                format!("those of lane {number} that were kept are damaged: {error}")
            })
        });
        let channels: Vec<Channel> = channels.collect::<Result<_, _>>()?;
        for (number, (parts, channel)) in lanes.iter_mut().zip(channels).enumerate() {
            parts.messages = Some(Messages::new(channel, number as u16));
        }
        let descriptors = descriptors.into_iter().map(Arc::new).collect();
        Ok(Self { lanes: lanes.len(), descriptors, is_kept: true })
    }

    fn create(lanes: &mut [LaneConfig], kib: usize) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            let reason = format!("messages: no memory ({error}); make `messages.ring-kib` smaller");
            Error::Service { what: "messages", reason }
        };
        let unfit = |error| failed(io::Error::other(error));
        let bytes = size(lanes.len(), kib << 10);
        let memory = Arc::new(SharedMemory::create("fastlane-messages", bytes).map_err(failed)?);
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
        Ok(Self { lanes: lanes.len(), descriptors, is_kept: false })
    }

    /// How many lanes there are, and the descriptors.
    pub(crate) fn parts(&self) -> (usize, Vec<Arc<OwnedFd>>) {
        (self.lanes, self.descriptors.clone())
    }
}
