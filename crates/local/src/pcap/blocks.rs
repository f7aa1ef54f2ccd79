//! Reader of the pcapng format (draft-ietf-opsawg-pcapng).

use super::cursor::{Cursor, FormatError, FrameSpan, Order, check_link_type};

/// Block type of a section header: a palindrome, the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub(super) const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

/// Returns true if a file begins as pcapng.
pub(super) fn is_section_header(file: &[u8]) -> bool {
    file.starts_with(&SECTION_HEADER.to_le_bytes())
}

/// State of a section.
#[derive(Default)]
struct Section {
    interfaces: u32,
    /// Snap length of the first interface, which holds for simple packets; 0 for none.
    snap_length: u32,
}

/// Returns the positions of the frames. Timestamps and interfaces are ignored; unknown blocks are
/// skipped, as the format requires.
pub(super) fn parse(file: &[u8]) -> Result<Vec<FrameSpan>, FormatError> {
    let mut file = Cursor::new(file, Order::Little);
    let (mut frames, mut section) = (Vec::new(), Section::default());
    while !file.is_empty() {
        let at = file.offset;
        let mut ahead = file;
        let kind = ahead.u32("a block type")?;
        if kind == SECTION_HEADER {
            ahead.part(4, "a section header")?;
            file.order = byte_order(ahead)?;
        }
        let kind = file.u32("a block type")?;
        let body = body(&mut file, at)?;
        match kind {
            SECTION_HEADER => section = section_header(body)?,
            INTERFACE => interface(body, &mut section)?,
            ENHANCED_PACKET => frames.extend(enhanced_packet(body, &section)?),
            SIMPLE_PACKET => frames.extend(simple_packet(body, &section)?),
            OBSOLETE_PACKET => {
                let what = "an obsolete packet block; convert the file with `editcap -F pcapng`";
                return Err(FormatError::new(at, what));
            }
            _ => {}
        }
    }
    Ok(frames)
}

fn byte_order(mut ahead: Cursor<'_>) -> Result<Order, FormatError> {
    let at = ahead.offset;
    ahead.order = Order::Little;
    match ahead.u32("a byte order")? {
        BYTE_ORDER => Ok(Order::Little),
        other if other.swap_bytes() == BYTE_ORDER => Ok(Order::Big),
        other => {
            let what = format!("{other:#010x} is no byte order; the file is damaged");
            Err(FormatError::new(at, what))
        }
    }
}

/// Reads the body of the block that begins at `at`, between its two equal lengths.
fn body<'a>(file: &mut Cursor<'a>, at: usize) -> Result<Cursor<'a>, FormatError> {
    let length = file.u32("a block length")?;
    if length < 12 || length % 4 != 0 {
        let what = format!(
            "a block of {length} bytes, expected a multiple of 4 from 12 on; the \
                            file is damaged"
        );
        return Err(FormatError::new(at + 4, what));
    }
    let body = file.part(length as usize - 12, "a block")?;
    let end = file.offset;
    let again = file.u32("a block's second length")?;
    if again != length {
        let what =
            format!("a block of {length} bytes says {again} at its end; the file is damaged");
        return Err(FormatError::new(end, what));
    }
    Ok(body)
}

fn section_header(mut body: Cursor<'_>) -> Result<Section, FormatError> {
    body.part(4, "a section header")?;
    let at = body.offset;
    let (major, minor) = (body.u16("a version")?, body.u16("a version")?);
    body.part(8, "a section length")?;
    if major != 1 {
        let what = format!("version {major}.{minor} of pcapng, expected 1.x; convert with editcap");
        return Err(FormatError::new(at, what));
    }
    Ok(Section::default())
}

fn interface(mut body: Cursor<'_>, section: &mut Section) -> Result<(), FormatError> {
    let at = body.offset;
    check_link_type(u32::from(body.u16("a link type")?), at)?;
    body.part(2, "an interface")?;
    let snap_length = body.u32("a snap length")?;
    if section.interfaces == 0 {
        section.snap_length = snap_length;
    }
    section.interfaces += 1; // each takes 20 bytes of a file of at most 4 GiB
    Ok(())
}

fn enhanced_packet(
    mut body: Cursor<'_>,
    section: &Section,
) -> Result<Option<FrameSpan>, FormatError> {
    let at = body.offset;
    let interface = body.u32("an interface number")?;
    if interface >= section.interfaces {
        let count = section.interfaces;
        let what = format!(
            "a packet of interface {interface}, and there are {count} before it; \
                            the file is damaged"
        );
        return Err(FormatError::new(at, what));
    }
    body.part(8, "a time")?;
    let length = body.u32("a captured length")?;
    body.u32("an original length")?;
    frame(body, length)
}

fn simple_packet(
    mut body: Cursor<'_>,
    section: &Section,
) -> Result<Option<FrameSpan>, FormatError> {
    let at = body.offset;
    if section.interfaces == 0 {
        return Err(FormatError::new(at, "a packet before any interface; the file is damaged"));
    }
    let length = body.u32("an original length")?;
    let captured = if section.snap_length == 0 { length } else { length.min(section.snap_length) };
    frame(body, captured)
}

fn frame(mut body: Cursor<'_>, length: u32) -> Result<Option<FrameSpan>, FormatError> {
    if length as usize > body.left() {
        let left = body.left();
        let what = format!(
            "a packet of {length} bytes in a block that has {left} left; the file \
                            is damaged"
        );
        return Err(FormatError::new(body.offset, what));
    }
    body.frame(length as usize).map(|span| Some(span).filter(|span| span.length > 0))
}
