//! Paths of the programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Returns the path of a program of the workspace (`macswap`, `traffic`, `fastlane`) in the build
/// folder of this test. Builds all programs if it is missing.
///
/// # Panics
/// When the build fails.
#[track_caller]
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    // .../debug/deps/story-0123456789abcdef
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.parent().and_then(Path::parent).expect("the test lies in a build folder");
    let program = folder.join(name);
    let _guard = BUILDING.lock();
    if !program.exists() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--workspace", "--bins", "--quiet"]);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        // A profile's folder has its name, but for the first.
        if let Some(profile) = folder.file_name().filter(|name| *name != "debug") {
            cargo.arg("--profile").arg(profile);
        }
        if let Some(target) = folder.parent() {
            cargo.env("CARGO_TARGET_DIR", target);
        }
        assert!(cargo.status().is_ok_and(|status| status.success()), "{name} cannot be built");
    }
    program
}
