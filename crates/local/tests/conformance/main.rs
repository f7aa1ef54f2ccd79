//! The conformance suite on the ports of this crate.

use fastlane_testing::conformance;

mod memory_rig;
mod ring_rig;

conformance!(memory_port, memory_rig::LoopRig);
conformance!(ring_port, ring_rig::RingRig);
