//! Labels every packet `Kernel`: the application of the story `kernel_verdict`.

use fastlane::{Packet, Verdict};

fn main() -> std::process::ExitCode {
    fastlane::main(|_lane| Ok(|_: &mut Packet| Verdict::Kernel))
}
