//! Known places that break a rule. The lists may only become shorter: a place that no longer breaks
//! its rule must be removed from its list, and a new one fails.

/// Functions with more than five parameters, or with a tuple as a parameter.
pub(crate) const SIGNATURES: &[&str] = &[];

/// Types with an implementation in more than three files.
pub(crate) const IMPLEMENTATIONS: &[&str] = &[];

/// Circles between modules.
pub(crate) const CIRCLES: &[&str] = &[];

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
