//! Differences between two models.

use std::collections::BTreeMap;

use super::{Changes, Model, RoutingTable};

impl Model {
    /// Returns the objects that must be published again when this model replaces `old`.
    #[must_use]
    pub fn differences(&self, old: &Self) -> Changes {
        let mut changes = Changes {
            rules: self.rules != old.rules,
            links: unlike(&self.links, &old.links).collect(),
            neighbours: unlike(&self.neighbours, &old.neighbours).collect(),
            ..Changes::default()
        };
        changes.links.extend(self.flushed.symmetric_difference(&old.flushed));
        changes.links.extend(self.controlled.symmetric_difference(&old.controlled));
        let addresses = self.addresses.symmetric_difference(&old.addresses);
        for address in addresses {
            changes.addresses.insert(address.address);
            changes.links.insert(address.link);
        }
        let none = RoutingTable::default();
        for table in self.tables.keys() {
            let was = old.tables.get(table).unwrap_or(&none);
            for family in 0..2 {
                let unlike = unlike(&self.tables[table].families[family], &was.families[family]);
                changes.routes.extend(unlike.map(|destination| (*table, destination)));
            }
        }
        for id in unlike(&self.next_hops, &old.next_hops) {
            self.mark_users(id, &mut changes);
            old.mark_users(id, &mut changes);
        }
        changes
    }
}

/// Returns the keys that only one map has or whose values differ.
fn unlike<K: Ord + Copy, V: PartialEq>(
    new: &BTreeMap<K, V>,
    old: &BTreeMap<K, V>,
) -> impl Iterator<Item = K> {
    let mut old = old.iter().peekable();
    let mut new = new.iter().peekable();
    std::iter::from_fn(move || {
        loop {
            match (new.peek(), old.peek()) {
                (Some((key, value)), Some((was, old_value))) if key == was => {
                    let (key, same) = (**key, value == old_value);
                    new.next();
                    old.next();
                    if !same {
                        return Some(key);
                    }
                }
                (Some((key, _)), Some((was, _))) if key < was => {
                    let key = **key;
                    new.next();
                    return Some(key);
                }
                (Some((key, _)), None) => {
                    let key = **key;
                    new.next();
                    return Some(key);
                }
                (_, Some((was, _))) => {
                    let was = **was;
                    old.next();
                    return Some(was);
                }
                (None, None) => return None,
            }
        }
    })
}
