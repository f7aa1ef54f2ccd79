//! `fastlane new`: the project that it writes builds, and passes its test without privilege.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `fastlane new` with more arguments in a folder.
fn new(folder: &Path, arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_fastlane");
    Command::new(program).arg("new").args(arguments).current_dir(folder).output().unwrap()
}

/// Returns standard error.
fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a command that runs `program` without capabilities in a network namespace of its own.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    if rustix::process::getuid().is_root() {
        command.args(["--net", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"]);
    } else {
        command.args(["--user", "--net", "--"]);
    }
    command.arg(program);
    command
}

#[test]
fn a_project_builds_and_passes_its_test_without_privilege() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The user without privilege reads the programs and the configuration.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let output = new(folder.path(), &["edge"]);
    assert!(output.status.success(), "{}", errors(&output));
    let project = folder.path().join("edge");
    // The versions of the tree are on this machine already.
    std::fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let cargo = Command::new(env!("CARGO"))
        .args(["test", "--no-run", "--offline", "--message-format=json"])
        // The workspace has built most dependencies already, without debug information.
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap())
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env_remove("RUSTC_WRAPPER")
        .current_dir(&project)
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", errors(&cargo));
    let messages = String::from_utf8_lossy(&cargo.stdout);
    let test = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(str::to_owned))
        .next_back()
        .expect("cargo names the test program");

    // The user without privilege may be unable to read the build folder.
    let copy = folder.path().join("edge-test");
    std::fs::copy(test, &copy).unwrap();
    let tests = unprivileged(&copy).current_dir(&project).output().unwrap();
    let text = String::from_utf8_lossy(&tests.stdout).into_owned();
    assert!(text.contains("test result: ok. 1 passed"), "{text}{}", errors(&tests));
}

#[test]
fn what_exists_and_what_cargo_refuses_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("edge")).unwrap();
    let output = new(folder.path(), &["edge"]);
    assert!(errors(&output).contains("edge exists; choose another name or --into"));
    let output = new(folder.path(), &["9edge"]);
    assert!(errors(&output).contains("`9edge` is not a name of a package"));
    let output = new(folder.path(), &["other", "--path", "/nonexistent"]);
    assert!(errors(&output).contains("give --path FOLDER or --git URL"), "{}", errors(&output));
    assert!(!folder.path().join("other").exists(), "nothing is written before the checks");
}

#[test]
fn a_repository_stands_in_the_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let url = "https://example.com/fastlane.git";
    assert!(new(folder.path(), &["edge", "--git", url]).status.success());
    let manifest = std::fs::read_to_string(folder.path().join("edge/Cargo.toml")).unwrap();
    assert!(manifest.contains(&format!("fastlane = {{ git = \"{url}\" }}")), "{manifest}");
}
