//! Encoding of plain values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::bit_stream::{BitReader, BitWriter};

/// Maximum number of elements of a list. This program writes no longer ones.
const MOST: u64 = 1 << 14;
/// Maximum number of bytes of a text. No session is longer.
const TEXT: u64 = 1 << 17;

/// Value that can be encoded into a session record and decoded from any bytes.
pub(super) trait Stored: Sized {
    fn put(&self, to: &mut BitWriter);
    fn get(from: &mut BitReader<'_>) -> Option<Self>;
}

/// Implements `Stored` for structs, field by field.
macro_rules! stored {
    ($($type:ty { $($field:ident),* $(,)? })*) => { $(
        impl Stored for $type {
            fn put(&self, to: &mut BitWriter) {
                $(self.$field.put(to);)*
            }

            fn get(from: &mut BitReader<'_>) -> Option<Self> {
                Some(Self { $($field: Stored::get(from)?),* })
            }
        }
    )* };
}
pub(super) use stored;

/// Implements `Stored` for integers in variable length.
macro_rules! numbers {
    ($($type:ty),*) => { $(
        impl Stored for $type {
            fn put(&self, to: &mut BitWriter) {
                to.number(u64::from(*self));
            }

            fn get(from: &mut BitReader<'_>) -> Option<Self> {
                <$type>::try_from(from.number()?).ok()
            }
        }
    )* };
}

numbers!(u8, u16, u32, u64);

impl Stored for bool {
    fn put(&self, to: &mut BitWriter) {
        to.put(u64::from(*self), 1);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(from.get(1)? == 1)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn put(&self, to: &mut BitWriter) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(if bool::get(from)? { Some(T::get(from)?) } else { None })
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn put(&self, to: &mut BitWriter) {
        (!self.is_empty()).put(to);
        if !self.is_empty() {
            to.number(self.len() as u64);
            self.iter().for_each(|item| item.put(to));
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        let mut items = Self::new();
        if bool::get(from)? {
            let count = from.number().filter(|count| *count <= MOST)?;
            // Corrupt input must not cause a large allocation.
            items.reserve_exact(count.min(8) as usize);
            for _ in 0..count {
                items.push(T::get(from)?);
            }
        }
        Some(items)
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn put(&self, to: &mut BitWriter) {
        self.0.put(to);
        self.1.put(to);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some((A::get(from)?, B::get(from)?))
    }
}

impl Stored for [u64; 4] {
    fn put(&self, to: &mut BitWriter) {
        self.iter().for_each(|word| to.number(*word));
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some([from.number()?, from.number()?, from.number()?, from.number()?])
    }
}

/// Digits take 4 bits, all other characters 8.
impl Stored for String {
    fn put(&self, to: &mut BitWriter) {
        let digits = self.bytes().all(|byte| byte.is_ascii_digit());
        digits.put(to);
        to.number(self.len() as u64);
        for byte in self.bytes() {
            if digits { to.put(u64::from(byte - b'0'), 4) } else { to.put(u64::from(byte), 8) }
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        let digits = bool::get(from)?;
        let count = from.number().filter(|count| *count <= TEXT)?;
        let mut bytes = Vec::new();
        for _ in 0..count {
            bytes.push(match digits {
                true => b'0' + from.get(4).filter(|digit| *digit < 10)? as u8,
                false => from.get(8)? as u8,
            });
        }
        Self::from_utf8(bytes).ok()
    }
}

impl Stored for Ipv4Addr {
    fn put(&self, to: &mut BitWriter) {
        to.put(u64::from(self.to_bits()), 32);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(Self::from_bits(from.get(32)? as u32))
    }
}

impl Stored for Ipv6Addr {
    fn put(&self, to: &mut BitWriter) {
        to.put((self.to_bits() >> 64) as u64, 64);
        to.number(self.to_bits() as u64);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(Self::from_bits(u128::from(from.get(64)?) << 64 | u128::from(from.number()?)))
    }
}

impl Stored for IpAddr {
    fn put(&self, to: &mut BitWriter) {
        self.is_ipv6().put(to);
        match self {
            Self::V4(address) => address.put(to),
            Self::V6(address) => address.put(to),
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(if bool::get(from)? {
            Ipv6Addr::get(from)?.into()
        } else {
            Ipv4Addr::get(from)?.into()
        })
    }
}

impl Stored for SocketAddr {
    fn put(&self, to: &mut BitWriter) {
        self.ip().put(to);
        self.port().put(to);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(Self::new(IpAddr::get(from)?, u16::get(from)?))
    }
}
