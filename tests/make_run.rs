//! The scripts of `make run` reach their summaries, with the programs of this build.
//!
//! Rates and losses are not judged here, since the build is not optimised and the machine is
//! shared. `make run` judges them by its exit status.

use std::path::Path;
use std::process::Command;

use fastlane_testing::skip;
use fastlane_tests::binary;

/// Runs a script of `lab` for two seconds and returns all that it wrote.
fn run(script: &str, mechanism: &str) -> Option<String> {
    if !rustix::process::getuid().is_root() {
        skip("make_run", "needs root, for network namespaces");
        return None;
    }
    let programs = binary("upf");
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab").join(script))
        .arg(mechanism)
        .env("LAB_PROGRAMS", programs.parent().expect("the programs are in a folder"))
        .env("LAB_SECONDS", "2")
        .output()
        .expect("a script that can be executed");
    let [written, errors] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    Some(format!("{written}\n{errors}"))
}

#[test]
fn the_upf_reaches_its_summary() {
    let Some(text) = run("upf", "af-xdp") else { return };
    assert!(text.contains("UPF on af-xdp, veth, 5 users"), "{text}");
    assert!(
        text.contains("slow path   killed 1 times meanwhile; sessions after that: all"),
        "{text}"
    );
}

#[test]
fn macswap_reaches_its_summary() {
    let Some(text) = run("run", "af-packet") else { return };
    assert!(text.contains("macswap on af-packet"), "{text}");
}
