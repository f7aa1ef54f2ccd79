//! Reading of capture files.

/// Returns the frames of a capture file (pcap-savefile(5), microseconds, little-endian). The file
/// may still grow: a frame that is not whole at its end is left out.
///
/// # Panics
/// When `capture` has another format.
#[must_use]
pub fn frames_of(capture: &[u8]) -> Vec<Vec<u8>> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four octets"));
    assert_eq!(word(&capture[..4]), 0xa1b2_c3d4, "the magic number of a capture file");
    let mut rest = &capture[24..];
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let Some((frame, behind)) = behind.split_at_checked(word(&header[8..12]) as usize) else {
            break;
        };
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}
