//! Handover of a lane with one device: what outlives a process, and its adoption.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fastlane_af_xdp::{
    AdoptRequest, Device, DeviceDescription, Error, OpenedQueue, QueueDescription, Settings,
    adopt_lane,
};
use fastlane_core::{Pool, PortId};
use fastlane_steer::ProgramHandover;
use fastlane_table::SharedMemory;

/// Descriptions and descriptors that must outlive a process: of the memory, the device, the queues.
pub struct Handover {
    pub device: DeviceDescription,
    pub queues: Vec<QueueDescription>,
    /// Descriptors of the memory, the BPF link, the program, the socket map and the counter map,
    /// then of the queues' sockets.
    pub descriptors: Vec<OwnedFd>,
}

/// Division of the memory into frames.
pub struct FrameLayout {
    pub size: usize,
    pub headroom: usize,
}

fn own(descriptor: BorrowedFd<'_>) -> OwnedFd {
    descriptor.try_clone_to_owned().expect("a descriptor")
}

impl Handover {
    pub fn of(pool: &Pool, device: &Device, opened: &[OpenedQueue]) -> Self {
        let (description, kept) = device.handover().expect("it is attached");
        let ProgramHandover { link, steering, sockets, counts } = kept;
        let of_device = [pool.memory().as_fd(), link, steering, sockets, counts];
        let mut descriptors: Vec<OwnedFd> = of_device.into_iter().map(own).collect();
        let mut queues = Vec::new();
        for one in opened {
            let (description, socket) = one.handle.handover().expect("it is open");
            queues.push(description);
            descriptors.push(own(socket));
        }
        Self { device: description, queues, descriptors }
    }

    /// Encodes the descriptions as octets.
    pub fn octets(&self) -> Vec<u8> {
        let queues = self.queues.iter().flat_map(QueueDescription::to_words);
        let words = self.device.to_words().into_iter().chain(queues);
        words.flat_map(u32::to_ne_bytes).collect()
    }

    pub fn from_parts(octets: &[u8], descriptors: Vec<OwnedFd>) -> Self {
        let words: Vec<u32> =
            octets.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        let (device, queues) = words.split_first_chunk().expect("a device");
        let device = DeviceDescription::from_words(device).expect("a device");
        let queues = queues.as_chunks().0.iter();
        let queues = queues.map(|words| QueueDescription::from_words(words).expect("a queue"));
        Self { device, queues: queues.collect(), descriptors }
    }

    pub fn borrowed(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptors.iter().map(OwnedFd::as_fd).collect()
    }

    /// Takes the handover and drops the lane without closing its queues, as a killed process does.
    pub fn after(pool: Pool, device: Device, opened: Vec<OpenedQueue>) -> Self {
        Self::of(&pool, &device, &opened)
    }

    /// Adopts the lane with duplicates of the descriptors.
    pub fn adopt(&self, settings: Settings) -> Result<(Device, Pool, Vec<OpenedQueue>), Error> {
        self.adopt_with(settings, self.memory(), 2048)
    }

    pub fn adopt_with(
        &self,
        settings: Settings,
        memory: SharedMemory,
        frame_size: usize,
    ) -> Result<(Device, Pool, Vec<OpenedQueue>), Error> {
        let mut device = self.device(settings)?;
        let (pool, opened) = self.lane(
            &mut device,
            PortId(0),
            memory,
            FrameLayout { size: frame_size, headroom: 192 },
        )?;
        Ok((device, pool, opened))
    }

    pub fn memory(&self) -> SharedMemory {
        // SAFETY: the pool of the predecessor was dropped, or belongs to another process.
        unsafe { SharedMemory::attach_abandoned(own(self.descriptors[0].as_fd())) }.expect("memory")
    }

    pub fn device(&self, settings: Settings) -> Result<Device, Error> {
        let [link, steering, sockets, counts] =
            std::array::from_fn(|place| own(self.descriptors[1 + place].as_fd()));
        Device::adopt(settings, &self.device, ProgramHandover { link, steering, sockets, counts })
    }

    pub fn lane(
        &self,
        device: &mut Device,
        port: PortId,
        memory: SharedMemory,
        layout: FrameLayout,
    ) -> Result<(Pool, Vec<OpenedQueue>), Error> {
        let sockets = self.descriptors[5..].iter().map(|descriptor| own(descriptor.as_fd()));
        let queues = self.queues.iter().copied().zip(sockets).collect();
        let lane = vec![AdoptRequest { device, port, queues }];
        adopt_lane(memory, layout.size, layout.headroom, lane)
    }
}
