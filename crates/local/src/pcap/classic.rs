//! The classic format (draft-ietf-opsawg-pcap).

use super::cursor::{Cursor, FormatError, FrameSpan, Order, check_link_type};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Length of the longest record that tcpdump accepts, in bytes.
const LONGEST_RECORD: u32 = 262_144;

/// Returns the positions of the frames. Timestamps are ignored.
pub(super) fn parse(file: &[u8]) -> Result<Vec<FrameSpan>, FormatError> {
    let magic = file.first_chunk().copied().map(u32::from_le_bytes);
    let order = match magic {
        Some(MICROSECONDS | NANOSECONDS) => Order::Little,
        Some(magic) if [MICROSECONDS, NANOSECONDS].contains(&magic.swap_bytes()) => Order::Big,
        _ => return Err(FormatError::new(0, "neither pcap nor pcapng; the file is no capture")),
    };
    let mut file = Cursor::new(file, order);
    let mut header = file.part(24, "the file header")?;
    header.u32("the magic number")?;
    let (major, minor) = (header.u16("the version")?, header.u16("the version")?);
    if (major, minor) != (2, 4) {
        let what = format!("version {major}.{minor}, expected 2.4; convert the file with editcap");
        return Err(FormatError::new(4, what));
    }
    header.part(12, "the file header")?;
    let link_type = header.u32("the link type")?;
    if link_type >> 16 != 0 {
        let what = "frames with their check sequence; convert the file without it";
        return Err(FormatError::new(20, what));
    }
    check_link_type(link_type, 20)?;
    let mut frames = Vec::new();
    while !file.is_empty() {
        let at = file.offset;
        let mut header = file.part(16, "a record header")?;
        header.part(8, "a time")?;
        let length = header.u32("a length")?;
        if length > LONGEST_RECORD {
            let what = format!("a record of {length} bytes, more than 262144; the file is damaged");
            return Err(FormatError::new(at + 8, what));
        }
        let frame = file.frame(length as usize)?;
        if frame.length > 0 {
            frames.push(frame);
        }
    }
    Ok(frames)
}
