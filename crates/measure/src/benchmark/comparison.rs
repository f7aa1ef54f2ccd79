//! Comparison of the device with its rival: CPU time per packet in alternating slices, by the
//! method of this crate.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::json;

use super::description::{Comparison, FrameSize};
use super::interrupt;
use super::results::ComparisonResult;
use super::rig::Rig;
use crate::Result;
use crate::slices::{Contender, Pairs, Slice, pair};
use crate::statistics::{Estimate, Verdict};

/// Time after which the generator gives up a window of frames. It is longer than a pause in which
/// the generator is stopped.
const ANSWER_TIMEOUT_MS: u64 = 5000;
/// Minimum number of pairs. Fewer pairs resolve nothing, however small their spread is.
pub(super) const ENOUGH: usize = 31;
/// Duration of a trial without end; nothing waits for it.
const ENDLESS_MS: u64 = 86_400_000;

/// Rig in a closed loop that runs only in its slices. Between them device and generator are stopped
/// (SIGSTOP), so they use no CPU while the other pair runs.
pub(super) struct Turns {
    rig: Rig,
    cpu: u64,
    packets: u64,
}

impl Turns {
    /// Starts the loop of `outstanding` frames, then stops both processes.
    pub(super) fn new(mut rig: Rig, frame_size: FrameSize, outstanding: u64) -> Result<Self> {
        rig.generator.order(json!({
            "frame-bytes": frame_size.for_generator(),
            "outstanding-packets": outstanding,
            "answer-timeout-ms": ANSWER_TIMEOUT_MS,
            "duration-ms": ENDLESS_MS,
        }))?;
        let before = rig.generator.received();
        rig.device.wait_for("frames do not come back", |_| {
            (rig.generator.received() > before).then_some(())
        })?;
        let mut turns = Self { rig, cpu: 0, packets: 0 };
        (turns.cpu, turns.packets) = turns.stop()?;
        Ok(turns)
    }

    /// Stops both processes. Returns the device's CPU time and the packets so far. The packets are
    /// read just before; the CPU time of a stopped process is exact.
    fn stop(&mut self) -> Result<(u64, u64)> {
        let packets = self.rig.generator.received();
        self.rig.device.stop()?;
        self.rig.generator.program.stop()?;
        Ok((self.rig.device.cpu_of_all()?, packets))
    }

    /// Terminates both processes.
    pub(super) fn finish(self) -> Result<()> {
        self.rig.finish()
    }
}

impl Contender for Turns {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        interrupt::check()?;
        self.rig.generator.program.resume()?;
        self.rig.device.resume()?;
        std::thread::sleep(length);
        let (cpu, packets) = self.stop()?;
        let slice = Slice { cpu: cpu - self.cpu, packets: packets - self.packets };
        (self.cpu, self.packets) = (cpu, packets);
        Ok(slice)
    }
}

/// Handle of a contender that is compared with itself.
struct Twin<'a>(&'a RefCell<&'a mut Turns>);

impl Contender for Twin<'_> {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        self.0.borrow_mut().run(length)
    }
}

/// Compares `device` with `rival`. `names` are their names.
pub(super) fn compare(
    settings: &Comparison,
    names: [&str; 2],
    device: &mut Turns,
    rival: &mut Turns,
) -> Result<ComparisonResult> {
    let slice = Duration::from_millis(settings.slice_ms);
    let mut pairs = Pairs::default();
    for number in 1..=settings.pairs {
        pair(&mut pairs, slice, device, rival)?;
        say(&pairs, "comparison", number, settings.pairs);
    }
    Ok(result(settings, names, pairs, settings.bound, false))
}

/// Compares the device with itself.
pub(super) fn control(
    settings: &Comparison,
    name: &str,
    device: &mut Turns,
) -> Result<ComparisonResult> {
    let slice = Duration::from_millis(settings.slice_ms);
    let mut pairs = Pairs::default();
    let shared = RefCell::new(device);
    for number in 1..=settings.pairs {
        pair(&mut pairs, slice, &mut Twin(&shared), &mut Twin(&shared))?;
        say(&pairs, "control", number, settings.pairs);
    }
    Ok(result(settings, [name, name], pairs, None, true))
}

fn say(pairs: &Pairs, what: &str, number: usize, all: usize) {
    if let (Some(ours), Some(rival)) = (pairs.ours.last(), pairs.rival.last()) {
        let ratio = ours / rival;
        eprintln!("{what}: pair {number} of {all}: {ours:.1} and {rival:.1} ns, {ratio:.3}");
    }
}

fn result(
    settings: &Comparison,
    [device, rival]: [&str; 2],
    pairs: Pairs,
    bound: Option<f64>,
    control: bool,
) -> ComparisonResult {
    let ratio = Estimate::of_ratio(&pairs.ours, &pairs.rival);
    ComparisonResult {
        control,
        frame_size: settings.frame_size,
        device: device.to_owned(),
        rival: rival.to_owned(),
        device_ns_per_packet: pairs.ours,
        rival_ns_per_packet: pairs.rival,
        ratio,
        bound,
        verdict: bound.map(|bound| match settings.pairs {
            ..ENOUGH => Verdict::NotResolved,
            _ => ratio.verdict(bound, 1.0),
        }),
    }
}
