//! Whose memory a frame is.

use std::sync::atomic::{AtomicU16, Ordering};

/// The memory that a frame is a piece of: a lane's [`Pool`](crate::Pool), or memory that a driver
/// keeps itself and that a pool has [admitted](crate::Pool::admit). No two in a process are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Home(u16);

/// Numbers the homes of the process.
static NEXT: AtomicU16 = AtomicU16::new(0);

impl Home {
    /// The bits of a token that name a frame of its home: 48, so that an address is a name.
    pub const NAME: u64 = (1 << Self::SHIFT) - 1;
    const SHIFT: u32 = 48;
    /// The home of [`NO_FRAME`](crate::packet::NO_FRAME).
    const NOBODY: u16 = u16::MAX;

    /// One that nobody has had: a number is never given twice, or a frame could go back to memory
    /// that it is not from. `None` once all are given.
    pub(crate) fn next() -> Option<Self> {
        let next = |number: u16| number.checked_add(1);
        NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(Self)
    }

    /// The home of the frame with this token.
    #[inline]
    pub(crate) fn of(token: u64) -> Self {
        Self((token >> Self::SHIFT) as u16)
    }

    /// For drivers that write packets themselves: the token of the frame `name`, of which the lower
    /// 48 bits count.
    #[inline]
    #[must_use]
    pub fn token(self, name: u64) -> u64 {
        debug_assert!(self.0 != Self::NOBODY && name & !Self::NAME == 0);
        u64::from(self.0) << Self::SHIFT | name & Self::NAME
    }
}

/// What a lane holds of frames of another home.
#[derive(Debug)]
pub(crate) struct Guests {
    home: Home,
    /// Released, to be fetched by their driver.
    returned: Vec<u64>,
    most: usize,
    /// Frames that are packets of the lane, or released and not fetched.
    out: usize,
}

impl Guests {
    pub(crate) fn new(home: Home, most: usize) -> Self {
        Self { home, returned: Vec::with_capacity(most), most, out: 0 }
    }

    #[inline]
    pub(crate) fn home(&self) -> Home {
        self.home
    }

    #[inline]
    pub(crate) fn arrived(&mut self, count: usize) {
        self.out += count;
    }

    #[inline]
    pub(crate) fn left(&mut self, count: usize) {
        self.out = self.out.saturating_sub(count);
    }

    pub(crate) fn out(&self) -> usize {
        self.out
    }

    #[inline]
    pub(crate) fn fetch(&mut self, names: &mut Vec<u64>) {
        if self.returned.is_empty() {
            return;
        }
        let count = self.returned.len().min(names.capacity() - names.len());
        names.extend(self.returned.drain(self.returned.len() - count..));
        self.left(count);
    }

    /// One that would make the list grow is lost, and shows as missing: the driver has let in more
    /// than it said.
    #[inline]
    pub(crate) fn give(&mut self, name: u64) {
        if self.returned.len() < self.most {
            self.returned.push(name);
        }
    }
}
