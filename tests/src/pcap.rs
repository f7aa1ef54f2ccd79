//! Capture files, encoded without the code under test.

/// Returns a capture file (pcap-savefile(5)) of these frames.
#[must_use]
pub fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let header = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    for (number, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        let words = [1_700_000_000, number as u32, length, length];
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(frame);
    }
    bytes
}
