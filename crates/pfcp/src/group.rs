//! Finds elements by their type.

use core::marker::PhantomData;

use crate::{Cause, Fault, Ie, IeType, Ies};

/// The content of a message or of a grouped element.
///
/// Elements that nobody asks for, unknown ones and those of enterprises are skipped (clause
/// 7.6.9). Of an element that may be there once the first counts (clause 7.6.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    body: &'a [u8],
}

impl<'a> Group<'a> {
    /// The group of the elements that lie one after the other in `body`.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { body }
    }

    /// The elements as they lie there.
    #[must_use]
    pub const fn ies(&self) -> Ies<'a> {
        Ies::new(self.body)
    }

    /// The value of the first element of that type before any that is cut short.
    #[must_use]
    pub fn raw(&self, ie_type: IeType) -> Option<&'a [u8]> {
        self.values(ie_type).next()
    }

    /// Whether there is an element of that type.
    #[must_use]
    pub fn has(&self, ie_type: IeType) -> bool {
        self.raw(ie_type).is_some()
    }

    /// The first element of a type, if there is one.
    ///
    /// # Errors
    ///
    /// It is too short (cause 68) or means nothing (69), or an element before it is cut short.
    pub fn find<T: Ie<'a>>(&self) -> Result<Option<T>, Fault> {
        self.all().next().transpose()
    }

    /// The first element of a type, which must be there.
    ///
    /// # Errors
    ///
    /// As of [`Group::find`], and cause 66 if it is not there.
    pub fn need<T: Ie<'a>>(&self) -> Result<T, Fault> {
        self.find()?.ok_or(Fault::of(Cause::MANDATORY_IE_MISSING, T::TYPE))
    }

    /// All elements of a type. After an element that is cut short nothing comes.
    #[must_use]
    pub const fn all<T: Ie<'a>>(&self) -> All<'a, T> {
        All { ies: self.ies(), of: PhantomData }
    }

    /// The first grouped element of that type.
    #[must_use]
    pub fn group(&self, ie_type: IeType) -> Option<Self> {
        self.groups(ie_type).next()
    }

    /// All grouped elements of that type, up to an element that is cut short.
    #[must_use]
    pub const fn groups(&self, ie_type: IeType) -> Groups<'a> {
        Groups { ies: self.ies(), ie_type }
    }

    fn values(&self, ie_type: IeType) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.groups(ie_type).map(|group| group.body)
    }
}

/// Iterates over the elements of a type; see [`Group::all`].
#[derive(Clone, Debug)]
pub struct All<'a, T> {
    ies: Ies<'a>,
    of: PhantomData<T>,
}

impl<'a, T: Ie<'a>> Iterator for All<'a, T> {
    type Item = Result<T, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let ie = match self.ies.next()? {
                Ok(ie) => ie,
                Err(truncated) => return Some(Err(truncated.into())),
            };
            if ie.ie_type == T::TYPE {
                return Some(T::decode(ie.value).map_err(|cause| Fault::of(cause, T::TYPE)));
            }
        }
    }
}

/// Iterates over the grouped elements of a type; see [`Group::groups`].
#[derive(Clone, Debug)]
pub struct Groups<'a> {
    ies: Ies<'a>,
    ie_type: IeType,
}

impl<'a> Iterator for Groups<'a> {
    type Item = Group<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let ie_type = self.ie_type;
        let found = self.ies.find_map(|ie| match ie {
            Ok(ie) if ie.ie_type == ie_type => Some(Some(Group::new(ie.value))),
            Ok(_) => None,
            Err(_) => Some(None),
        });
        found.flatten()
    }
}
