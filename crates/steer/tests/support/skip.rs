//! Skipping, by name and reason.

/// Says that `test` was skipped, and fails unless FASTLANE_SKIPS (names, separated by commas or
/// spaces) expects it: a machine that silently tests less is found out.
pub(crate) fn skip(test: &str, reason: &str) {
    eprintln!("SKIP {test}: {reason}");
    let expected = std::env::var("FASTLANE_SKIPS").unwrap_or_default();
    assert!(
        expected.split([',', ' ']).any(|name| name == test),
        "unexpected skip of {test} ({reason}); set FASTLANE_SKIPS={test} to allow it"
    );
}
