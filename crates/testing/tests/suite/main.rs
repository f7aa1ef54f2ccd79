//! Tests of the suite: a correct queue passes it, also when decorated, and each kind of faulty
//! queue fails.

use fastlane_testing::conformance;
use fastlane_testing::decorators::{Decorated, Record, Trace};

mod decorated_queues;
mod faulty_queues;
mod pipe;
mod socket;

conformance!(plain, pipe::PipeRig);
conformance!(traced, Decorated<pipe::PipeRig, Trace>);
conformance!(recorded, Decorated<pipe::PipeRig, Record>);
conformance!(veth, socket::SocketRig);
