use std::process::Command;

use super::*;
use crate::{Rules, Settings};

const NAME: &str = "attach::tests::before_linux_6_6_a_filter_is_attached_and_leftovers_are_removed";

/// Returns the number of filters of Fastlane on the ingress of the loopback interface.
fn filters() -> usize {
    let output = Command::new("tc")
        .args(["filter", "show", "dev", "lo", "ingress"])
        .output()
        .expect("tc is there");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).matches("direct-action").count()
}

/// Runs the test again in a network namespace of its own. A thread cannot change its namespace
/// without unsafe code, which this crate does not have.
#[test]
fn before_linux_6_6_a_filter_is_attached_and_leftovers_are_removed() {
    const INSIDE: &str = "FASTLANE_STEER_INSIDE";
    if std::env::var_os(INSIDE).is_none() {
        let settings = Settings { max_length: 0, mark: 0, reenter_ifindex: 0 };
        if let Err(error @ ProgramError::NoPrivilege { .. }) =
            Program::load(&Rules::default(), settings)
        {
            return fastlane_testing::skip(NAME, &error.to_string());
        }
        let this = std::env::current_exe().expect("the test is a file");
        let status = Command::new("unshare")
            .arg("--net")
            .arg(this)
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "yes")
            .status()
            .expect("unshare is there");
        assert!(status.success());
        return;
    }
    let settings = Settings { max_length: 1500, mark: 1, reenter_ifindex: 0 };
    let attached = || {
        let mut program = Program::load(&Rules::default(), settings).expect("maps");
        program.attach_ingress("fastlane_claim", "lo", false).expect("lo takes a filter");
        program
    };
    let program = attached();
    assert_eq!(filters(), 1);
    drop(program);
    assert_eq!(filters(), 0);
    // As after SIGKILL: nothing detaches the filter.
    std::mem::forget(attached());
    assert_eq!(filters(), 1);
    let program = attached();
    assert_eq!(filters(), 1);
    drop(program);
    assert_eq!(filters(), 0);

    let mut program = Program::load(&Rules::default(), settings).expect("maps");
    let error = program.attach_ingress("fastlane_claim", "absent", false).expect_err("no such");
    assert!(matches!(error, ProgramError::NoInterface { .. }), "{error}");
}
