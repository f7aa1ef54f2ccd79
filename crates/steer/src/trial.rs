//! Tries a program on a frame, without any interface.

use std::time::Duration;

use aya::programs::{TestRun, TestRunOptions};

use crate::{error::ProgramError, program::Program};

/// One of the programs in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `fastlane_xdp`: returns XDP_REDIRECT (4) or XDP_PASS (2).
    Xdp,
    /// `fastlane_claim`: returns TC_ACT_SHOT (2) or TC_ACT_UNSPEC (-1).
    Claim,
    /// `fastlane_select`: returns the length to keep, or 0.
    Select,
    /// `fastlane_reenter`: returns TC_ACT_REDIRECT (7).
    Reenter,
}

/// What one trial of a program gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The program's return value, see [`Entry`].
    pub returned: u32,
    /// Mean time of one run, whole nanoseconds.
    pub duration: Duration,
}

impl Program {
    /// Runs one of the programs on `frame` without any interface, `repeat` times, as if it carried
    /// `mark` (not for [`Entry::Xdp`]), and counts it: kernel document bpf/bpf_prog_run.
    ///
    /// # Errors
    /// [`ProgramError::Kernel`] (EINVAL) for a frame shorter than the kernel accepts: 14 octets for
    /// XDP, 15 for the others.
    pub fn try_frame(
        &mut self,
        entry: Entry,
        frame: &[u8],
        mark: u32,
        repeat: u32,
    ) -> Result<Trial, ProgramError> {
        // The beginning of struct __sk_buff: length, packet type, mark.
        let mut context = [0; 12];
        context[8..].copy_from_slice(&mark.to_ne_bytes());
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = repeat;
        options.ctx_in = (entry != Entry::Xdp).then_some(&context[..]);
        let result = match entry {
            Entry::Xdp => self.xdp()?.test_run(options),
            Entry::Claim => self.classifier("fastlane_claim")?.test_run(options),
            Entry::Reenter => self.classifier("fastlane_reenter")?.test_run(options),
            Entry::Select => self.select()?.test_run(options),
        };
        result
            .map(|result| Trial { returned: result.return_value, duration: result.duration })
            .map_err(|error| ProgramError::new("trying a frame", error))
    }
}
