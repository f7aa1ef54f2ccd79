//! Finds elements by type.

use core::marker::PhantomData;

use crate::{Cause, Fault, Ie, IeType, Ies};

/// Content of a message or of a grouped element.
///
/// Elements that nobody asks for, unknown and enterprise-specific ones are skipped (clause 7.6.9).
/// Of an element that may occur once, the first one counts (clause 7.6.10).
///
/// # Examples
/// ```
/// use fastlane_pfcp::ie::{FarId, PdrId, Precedence};
/// use fastlane_pfcp::{Group, IeType, Writer};
///
/// let mut body = Vec::new();
/// Writer::new(&mut body).group(IeType::CREATE_PDR, |w| {
///     w.put(&PdrId(1));
///     w.put(&Precedence(100));
/// });
///
/// let pdr = Group::new(&body).group(IeType::CREATE_PDR).expect("a Create PDR");
/// assert_eq!(pdr.need::<PdrId>(), Ok(PdrId(1)));
/// assert_eq!(pdr.find::<FarId>(), Ok(None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    body: &'a [u8],
}

impl<'a> Group<'a> {
    /// Creates a group from consecutive elements in `body`.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { body }
    }

    /// Returns the elements in their order.
    #[must_use]
    pub const fn ies(&self) -> Ies<'a> {
        Ies::new(self.body)
    }

    /// Returns the value of the first element of a type, unless an element before it is cut short.
    #[must_use]
    pub fn raw(&self, ie_type: IeType) -> Option<&'a [u8]> {
        self.values(ie_type).next()
    }

    /// Returns true if there is an element of the type.
    #[must_use]
    pub fn has(&self, ie_type: IeType) -> bool {
        self.raw(ie_type).is_some()
    }

    /// Returns the first element of a type, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns a fault if it is too short (cause 68) or invalid (69), or an element before it is
    /// cut short.
    pub fn find<T: Ie<'a>>(&self) -> Result<Option<T>, Fault> {
        self.all().next().transpose()
    }

    /// Returns the first element of a type, which must exist.
    ///
    /// # Errors
    ///
    /// Returns the faults of [`Group::find`], and cause 66 if there is none.
    pub fn need<T: Ie<'a>>(&self) -> Result<T, Fault> {
        self.find()?.ok_or(Fault::of(Cause::MANDATORY_IE_MISSING, T::TYPE))
    }

    /// Returns all elements of a type, up to an element that is cut short.
    #[must_use]
    pub const fn all<T: Ie<'a>>(&self) -> TypedIes<'a, T> {
        TypedIes { ies: self.ies(), of: PhantomData }
    }

    /// Returns the first grouped element of a type.
    #[must_use]
    pub fn group(&self, ie_type: IeType) -> Option<Self> {
        self.groups(ie_type).next()
    }

    /// Returns all grouped elements of a type, up to an element that is cut short.
    #[must_use]
    pub const fn groups(&self, ie_type: IeType) -> Groups<'a> {
        Groups { ies: self.ies(), ie_type }
    }

    fn values(&self, ie_type: IeType) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.groups(ie_type).map(|group| group.body)
    }
}

/// Iterator over the elements of a type; see [`Group::all`].
#[derive(Clone, Debug)]
pub struct TypedIes<'a, T> {
    ies: Ies<'a>,
    of: PhantomData<T>,
}

impl<'a, T: Ie<'a>> Iterator for TypedIes<'a, T> {
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

/// Iterator over the grouped elements of a type; see [`Group::groups`].
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
