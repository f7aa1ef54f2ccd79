//! Shared support of the tests. Each test file uses a part of it.
#![allow(dead_code, reason = "each test file is a crate of its own and uses a part")]

pub(crate) mod frames;
pub(crate) mod machine;
pub(crate) mod random_rules;

pub(crate) use fastlane_testing::skip;

use fastlane_steer::{Program, ProgramError, Rules, Settings};

/// Loads the programs, or skips `test` if the machine does not allow it.
pub(crate) fn load(test: &str, rules: &Rules, settings: Settings) -> Option<Program> {
    match Program::load(rules, settings) {
        Ok(program) => Some(program),
        Err(error @ ProgramError::NoPrivilege { .. }) => {
            skip(test, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}
