//! A lane that panics, in a program as `cargo build --release` makes it: the process ends at once
//! (docs/why/0020-panics.md). The program is that of the instruction counts, which is built anyway.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// Number of SIGABRT.
const ABORTED: i32 = 6;

#[test]
fn a_lane_that_panics_aborts_the_release_program() {
    let folder = std::env::temp_dir().join(format!("fastlane-panic-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, config) = (folder.join("panic"), folder.join("panics.json"));
    std::fs::write(&file, "").unwrap();
    let configuration = serde_json::json!({
        "ports": {"wire": {"driver": {"memory": {"fill": {"frames": 8, "length": 60}}}}},
        "session": folder.join("panics.sock"),
        "app": [0, file],
    });
    std::fs::write(&config, configuration.to_string()).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "fastlane-bench"])
        .args(["--bin", "instructions", "--no-default-features", "--", "panicking-lane"])
        .arg(&config)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(ABORTED), "{}: {stderr}", output.status);
    assert!(stderr.contains("'lane-0'") && stderr.contains("on purpose"), "{stderr}");
    assert!(!stderr.contains("frames out"), "no summary: {stderr}");
}
