//! (not yet)
use std::time::Duration;
use fastlane_bench::slices::Effort;
use fastlane_bench::statistics::{Estimate, median};

fn main() {
    let effort = Effort { pairs: 5, slice: Duration::from_millis(200) };
    let results = fastlane_bench::memory::compare(effort, &[32, 8, 1], |n| eprintln!("{n}")).unwrap();
    for pairs in &results {
        println!("{:.2} {:.2} {:?}", median(&pairs.ours), median(&pairs.rival), Estimate::of_difference(&pairs.ours, &pairs.rival));
    }
}
