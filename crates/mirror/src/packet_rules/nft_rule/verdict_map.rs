//! Maps of verdicts (`vmap`), by the state of a connection or by others.

use std::collections::BTreeMap;

use fastlane_netlink::{attribute, attributes, text};

use super::jump::Jump;
use super::{ACCEPT, VALUE, VERDICT, be32, ne32};

/// Attributes of a list of elements (`NFTA_SET_ELEM_LIST_*`).
const TABLE: u16 = 1;
const SET: u16 = 2;
const ELEMENTS: u16 = 3;
/// Attributes of an element (`NFTA_SET_ELEM_*`).
const KEY: u16 = 1;
const DATA: u16 = 2;
const FLAGS: u16 = 3;
/// `NFT_SET_ELEM_CATCHALL`: the element is for keys that no other one has.
const CATCH_ALL: u32 = 2;
/// Attribute of a verdict, `NFTA_VERDICT_CODE`.
const CODE: u16 = 1;

/// Name of a set or map with that of its table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetName {
    /// Family of the table (`NFPROTO_*`).
    pub(crate) family: u8,
    /// Name of the table.
    pub(crate) table: String,
    /// Name of the set.
    pub(crate) set: String,
}

impl SetName {
    /// Reads the name from the attributes of a list of elements, and returns the list.
    pub(crate) fn of_elements(family: u8, message: &[u8]) -> Option<(Self, &[u8])> {
        let name = |kind| attribute(message, kind).map(text);
        let name = Self { family, table: name(TABLE)?, set: name(SET)? };
        Some((name, attribute(message, ELEMENTS)?))
    }
}

/// Verdicts of a map. Those by state hold if the state of a connection is looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VerdictMap {
    /// States of its elements, and those of elements that accept.
    known: u32,
    accepted: u32,
    /// True if the element for all other states accepts; `None` if there is none.
    accepts_others: Option<bool>,
    /// Chains to which it leads, each with the states of its elements.
    jumps: BTreeMap<Jump, u32>,
}

impl VerdictMap {
    /// Takes the elements of a list.
    pub(super) fn take(&mut self, list: &[u8]) {
        for (_, element) in attributes(list) {
            let verdict = attribute(element, DATA).and_then(|it| attribute(it, VERDICT));
            let accepts = verdict.and_then(|it| attribute(it, CODE)).and_then(be32) == Some(ACCEPT);
            let flags = attribute(element, FLAGS).and_then(be32).unwrap_or(0);
            let key = attribute(element, KEY).and_then(|it| attribute(it, VALUE)).and_then(ne32);
            if let Some(jump) = verdict.and_then(Jump::read) {
                *self.jumps.entry(jump).or_default() |= key.unwrap_or(u32::MAX);
            }
            if flags & CATCH_ALL != 0 {
                self.accepts_others = Some(accepts);
            } else if let Some(state) = key {
                self.known |= state;
                self.accepted |= if accepts { state } else { 0 };
            }
        }
    }

    /// Returns the chains to which it leads.
    pub(super) fn jumps(&self) -> impl Iterator<Item = &Jump> {
        self.jumps.keys()
    }

    /// Returns the chains to which it leads packets of connections with one of these states.
    pub(super) fn jumps_of(&self, states: u32) -> impl Iterator<Item = &Jump> {
        self.jumps.iter().filter(move |(_, of)| *of & states != 0).map(|(jump, _)| jump)
    }

    /// Returns the states for which it has a verdict.
    pub(super) fn states(&self) -> u32 {
        if self.accepts_others.is_some() { u32::MAX } else { self.known }
    }

    /// Returns the states of packets that it accepts.
    pub(super) fn accepted(&self) -> u32 {
        let others = if self.accepts_others == Some(true) { !self.known } else { 0 };
        self.accepted | others
    }
}

#[cfg(test)]
mod tests {
    use fastlane_netlink::Request;

    use super::*;
    use crate::packet_rules::nft_rule::{DROP, ESTABLISHED};

    /// Attribute of an element in a list, `NFTA_LIST_ELEM`.
    const ELEMENT: u16 = 1;
    const RELATED: u32 = 4;

    /// Builds the attributes of a list of elements: states, `None` for all others, and verdicts.
    fn elements(list: &[(Option<u32>, u32)]) -> Vec<u8> {
        let element = |request: Request, (state, verdict): &(Option<u32>, u32)| {
            let request = match state {
                Some(state) => request.nest(KEY, |it| it.attribute(VALUE, &state.to_ne_bytes())),
                None => request.attribute(FLAGS, &CATCH_ALL.to_be_bytes()),
            };
            request
                .nest(DATA, |it| it.nest(VERDICT, |it| it.attribute(CODE, &verdict.to_be_bytes())))
        };
        let request = Request::new(0, 0, &[]).attribute(TABLE, b"t\0").attribute(SET, b"s\0");
        let request = request.nest(ELEMENTS, |all| {
            list.iter().fold(all, |all, one| all.nest(ELEMENT, |it| element(it, one)))
        });
        request.finish().split_off(16)
    }

    /// Returns the map of a message; `None` if it names none.
    fn map(message: &[u8]) -> Option<VerdictMap> {
        let (_, list) = SetName::of_elements(2, message)?;
        let mut map = VerdictMap::default();
        map.take(list);
        Some(map)
    }

    #[test]
    fn the_element_of_established_connections_comes_before_that_of_all_others() {
        let accepts = |list: &[_]| map(&elements(list)).unwrap().accepted() & ESTABLISHED != 0;
        assert!(accepts(&[(Some(ESTABLISHED), ACCEPT), (None, DROP)]));
        assert!(!accepts(&[(None, ACCEPT), (Some(ESTABLISHED), DROP)]));
        assert!(accepts(&[(Some(RELATED), DROP), (None, ACCEPT)]));
        assert!(!accepts(&[(Some(RELATED), ACCEPT)]));
        assert!(!accepts(&[]));
        let states = |list: &[_]| map(&elements(list)).unwrap().states();
        assert_eq!(states(&[(Some(RELATED), ACCEPT), (Some(8), DROP)]), RELATED | 8);
        assert_eq!(states(&[(None, ACCEPT)]), u32::MAX);
    }

    #[test]
    fn broken_elements_are_passed_over() {
        let whole = elements(&[(Some(ESTABLISHED), ACCEPT), (None, ACCEPT)]);
        assert!(map(&whole).is_some_and(|map| map.accepted() == u32::MAX));
        for length in 0..whole.len() {
            let _ = map(&whole[..length]);
        }
    }
}
