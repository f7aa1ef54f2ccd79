//! The conformance suite on the ports of this crate.

use fastlane_testing::conformance;

mod memory;
mod ring;

conformance!(memory_port, memory::LoopRig);
conformance!(ring_port, ring::RingRig);
