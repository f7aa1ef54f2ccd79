//! Test of the translation of rules to `rte_flow`, in C, against a device that records the
//! requests.

use std::process::Command;

use fastlane_testing::skip;

#[test]
fn rules_are_translated() {
    let flags = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let Ok(flags) = flags.as_ref().map(|output| String::from_utf8_lossy(&output.stdout)) else {
        return skip("dpdk", "no pkg-config");
    };
    if flags.trim().is_empty() {
        return skip("dpdk", "DPDK's development files are missing: apt install libdpdk-dev");
    }
    let program = std::env::temp_dir().join(format!("fastlane-flow-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rte_flow/flow.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", source, "-o"])
        .arg(&program)
        .args(flags.split_whitespace())
        .args(["-lrte_ethdev", "-lrte_eal"])
        .output()
        .expect("a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&program).output().expect("the program starts");
    std::fs::remove_file(&program).expect("it was made");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
