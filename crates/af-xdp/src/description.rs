//! What a successor must know of open queues: plain numbers, to be written down by whoever keeps
//! their descriptors.

use crate::Obtained;

/// An open queue, besides its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDescription {
    /// The index of its interface.
    pub interface: u32,
    /// Its number on the interface.
    pub queue: u32,
    /// Bytes in a frame of the pool.
    pub frame_size: u32,
    /// Frames in the pool.
    pub frames: u32,
    /// Places in its fill and in its receive ring.
    pub receive_ring: u32,
    /// Places in its transmit and in its completion ring.
    pub transmit_ring: u32,
    /// How frames come from the driver.
    pub mode: Obtained,
    /// Whether the rings say when the kernel must be woken.
    pub need_wakeup: bool,
    /// Which of the lane's UMEMs it uses, from 0 on.
    pub umem: u32,
    /// Whether its socket has registered that UMEM. The others hold the UMEM too: it outlives this
    /// socket, and each socket has rings of its own.
    pub is_first: bool,
}

impl QueueDescription {
    /// How many numbers describe it.
    pub const WORDS: usize = 10;

    /// As numbers, in the order of the fields.
    #[must_use]
    pub fn to_words(&self) -> [u32; Self::WORDS] {
        [
            self.interface,
            self.queue,
            self.frame_size,
            self.frames,
            self.receive_ring,
            self.transmit_ring,
            self.mode.number(),
            self.need_wakeup.into(),
            self.umem,
            self.is_first.into(),
        ]
    }

    /// From such numbers; `None` when they describe nothing.
    #[must_use]
    pub fn from_words(words: &[u32; Self::WORDS]) -> Option<Self> {
        let &[interface, queue, frame_size, frames, receive_ring, transmit_ring, ..] = words;
        let &[.., mode, need_wakeup, umem, is_first] = words;
        Some(Self {
            interface,
            queue,
            frame_size,
            frames,
            receive_ring,
            transmit_ring,
            mode: Obtained::from_number(mode)?,
            need_wakeup: truth(need_wakeup)?,
            umem,
            is_first: truth(is_first)?,
        })
    }
}

/// An open device, besides its steering program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// The index of the interface.
    pub interface: u32,
    /// Whether the driver runs the steering program, not the network stack.
    pub is_native: bool,
    /// Whether zero-copy was refused on a queue.
    pub copies: bool,
    /// The longest frame that is claimed, in bytes from the Ethernet header on.
    pub max_length: u32,
}

impl DeviceDescription {
    /// How many numbers describe it.
    pub const WORDS: usize = 4;

    /// As numbers, in the order of the fields.
    #[must_use]
    pub fn to_words(&self) -> [u32; Self::WORDS] {
        [self.interface, self.is_native.into(), self.copies.into(), self.max_length]
    }

    /// From such numbers; `None` when they describe nothing.
    #[must_use]
    pub fn from_words(&[interface, native, copies, max_length]: &[u32; 4]) -> Option<Self> {
        let (is_native, copies) = (truth(native)?, truth(copies)?);
        Some(Self { interface, is_native, copies, max_length })
    }
}

fn truth(word: u32) -> Option<bool> {
    match word {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_survive_as_numbers() {
        let queue = QueueDescription {
            interface: 7,
            queue: 3,
            frame_size: 2048,
            frames: 4096,
            receive_ring: 1024,
            transmit_ring: 512,
            mode: Obtained::GenericCopy,
            need_wakeup: true,
            umem: 1,
            is_first: false,
        };
        let mut words = queue.to_words();
        assert_eq!(words, [7, 3, 2048, 4096, 1024, 512, 2, 1, 1, 0]);
        assert_eq!(QueueDescription::from_words(&words), Some(queue));
        for (place, nonsense) in [(6, 3), (7, 2), (9, 2)] {
            let before = std::mem::replace(&mut words[place], nonsense);
            assert_eq!(QueueDescription::from_words(&words), None);
            words[place] = before;
        }
        let device =
            DeviceDescription { interface: 7, is_native: true, copies: false, max_length: 1792 };
        assert_eq!(DeviceDescription::from_words(&device.to_words()), Some(device));
        assert_eq!(DeviceDescription::from_words(&[7, 2, 0, 0]), None);
    }
}
