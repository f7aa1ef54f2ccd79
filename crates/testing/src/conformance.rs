//! Conformance suite of drivers.
//!
//! A case opens a port of the driver under test, turns its lanes in the test's own thread and acts
//! as the peer. It counts turns, not time, so only the driver and its device vary. The only time
//! limit is [`Rig::PATIENCE`](crate::Rig::PATIENCE): a frame that takes longer is lost. Frames are
//! numbered, so that losses, duplicates, reorderings and frames of earlier tests are distinct.

mod bench;
mod labeller;
mod receipt;

mod accounting;
mod kernel;
mod lifecycle;
mod origin;
mod pressure;
mod sizes;
mod tail;

pub use accounting::{
    every_frame_is_accounted_for, mixed_verdicts_each_go_their_way, statistics_are_read_from_memory,
};
pub use kernel::{
    kernel_gets_each_frame_once, kernel_sends_through_the_port, partial_checksums_are_completed,
};
pub use lifecycle::{
    close_and_reopen_at_once, link_down_and_up, peer_goes_away, queues_over_two_lanes,
};
pub use origin::{copies_leave_beside_the_original, new_packets_leave_in_order};
pub use pressure::{few_frames_run_dry_and_recover, peer_that_does_not_read};
pub use sizes::{largest_frames_pass, runts_pass, too_long_is_counted};
pub use tail::{
    bursts_of_every_size, no_tail_is_stranded_at_burst_32, no_tail_is_stranded_at_burst_256,
    no_tail_is_stranded_from_another_port, one_frame_waits_for_no_other,
};

/// Instantiates the suite: one `#[test]` per case, in a module of the given name.
///
/// ```ignore
/// fastlane_testing::conformance!(veth, VethRig);
/// ```
#[macro_export]
macro_rules! conformance {
    ($module:ident, $rig:ty) => {
        mod $module {
            #[allow(unused_imports, reason = "the rig may also be named by its path")]
            use super::*;

            $crate::conformance!(@cases $rig:
                every_frame_is_accounted_for
                mixed_verdicts_each_go_their_way
                statistics_are_read_from_memory
                no_tail_is_stranded_at_burst_32
                no_tail_is_stranded_at_burst_256
                no_tail_is_stranded_from_another_port
                bursts_of_every_size
                one_frame_waits_for_no_other
                peer_that_does_not_read
                few_frames_run_dry_and_recover
                runts_pass
                largest_frames_pass
                too_long_is_counted
                new_packets_leave_in_order
                copies_leave_beside_the_original
                kernel_gets_each_frame_once
                kernel_sends_through_the_port
                partial_checksums_are_completed
                queues_over_two_lanes
                close_and_reopen_at_once
                link_down_and_up
                peer_goes_away
            );
        }
    };
    (@cases $rig:ty: $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$case::<$rig>();
            }
        )*
    };
}
