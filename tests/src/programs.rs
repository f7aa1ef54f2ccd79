//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// The program of the workspace with this name (`macswap`, `traffic`, `fastlane`), as it was built
/// beside this test; built now if it is missing.
///
/// # Panics
/// When it cannot be built.
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
