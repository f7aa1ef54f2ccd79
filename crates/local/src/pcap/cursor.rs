//! Cursor: reads numbers and frames from a file of either byte order.

/// Position of a frame in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameSpan {
    pub(super) start: usize,
    pub(super) length: usize,
}

/// Defect of a file, with its offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormatError {
    pub(super) offset: usize,
    pub(super) reason: String,
}

impl FormatError {
    pub(super) fn new(offset: usize, reason: impl Into<String>) -> Self {
        Self { offset, reason: reason.into() }
    }
}

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// Part of a file, read from the front. A read beyond its end is a [`FormatError`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// Offset of `bytes` in the file.
    pub(super) offset: usize,
    pub(super) order: Order,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a [u8], order: Order) -> Self {
        Self { bytes: file, offset: 0, order }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Reads the next `count` bytes as a part of their own.
    pub(super) fn part(&mut self, count: usize, what: &str) -> Result<Self, FormatError> {
        let Some((bytes, rest)) = self.bytes.split_at_checked(count) else {
            let left = self.bytes.len();
            let what = format!(
                "the file ends inside {what}: {count} bytes wanted, {left} left; \
                 it was cut off, copy it again"
            );
            return Err(FormatError::new(self.offset, what));
        };
        let part = Self { bytes, ..*self };
        self.bytes = rest;
        self.offset += count;
        Ok(part)
    }

    /// Reads the next `count` bytes as a frame.
    pub(super) fn frame(&mut self, count: usize) -> Result<FrameSpan, FormatError> {
        let start = self.offset;
        self.part(count, "a frame").map(|_| FrameSpan { start, length: count })
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], FormatError> {
        let part = self.part(N, what)?;
        // The part has N bytes.
        Ok(part.bytes.first_chunk().copied().unwrap_or([0; N]))
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16, FormatError> {
        let bytes = self.array(what)?;
        Ok(match self.order {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, FormatError> {
        let bytes = self.array(what)?;
        Ok(match self.order {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        })
    }
}

/// Link type of Ethernet (`LINKTYPE_ETHERNET`).
pub(super) const ETHERNET: u32 = 1;

/// Checks the link type: only Ethernet frames can be packets.
pub(super) fn check_link_type(link_type: u32, offset: usize) -> Result<(), FormatError> {
    if link_type == ETHERNET {
        return Ok(());
    }
    let what = format!(
        "link type {link_type}, expected 1 (Ethernet); capture on an interface of \
                        that type"
    );
    Err(FormatError::new(offset, what))
}
