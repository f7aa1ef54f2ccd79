//! Test that `include/fastlane.h` matches the sources.

mod generator;

use std::path::Path;

#[test]
fn the_header_is_what_the_sources_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("include/fastlane.h");
    let generated = generator::header(&folder.join("src"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let remedy = "write it anew with BLESS=1 cargo test -p fastlane-capi --test header";
    for (number, (ours, theirs)) in committed.lines().zip(generated.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {} of fastlane.h; {remedy}", number + 1);
    }
    assert!(committed == generated, "fastlane.h is not as long as generated; {remedy}");
}
