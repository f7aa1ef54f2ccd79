//! The loop does not grow: instructions per packet against the committed count.

use std::path::Path;
use std::process::Command;

use fastlane_bench::instructions::Committed;
use fastlane_testing::skip;

#[test]
fn the_loop_takes_no_more_instructions_than_committed() {
    if !cfg!(target_arch = "x86_64") {
        return skip("instructions", "the committed counts are those of x86-64");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("instructions", "valgrind is not installed");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = std::fs::read_to_string(folder.join("instructions.json")).unwrap();
    let committed: Committed = serde_json::from_str(&committed).unwrap();

    // The release build, whatever profile the test has: another one counts other code.
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "fastlane-bench"])
        .args(["--bin", "instructions"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let measured: Committed = serde_json::from_slice(&output.stdout).unwrap();

    let growth = 1.0 + committed.allowed_growth_percent / 100.0;
    assert_eq!(measured.packets, committed.packets);
    assert!(!committed.instructions_per_packet.is_empty());
    for (burst, allowed) in &committed.instructions_per_packet {
        let Some(count) = measured.instructions_per_packet.get(burst) else {
            skip("instructions", &format!("{burst}: {}", String::from_utf8_lossy(&output.stderr)));
            continue;
        };
        assert!(
            *count <= allowed * growth,
            "{burst}: {count} instructions per packet, committed are {allowed}; if that is meant: \
             cargo run --release -p fastlane-bench --bin instructions > bench/instructions.json"
        );
        if count * growth < *allowed {
            eprintln!("{burst}: {count} instructions per packet, committed are {allowed}: better");
        }
    }
}
