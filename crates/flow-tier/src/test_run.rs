//! Test runs of the program on a frame, without traffic.

use std::time::Duration;

use aya::programs::{
    ProgramError as LoadError, SchedClassifier, TestRun as Runnable, TestRunOptions, TestRunResult,
    Xdp,
};
use fastlane_steer::ProgramError;

use crate::error::TierError;
use crate::kernel_tier::KernelTier;
use crate::program::{INGRESS, PROGRAM};

/// Actions of programs that redirect a frame: `XDP_REDIRECT` and `TCX_REDIRECT`.
const REDIRECT: u32 = 4;
const INGRESS_REDIRECT: u32 = 7;

/// Size of `struct __sk_buff` up to `gso_size`, and the offsets of what a test run takes from it
/// (net/bpf/test_run.c): `ifindex`, `gso_segs` and `gso_size`.
const SOCKET_BUFFER: usize = 180;
const INTERFACE: usize = 40;
const SEGMENTS: usize = 164;
const PAYLOAD: usize = 176;

/// Room for a frame that the program returns, in bytes.
const ROOM: usize = 4096;

/// Result of a test run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// True if the program redirects the frame, false if Linux gets it.
    pub is_forwarded: bool,
    /// The frame after the run.
    pub frame: Vec<u8>,
    /// Mean time of one run, in whole nanoseconds.
    pub duration: Duration,
}

/// Packets that Linux makes of a socket buffer when it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Number of packets; 0: it is one.
    pub count: u32,
    /// Payload of each but the last, in bytes; 0: it is one.
    pub payload: u32,
}

impl Segments {
    fn context(self, interface: u32) -> [u8; SOCKET_BUFFER] {
        let mut context = [0; SOCKET_BUFFER];
        let fields = [(INTERFACE, interface), (SEGMENTS, self.count), (PAYLOAD, self.payload)];
        for (at, value) in fields {
            context[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        context
    }
}

impl KernelTier {
    /// Runs the program `repeat` times on a frame of at most 4096 bytes that arrives by an
    /// interface, each time on the frame as the run before left it. Counters include it. See the
    /// kernel's Documentation/bpf/bpf_prog_run.rst.
    ///
    /// # Errors
    /// Returns [`TierError::Program`] for a frame shorter than 14 bytes, an interface that does not
    /// exist, and a program that was adopted.
    pub fn test_run(
        &mut self,
        interface: u32,
        frame: &[u8],
        repeat: u32,
    ) -> Result<TestRun, TierError> {
        let action = "running the kernel tier on a test frame";
        let failed = |error| ProgramError::new(action, error);
        let adopted = || ProgramError::Adopted { program: PROGRAM.to_owned() };
        let program = self.object.as_mut().and_then(|object| object.program_mut(PROGRAM));
        let program: &mut Xdp = program.ok_or_else(adopted)?.try_into().map_err(failed)?;
        // `struct xdp_md`: data, its end, metadata, ingress interface, queue, egress interface.
        let words = [0, frame.len() as u32, 0, interface, 0, 0];
        let context: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let run = Run { frame, context: &context, repeat, redirect: REDIRECT };
        Ok(run.of(program).map_err(failed)?)
    }

    /// Runs the program for the ingress of an interface, as [`test_run`](Self::test_run) does, on a
    /// socket buffer with a frame, once.
    ///
    /// # Errors
    /// Returns [`TierError::Program`] as `test_run` does.
    pub fn test_run_at_ingress(
        &mut self,
        interface: u32,
        frame: &[u8],
        segments: Segments,
    ) -> Result<TestRun, TierError> {
        let action = "running the kernel tier on a test packet at the ingress";
        let failed = |error| ProgramError::new(action, error);
        let adopted = || ProgramError::Adopted { program: INGRESS.to_owned() };
        let program = self.object.as_mut().and_then(|object| object.program_mut(INGRESS));
        let program: &mut SchedClassifier =
            program.ok_or_else(adopted)?.try_into().map_err(failed)?;
        let context = segments.context(interface);
        let run = Run { frame, context: &context, repeat: 1, redirect: INGRESS_REDIRECT };
        Ok(run.of(program).map_err(failed)?)
    }
}

/// Input of a test run, and the action of a program that redirects it.
struct Run<'a> {
    frame: &'a [u8],
    context: &'a [u8],
    repeat: u32,
    redirect: u32,
}

impl Run<'_> {
    fn of<P>(&self, program: &P) -> Result<TestRun, LoadError>
    where
        P: for<'o> Runnable<Opts<'o> = TestRunOptions<'o>, Result = TestRunResult>,
    {
        let mut output = vec![0; ROOM];
        let mut options = TestRunOptions::new();
        options.data_in = Some(self.frame);
        options.data_out = Some(&mut output);
        options.ctx_in = Some(self.context);
        options.repeat = self.repeat;
        let result = program.test_run(options)?;
        output.truncate(result.data_size_out as usize);
        let is_forwarded = result.return_value == self.redirect;
        Ok(TestRun { is_forwarded, frame: output, duration: result.duration })
    }
}
