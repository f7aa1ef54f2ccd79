//! (not yet)
use fastlane_bench::echo::{Match, compare};
use fastlane_bench::slices::Effort;
use fastlane_bench::statistics::{Estimate, median};
use std::time::Duration;

fn main() {
    let effort = Effort { pairs: 5, slice: Duration::from_millis(200) };
    if std::env::args().nth(1).is_none() {
        let results =
            fastlane_bench::memory::compare(effort, &[32, 8, 1], |n| eprintln!("{n}")).unwrap();
        for pairs in &results {
            println!(
                "{:.2} {:.2} {:?}",
                median(&pairs.ours),
                median(&pairs.rival),
                Estimate::of_difference(&pairs.ours, &pairs.rival)
            );
        }
    } else {
        fastlane_bench::veth::in_namespace(|| {
            for which in [Match::Control, Match::AgainstRings, Match::AgainstAfPacket] {
                for length in [60, 1500] {
                    let pairs = compare(which, length, effort, |_| {})?;
                    println!(
                        "{which:?} {length}: {:.0} {:.0} {:?}",
                        median(&pairs.ours),
                        median(&pairs.rival),
                        Estimate::of_ratio(&pairs.ours, &pairs.rival)
                    );
                }
            }
            Ok(())
        })
        .unwrap();
    }
}
