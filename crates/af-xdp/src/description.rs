//! Descriptions of open queues and devices for a successor, as plain numbers that the holder of
//! their descriptors stores.

use crate::BoundMode;

/// Description of an open queue. Its socket is passed separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDescription {
    /// Index of the interface.
    pub interface: u32,
    /// Queue number on the interface.
    pub queue: u32,
    /// Frame size of the pool in bytes.
    pub frame_size: u32,
    /// Number of frames in the pool.
    pub frames: u32,
    /// Slots in the fill and in the receive ring.
    pub receive_ring: u32,
    /// Slots in the transmit and in the completion ring.
    pub transmit_ring: u32,
    /// Mode in which the queue is bound.
    pub mode: BoundMode,
    /// True if the rings have wake-up flags.
    pub need_wakeup: bool,
    /// Index of its UMEM in the lane, from 0 on.
    pub umem: u32,
    /// True if its socket registered that UMEM. The others hold the UMEM too: it outlives this
    /// socket, and each socket has rings of its own.
    pub is_first: bool,
}

impl QueueDescription {
    /// Number of words of the encoding.
    pub const WORDS: usize = 10;

    /// Encodes the description, in the order of the fields.
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

    /// Decodes a description; returns `None` if a word is invalid.
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
            mode: BoundMode::from_number(mode)?,
            need_wakeup: flag(need_wakeup)?,
            umem,
            is_first: flag(is_first)?,
        })
    }
}

/// Description of an open device. The descriptors of its steering program are passed separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Index of the interface.
    pub interface: u32,
    /// True if the driver runs the steering program, false if the network stack does.
    pub is_native: bool,
    /// True if zero-copy was refused on a queue.
    pub copies: bool,
    /// Maximum length of a claimed frame, in bytes from the Ethernet header on.
    pub max_length: u32,
}

impl DeviceDescription {
    /// Number of words of the encoding.
    pub const WORDS: usize = 4;

    /// Encodes the description, in the order of the fields.
    #[must_use]
    pub fn to_words(&self) -> [u32; Self::WORDS] {
        [self.interface, self.is_native.into(), self.copies.into(), self.max_length]
    }

    /// Decodes a description; returns `None` if a word is invalid.
    #[must_use]
    pub fn from_words(&[interface, native, copies, max_length]: &[u32; 4]) -> Option<Self> {
        let (is_native, copies) = (flag(native)?, flag(copies)?);
        Some(Self { interface, is_native, copies, max_length })
    }
}

fn flag(word: u32) -> Option<bool> {
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
            mode: BoundMode::GenericCopy,
            need_wakeup: true,
            umem: 1,
            is_first: false,
        };
        let mut words = queue.to_words();
        assert_eq!(words, [7, 3, 2048, 4096, 1024, 512, 2, 1, 1, 0]);
        assert_eq!(QueueDescription::from_words(&words), Some(queue));
        for (index, nonsense) in [(6, 3), (7, 2), (9, 2)] {
            let before = std::mem::replace(&mut words[index], nonsense);
            assert_eq!(QueueDescription::from_words(&words), None);
            words[index] = before;
        }
        let device =
            DeviceDescription { interface: 7, is_native: true, copies: false, max_length: 1792 };
        assert_eq!(DeviceDescription::from_words(&device.to_words()), Some(device));
        assert_eq!(DeviceDescription::from_words(&[7, 2, 0, 0]), None);
    }
}
