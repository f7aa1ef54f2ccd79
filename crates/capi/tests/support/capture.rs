//! Capture files.

use std::path::Path;

/// Writes a pcap file of Ethernet frames (draft-ietf-opsawg-pcap, section 4).
pub(crate) fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (second, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        [second as u32, 0, length, length].iter().for_each(|it| file.extend(it.to_le_bytes()));
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}

/// Reads the frames of the enhanced packet blocks of a pcapng file (draft-ietf-opsawg-pcapng).
pub(crate) fn read_capture(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let (mut frames, mut at) = (Vec::new(), 0);
    while at < file.len() {
        if word(at) == 6 {
            frames.push(file[at + 28..at + 28 + word(at + 20)].to_vec());
        }
        at += word(at + 4);
    }
    frames
}
