//! Sets and maps of nftables, read for what they do to each packet that is looked up in them.
//!
//! Elements of a set have the expressions that the set declares (`limit rate ...`), or those of
//! the rule that updates it. Elements of a map of objects are limits, quotas, counters and others.

use std::collections::HashMap;

use fastlane_netlink::{attribute, attributes, text};

use super::verdict_map::{SetName, VerdictMap};
use super::{be32, is_effect};

/// Attributes of a set (`NFTA_SET_*`).
const TABLE: u16 = 1;
const NAME: u16 = 2;
const OBJECT: u16 = 15;
const EXPRESSION: u16 = 17;
const EXPRESSIONS: u16 = 18;
/// Attribute of an expression: `NFTA_EXPR_NAME`.
const EXPRESSION_NAME: u16 = 1;
/// Types of objects (`NFT_OBJECT_*`) for quotas and limits.
const QUOTA: u32 = 2;
const LIMIT: u32 = 4;

/// Name of a table with its family (`NFPROTO_*`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TableName {
    family: u8,
    table: String,
}

/// Effect on each packet by set; `None` for maps of objects without one. Other sets without an
/// effect are absent.
type Effects = HashMap<String, Option<String>>;

/// Sets and maps of one table.
#[derive(Clone, Debug, Default)]
struct Table {
    effects: Effects,
    /// Maps of verdicts, of which the elements are known.
    verdict_maps: HashMap<String, VerdictMap>,
}

/// Sets and maps of all tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct NftSets {
    tables: HashMap<TableName, Table>,
}

impl NftSets {
    /// Takes the attributes of a set. It is passed over if its name or table is missing.
    pub(crate) fn take(&mut self, family: u8, set: &[u8]) {
        let name = |kind| attribute(set, kind).map(text);
        let (Some(table), Some(name)) = (name(TABLE), name(NAME)) else { return };
        let object = attribute(set, OBJECT).and_then(be32);
        let effect = match (element_effect(set, EXPRESSION, EXPRESSIONS), object) {
            (Some(expression), _) => Some(format!("{expression} of set {name}")),
            (None, Some(kind)) => object_effect(kind).map(|it| format!("{it} of map {name}")),
            (None, None) => return,
        };
        let table = self.tables.entry(TableName { family, table }).or_default();
        table.effects.insert(name, effect);
    }

    /// Notes a map of verdicts, whose elements follow if it has any.
    pub(crate) fn expect_elements(&mut self, name: &SetName) {
        self.verdict_map(name);
    }

    fn verdict_map(&mut self, name: &SetName) -> &mut VerdictMap {
        let SetName { family, table, set } = name.clone();
        let table = self.tables.entry(TableName { family, table }).or_default();
        table.verdict_maps.entry(set).or_default()
    }

    /// Takes the attributes of a list of elements.
    pub(crate) fn take_elements(&mut self, family: u8, message: &[u8]) {
        if let Some((name, list)) = SetName::of_elements(family, message) {
            self.verdict_map(&name).take(list);
        }
    }

    /// Returns the sets of a table.
    pub(super) fn of_table(&self, family: u8, table: &str) -> TableSets<'_> {
        TableSets(self.tables.get(&TableName { family, table: table.to_owned() }))
    }
}

/// Sets and maps that the rules of one table refer to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableSets<'a>(Option<&'a Table>);

impl<'a> TableSets<'a> {
    /// Returns what a set does to each packet that is looked up in it.
    pub(super) fn of_set(self, name: &str) -> Option<&'a str> {
        self.0?.effects.get(name)?.as_deref()
    }

    /// Returns a map of verdicts, if its elements are known.
    pub(super) fn of_verdicts(self, name: &str) -> Option<&'a VerdictMap> {
        self.0?.verdict_maps.get(name)
    }

    /// Returns what the objects of a map do to each packet. An unknown map may have limits.
    pub(super) fn of_map(self, name: &str) -> Option<String> {
        match self.0.and_then(|table| table.effects.get(name)) {
            Some(effect) => effect.clone(),
            None => Some(format!("object of map {name}")),
        }
    }
}

/// Returns the name of an object of this type (`NFT_OBJECT_*`) if it acts on each packet.
pub(super) fn object_effect(kind: u32) -> Option<&'static str> {
    match kind {
        QUOTA => Some("quota"),
        LIMIT => Some("limit"),
        _ => None,
    }
}

/// Returns the name of the first expression of elements that acts on each packet. `one` is the
/// attribute with a single expression, `list` that with several.
pub(super) fn element_effect(data: &[u8], one: u16, list: u16) -> Option<String> {
    let several = attributes(attribute(data, list).unwrap_or_default()).map(|(_, it)| it);
    let mut all = attribute(data, one).into_iter().chain(several);
    all.find_map(|it| attribute(it, EXPRESSION_NAME).map(text).filter(|name| is_effect(name)))
}

#[cfg(test)]
mod tests {
    use fastlane_netlink::Request;

    use super::*;

    /// Builds the attributes of a set with an expression, in a list or alone, or of a map with
    /// objects.
    fn set(name: &[u8], expressions: &[&[u8]], object: Option<u32>) -> Vec<u8> {
        let request = Request::new(0, 0, &[]).attribute(TABLE, b"t").attribute(NAME, name);
        let request = match expressions {
            [] => request,
            [one] => request.nest(EXPRESSION, |it| it.attribute(EXPRESSION_NAME, one)),
            several => request.nest(EXPRESSIONS, |list| {
                several
                    .iter()
                    .fold(list, |list, name| list.nest(1, |it| it.attribute(EXPRESSION_NAME, name)))
            }),
        };
        let object = object.map(u32::to_be_bytes);
        let request = object.iter().fold(request, |it, kind| it.attribute(OBJECT, kind));
        request.finish().split_off(16)
    }

    #[test]
    fn sets_are_known_by_what_they_do_to_each_packet() {
        let mut sets = NftSets::default();
        for set in [
            set(b"one\0", &[b"limit\0"], None),
            set(b"several\0", &[b"counter\0", b"quota\0"], None),
            set(b"counted\0", &[b"counter\0"], None),
            set(b"last\0", &[b"last\0", b"connlimit\0"], None),
            set(b"plain\0", &[], None),
            set(b"limits\0", &[], Some(LIMIT)),
            set(b"quotas\0", &[], Some(QUOTA)),
            set(b"counters\0", &[], Some(1)),
        ] {
            sets.take(2, &set);
        }
        let table = sets.of_table(2, "t");
        assert_eq!(table.of_set("one"), Some("limit of set one"));
        assert_eq!(table.of_set("several"), Some("quota of set several"));
        for name in ["counted", "last", "plain", "unknown"] {
            assert_eq!(table.of_set(name), None, "{name}");
        }
        assert_eq!(table.of_map("limits").as_deref(), Some("limit of map limits"));
        assert_eq!(table.of_map("quotas").as_deref(), Some("quota of map quotas"));
        assert_eq!(table.of_map("counters"), None);
        assert_eq!(table.of_map("unknown").as_deref(), Some("object of map unknown"));
        for (family, table) in [(10, "t"), (2, "u")] {
            let other = sets.of_table(family, table);
            assert_eq!(other.of_set("one"), None, "sets of another table");
            assert!(other.of_map("counters").is_some(), "a map of another table");
        }
    }

    #[test]
    fn broken_sets_are_passed_over() {
        let whole = set(b"several\0", &[b"counter\0", b"limit\0"], Some(LIMIT));
        for length in 0..whole.len() {
            let mut sets = NftSets::default();
            sets.take(2, &whole[..length]);
            let effect = sets.of_table(2, "t").of_set("several").map(str::to_owned);
            assert!(effect.is_none_or(|it| it.ends_with("several")), "{length}");
        }
    }
}
