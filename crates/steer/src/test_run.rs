//! Test runs of a program on a frame, without an interface.

use std::time::Duration;

use aya::programs::{TestRun, TestRunOptions};

use crate::{error::ProgramError, program::Program};

/// Program in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramName {
    /// `fastlane_xdp`: returns XDP_REDIRECT (4) or XDP_PASS (2).
    Xdp,
    /// `fastlane_claim`: returns TC_ACT_SHOT (2) or TC_ACT_UNSPEC (-1).
    Claim,
    /// `fastlane_select`: returns the length to keep, or 0.
    Select,
    /// `fastlane_reenter`: returns TC_ACT_REDIRECT (7).
    Reenter,
}

/// Result of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRunResult {
    /// Return value of the program; see [`ProgramName`].
    pub returned: u32,
    /// Mean time of one run, in whole nanoseconds.
    pub duration: Duration,
}

impl Program {
    /// Runs a program on `frame` without any interface, `repeat` times, with `mark` set (except for
    /// [`ProgramName::Xdp`]). The counts include it. See the kernel's
    /// Documentation/bpf/bpf_prog_run.rst.
    ///
    /// # Errors
    /// Returns [`ProgramError::Kernel`] (EINVAL) for a frame shorter than the kernel accepts: 14
    /// octets for XDP, 15 for the others.
    pub fn test_run(
        &mut self,
        entry: ProgramName,
        frame: &[u8],
        mark: u32,
        repeat: u32,
    ) -> Result<TestRunResult, ProgramError> {
        // First fields of struct __sk_buff: length, packet type, mark.
        let mut context = [0; 12];
        context[8..].copy_from_slice(&mark.to_ne_bytes());
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = repeat;
        options.ctx_in = (entry != ProgramName::Xdp).then_some(&context[..]);
        let result = match entry {
            ProgramName::Xdp => self.xdp()?.test_run(options),
            ProgramName::Claim => self.classifier("fastlane_claim")?.test_run(options),
            ProgramName::Reenter => self.classifier("fastlane_reenter")?.test_run(options),
            ProgramName::Select => self.select()?.test_run(options),
        };
        result
            .map(|result| TestRunResult {
                returned: result.return_value,
                duration: result.duration,
            })
            .map_err(|error| ProgramError::new("running a program on a test frame", error))
    }
}
