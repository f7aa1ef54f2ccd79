//! Numbers in a file of either byte order.

/// Where a frame is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) length: usize,
}

/// What is wrong with a file, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) what: String,
}

impl Fault {
    pub(super) fn new(offset: usize, what: impl Into<String>) -> Self {
        Self { offset, what: what.into() }
    }
}

/// The byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// A part of a file, read from the front; every read is inside or a [`Fault`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// Of the first of `bytes` in the file.
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

    /// The next `count` bytes as a part of their own.
    pub(super) fn part(&mut self, count: usize, what: &str) -> Result<Self, Fault> {
        let Some((bytes, rest)) = self.bytes.split_at_checked(count) else {
            let left = self.bytes.len();
            let what = format!(
                "the file ends inside {what}: {count} bytes wanted, {left} left; \
                 it was cut off, copy it again"
            );
            return Err(Fault::new(self.offset, what));
        };
        let part = Self { bytes, ..*self };
        self.bytes = rest;
        self.offset += count;
        Ok(part)
    }

    /// The next `count` bytes as a frame.
    pub(super) fn frame(&mut self, count: usize) -> Result<Place, Fault> {
        let start = self.offset;
        self.part(count, "a frame").map(|_| Place { start, length: count })
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fault> {
        let part = self.part(N, what)?;
        // The part has N bytes.
        Ok(part.bytes.first_chunk().copied().unwrap_or([0; N]))
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16, Fault> {
        let bytes = self.array(what)?;
        Ok(match self.order {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, Fault> {
        let bytes = self.array(what)?;
        Ok(match self.order {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        })
    }
}

/// `LINKTYPE_ETHERNET`.
pub(super) const ETHERNET: u32 = 1;

/// Only Ethernet frames can be packets.
pub(super) fn check_link_type(link_type: u32, offset: usize) -> Result<(), Fault> {
    if link_type == ETHERNET {
        return Ok(());
    }
    let what = format!(
        "link type {link_type}, expected 1 (Ethernet); capture on an interface of \
                        that type"
    );
    Err(Fault::new(offset, what))
}
