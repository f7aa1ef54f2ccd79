//! Skipping of tests that a machine cannot run.

/// Reports on standard error that the test `name` is skipped and why. The caller then returns.
///
/// # Panics
/// When the environment variable `FASTLANE_SKIPS` does not allow the skip. It holds names separated
/// by commas; a `*` at the end of a name stands for any rest. An unexpected skip is a failure.
pub fn skip(name: &str, reason: &str) {
    eprintln!("SKIP {name}: {reason}");
    let allowed = std::env::var("FASTLANE_SKIPS").unwrap_or_default();
    assert!(
        is_allowed(&allowed, name),
        "{name} cannot run here: {reason}; add it to FASTLANE_SKIPS to accept that"
    );
}

fn is_allowed(allowed: &str, name: &str) -> bool {
    allowed.split(',').map(str::trim).any(|entry| match entry.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => entry == name,
    })
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn names_and_prefixes_allow_a_skip_and_nothing_else_does() {
        assert!(is_allowed("af-xdp-native", "af-xdp-native"));
        assert!(is_allowed("tap, af-xdp*", "af-xdp-native"));
        assert!(is_allowed("*", "anything"));
        assert!(!is_allowed("", "tap"));
        assert!(!is_allowed("ta", "tap"));
        assert!(!is_allowed("tapx", "tap"));
    }
}
