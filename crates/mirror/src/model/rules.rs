//! Detection of policy routing: rules other than those every host has.

use super::{LOCAL, MAIN, Rule};

/// `RT_TABLE_DEFAULT`: consulted after the main table.
const DEFAULT: u32 = 253;

/// Returns true if the rules of a family differ from "local, then main, then default". A rule for
/// VRFs does not affect other interfaces. A kernel without rules has none.
pub(super) fn have_policy<'a>(rules: impl IntoIterator<Item = &'a Rule>, ipv6: bool) -> bool {
    let mut rules: Vec<&Rule> =
        rules.into_iter().filter(|rule| rule.ipv6 == ipv6 && !rule.vrf).collect();
    rules.sort_by_key(|rule| rule.priority);
    let plain = rules.iter().all(|rule| rule.plain);
    let tables: Vec<u32> = rules.iter().map(|rule| rule.table).collect();
    let usual: [&[u32]; 3] = [&[], &[LOCAL, MAIN], &[LOCAL, MAIN, DEFAULT]];
    !(plain && usual.contains(&&tables[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(priority: u32, table: u32) -> Rule {
        Rule { ipv6: false, priority, table, plain: true, vrf: false, is_beyond_lookup: false }
    }

    #[test]
    fn what_every_host_has_is_no_policy() {
        let usual = vec![rule(32767, 253), rule(0, 255), rule(32766, 254)];
        assert!(!have_policy(&usual, false));
        assert!(!have_policy(&usual, true));
        assert!(!have_policy(&[], false));
        let vrf = Rule { vrf: true, table: 0, plain: false, ..rule(1000, 0) };
        assert!(!have_policy(&[usual.clone(), vec![vrf]].concat(), false));
        assert!(have_policy(&[usual.clone(), vec![rule(100, 100)]].concat(), false));
        let selective = Rule { plain: false, ..rule(32766, 254) };
        assert!(have_policy(&[rule(0, 255), selective], false));
        assert!(have_policy(&usual[..1], false), "without the local table first");
    }
}
