//! The suite itself: a right queue passes it, also when decorated, and each kind of wrong one
//! fails.

use fastlane_testing::conformance;
use fastlane_testing::decorators::{Decorated, Record, Trace};

mod decorators;
mod pipe;
mod socket;
mod wrong;

conformance!(plain, pipe::PipeRig);
conformance!(traced, Decorated<pipe::PipeRig, Trace>);
conformance!(recorded, Decorated<pipe::PipeRig, Record>);
conformance!(veth, socket::SocketRig);
