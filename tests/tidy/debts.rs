//! Known places that break a rule. The lists may only become shorter: a place that no longer breaks
//! its rule must be removed from its list, and a new one fails.

/// Functions with more than five parameters, or with a tuple as a parameter.
pub(crate) const SIGNATURES: &[&str] = &[
    "apps/upf/src/datapath/apply.rs apply_rules_slow",
    "apps/upf/src/datapath/apply.rs outcome",
    "apps/upf/src/datapath/classify.rs charge",
    "apps/upf/src/datapath/classify.rs decide",
    "apps/upf/src/datapath/classify.rs is_stopped",
    "apps/upf/src/datapath/classify.rs look",
    "apps/upf/src/datapath/classify.rs passes",
    "apps/upf/src/datapath/classify/rate_meter/tests.rs passed",
    "apps/upf/src/datapath/deferred.rs send_icmp_error",
    "apps/upf/src/datapath/egress.rs route_batch",
    "apps/upf/src/datapath/egress.rs send_to_next_hop",
    "apps/upf/src/datapath/egress.rs too_long",
    "apps/upf/src/datapath/egress.rs unrouted",
    "apps/upf/src/datapath/forward.rs encapsulate_and_send",
    "apps/upf/src/datapath/http_redirect.rs segment",
    "apps/upf/src/datapath/next_hop.rs find",
];

/// Types with an implementation in more than three files.
pub(crate) const IMPLEMENTATIONS: &[&str] = &["apps/upf Datapath"];

/// Circles between modules.
pub(crate) const CIRCLES: &[&str] = &[
    "apps/upf, in datapath: apply <-> charge <-> deferred <-> forward <-> gtpu_control <-> \
     ip_fragment",
    "apps/upf, in datapath: next_hop <-> port_map",
];

/// Compares what breaks a rule with the list of known places.
///
/// # Panics
/// Panics with the differences if a new place breaks the rule, or if a known one no longer does.
pub(crate) fn check(found: &[String], known: &[&str]) {
    let new: Vec<&String> = found.iter().filter(|it| !known.contains(&it.as_str())).collect();
    let mended: Vec<&&str> =
        known.iter().filter(|it| !found.iter().any(|found| found == **it)).collect();
    assert!(new.is_empty(), "{} new:\n{new:#?}", new.len());
    assert!(mended.is_empty(), "mended, so remove them from tests/tidy/debts.rs:\n{mended:#?}");
}
