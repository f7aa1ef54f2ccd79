//! The instructions per packet do not exceed the committed counts.

use std::path::Path;
use std::process::Command;

use fastlane_bench::instruction_counts::{Committed, Count};
use fastlane_testing::skip;

fn committed() -> Committed {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn every_count_is_committed() {
    let committed: Vec<String> = committed().instructions_per_packet.into_keys().collect();
    let mut counted = Count::ALL.map(Count::name);
    counted.sort();
    assert_eq!(committed, counted, "make bless-instructions");
}

#[test]
fn the_loop_takes_no_more_instructions_than_committed() {
    if !cfg!(target_arch = "x86_64") {
        return skip("instructions", "the committed counts are those of x86-64");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("instructions", "valgrind is not installed");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = committed();

    // Always the release build: other profiles have other instruction counts.
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "fastlane-bench"])
        .args(["--bin", "instructions", "--no-default-features"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let measured: Committed = serde_json::from_slice(&output.stdout).unwrap();

    let growth = 1.0 + committed.allowed_growth_percent / 100.0;
    assert_eq!(measured.packets, committed.packets);
    for (burst, allowed) in &committed.instructions_per_packet {
        let Some(count) = measured.instructions_per_packet.get(burst) else {
            skip("instructions", &format!("{burst}: {}", String::from_utf8_lossy(&output.stderr)));
            continue;
        };
        assert!(
            *count <= allowed * growth,
            "{burst}: {count} instructions per packet, committed are {allowed}; if that is meant: \
             make bless-instructions ROWS={burst}"
        );
        if let Some(most) = committed.at_most.get(burst) {
            assert!(count <= most, "{burst}: {count} instructions per packet, the bound is {most}");
        }
        if count * growth < *allowed {
            eprintln!("{burst}: {count} instructions per packet, committed are {allowed}: better");
        }
    }
}
