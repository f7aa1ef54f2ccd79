//! Paths of the programs under test.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Returns the path of a program of the workspace (`macswap`, `traffic`, `fastlane`), or of an
/// example of this name, in the build folder of this test. Builds all programs if it is missing.
///
/// # Panics
/// When the build fails, or when there is no such program.
#[track_caller]
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    // .../debug/deps/story-0123456789abcdef, or .../release/fastlane-bench
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.parent().expect("the test lies in a build folder");
    let folder = if folder.ends_with("deps") { folder.parent() } else { Some(folder) };
    let folder = folder.expect("the test lies in a build folder");
    let find = || {
        [folder.join(name), folder.join("examples").join(name)].into_iter().find(|it| it.exists())
    };
    let _guard = BUILDING.lock();
    find().unwrap_or_else(|| {
        build(folder);
        find().unwrap_or_else(|| panic!("the workspace has no program {name}"))
    })
}

/// Builds all programs and examples of the workspace into the build folder of a profile.
#[track_caller]
fn build(folder: &Path) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--workspace", "--bins", "--examples", "--quiet"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    // A profile's folder has its name, but for the first.
    if let Some(profile) = folder.file_name().filter(|name| *name != "debug") {
        cargo.arg("--profile").arg(profile);
    }
    if let Some(target) = folder.parent() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    assert!(cargo.status().is_ok_and(|status| status.success()), "the programs cannot be built");
}

/// Returns the path of a file of this repository.
#[must_use]
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Returns the path of a test program of the workspace, the last one built.
///
/// # Panics
/// When there is none.
#[track_caller]
#[must_use]
pub fn test_program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.parent().expect("the test lies in a build folder");
    let entries = std::fs::read_dir(folder).expect("the build folder").flatten();
    let prefix = format!("{name}-");
    let is_program = |file: &DirEntry| {
        let file = file.file_name().into_string().unwrap_or_default();
        file.strip_prefix(&prefix).is_some_and(|rest| !rest.contains(['.', '-']))
    };
    let built = |file: &DirEntry| file.metadata().and_then(|it| it.modified()).ok();
    let newest = entries.filter(is_program).max_by_key(built);
    newest.unwrap_or_else(|| panic!("no test program {name} in {}", folder.display())).path()
}

/// Builds the program `panics` into `to` as a release does: optimised, and with panics that abort.
/// The libraries are those of this test's profile, because a whole release takes minutes.
///
/// # Panics
/// When the build fails.
pub fn build_as_release(to: &Path) {
    let folder = binary("panics");
    let folder = folder.parent().expect("the folder of the programs");
    // Of several builds of the library, the last: its dependencies are there.
    let deps = std::fs::read_dir(folder.join("deps")).expect("the libraries of the programs");
    let built = |file: &DirEntry| file.metadata().and_then(|it| it.modified()).ok();
    let is_library = |file: &DirEntry| {
        let name = file.file_name().into_string().unwrap_or_default();
        name.starts_with("libfastlane-") && name.ends_with(".rlib")
    };
    let library = deps.flatten().filter(is_library).max_by_key(built).expect("the facade");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/panics.rs");
    let mut rustc = Command::new("rustc");
    rustc.arg(source).arg("-o").arg(to).args(["--edition", "2024", "-L"]);
    rustc.arg(format!("dependency={}", folder.join("deps").display()));
    rustc.arg("--extern").arg(format!("fastlane={}", library.path().display()));
    rustc.args(["-C", "panic=abort", "-C", "opt-level=3", "-C", "codegen-units=1"]);
    assert!(rustc.status().is_ok_and(|status| status.success()), "{rustc:?}");
}
