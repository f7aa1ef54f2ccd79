//! Invalid configurations, each with its exact message and exit status.
//!
//! `BLESS=1 cargo test -p fastlane-tests --test configuration` writes the messages anew, to be read
//! before they are committed.

use std::path::{Path, PathBuf};
use std::process::Command;

use fastlane_tests::binary;

fn broken() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("broken");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    files
}

#[test]
fn each_mistake_has_its_message() {
    let files = broken();
    assert!(files.len() >= 20, "only {} files", files.len());
    let mut wrong = Vec::new();
    for file in files {
        // On one CPU, in a network namespace with nothing but `lo`: the messages name both.
        let output = Command::new("unshare")
            .args(["--net", "taskset", "--cpu-list", "0"])
            .arg(binary("macswap"))
            .arg(file.file_name().unwrap())
            .current_dir(file.parent().unwrap())
            .output()
            .expect("macswap starts");
        let status = output.status.code();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = format!("{message}exit status {}\n", status.unwrap_or(-1));
        let golden = file.with_extension("expected");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if text != expected || !matches!(status, Some(3 | 4)) || !output.stdout.is_empty() {
            wrong.push(format!("{}:\n{text}expected:\n{expected}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_committed_schema_is_the_one_in_the_program() {
    let output = Command::new(binary("macswap")).arg("--schema").output().expect("macswap starts");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fastlane.schema.json");
    let committed = std::fs::read_to_string(committed).unwrap_or_default();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        committed,
        "write it anew: `cargo run -p macswap -- --schema > fastlane.schema.json`"
    );
}
