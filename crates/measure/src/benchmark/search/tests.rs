use std::convert::Infallible;

use super::*;

/// Simulated device that drops frames beyond its capacity. Its generator has a maximum rate, and
/// pauses of the machine spoil some trials.
struct Simulated {
    capacity: u64,
    generator: u64,
    /// Numbers of the trials that lose a frame by a pause.
    spoilt: &'static [u64],
    trials: u64,
}

impl Simulated {
    fn trial(&mut self, rate: u64) -> Outcome {
        self.trials += 1;
        let due = if rate == 0 { self.generator } else { rate };
        let sent = due.min(self.generator);
        let spoilt = self.spoilt.contains(&self.trials);
        let received = sent.min(self.capacity) - u64::from(spoilt);
        Outcome {
            wanted_packets_per_second: rate,
            offered_packets_per_second: sent as f64,
            received_packets_per_second: received as f64,
            sent_packets: sent,
            received_packets: received,
            lost_packets: sent - received,
            late_packets: due - sent,
            ..Outcome::default()
        }
    }
}

fn searched(settings: &Throughput, mut device: Simulated) -> Search {
    let search: Result<_, Infallible> = search(settings, |rate| Ok(device.trial(rate)));
    let Ok(search) = search;
    search
}

fn device(capacity: u64, generator: u64) -> Simulated {
    Simulated { capacity, generator, spoilt: &[], trials: 0 }
}

fn found(search: &Search) -> u64 {
    search.found.as_ref().expect("a rate passes").sent_packets
}

#[test]
fn every_capacity_is_found_to_the_resolution_and_never_exceeded() {
    let settings = Throughput::default();
    for capacity in [1000, 1001, 2000, 54_321, 999_999, 1_000_000, 14_880_952] {
        let search = searched(&settings, device(capacity, 20_000_000));
        let found = found(&search);
        assert!(found <= capacity && found as f64 >= capacity as f64 * 0.99, "{capacity} {found}");
        assert_eq!(search.limited_by, Limit::Device);
        assert!(search.trials.len() <= 60, "{} trials", search.trials.len());
        let last_passed = search.found.as_ref().unwrap();
        assert_eq!(last_passed.lost_packets, 0);
    }
}

#[test]
fn a_generator_that_is_slower_than_the_device_is_named() {
    let search = searched(&Throughput::default(), device(10_000_000, 3_000_000));
    assert_eq!((found(&search), search.limited_by), (3_000_000, Limit::Generator));
    assert_eq!(search.trials.len(), 2, "most of three");
    let ceiling = Throughput { highest_packets_per_second: 2_000_000, ..Throughput::default() };
    let search = searched(&ceiling, device(10_000_000, 3_000_000));
    assert_eq!((found(&search), search.limited_by), (2_000_000, Limit::Highest));
    let ceiling = Throughput { highest_packets_per_second: 4_000_000, ..Throughput::default() };
    let search = searched(&ceiling, device(10_000_000, 3_000_000));
    assert_eq!(search.limited_by, Limit::Generator);
    assert!((2_970_000..=3_000_000).contains(&found(&search)));
}

/// Checks the search with a generator that sends only two thirds of the due frames at any rate.
#[test]
fn what_a_late_generator_did_send_counts() {
    let late = |rate: u64| {
        let due = if rate == 0 { 6_000_000 } else { rate };
        let sent = due * 2 / 3;
        let received = sent.min(1_000_000);
        Ok::<_, Infallible>(Outcome {
            offered_packets_per_second: sent as f64,
            received_packets_per_second: received as f64,
            sent_packets: sent,
            received_packets: received,
            lost_packets: sent - received,
            late_packets: due - sent,
            ..Outcome::default()
        })
    };
    let Ok(search) = search(&Throughput::default(), late);
    assert!((980_000..=1_000_000).contains(&found(&search)), "{:?}", search.found);
    assert_eq!(search.limited_by, Limit::Generator);
    assert_eq!(search.found.unwrap().lost_packets, 0);
}

#[test]
fn a_pause_now_and_then_is_forgiven_by_several_attempts() {
    let noisy = |attempts| {
        let settings = Throughput { attempts, ..Throughput::default() };
        let simulated = Simulated { spoilt: &[2, 3, 7], ..device(1_000_000, 5_000_000) };
        searched(&settings, simulated)
    };
    let forgiving = noisy(3);
    assert!((990_000..=1_000_000).contains(&found(&forgiving)));
    let strict = noisy(1);
    assert!(found(&strict) < 990_000, "one attempt takes a pause for the device");
}

#[test]
fn a_device_that_loses_always_has_no_throughput() {
    let search = searched(&Throughput::default(), device(10, 1_000_000));
    assert!(search.found.is_none());
    assert_eq!(search.limited_by, Limit::Device);
}

#[test]
fn acceptable_loss_raises_the_rate() {
    let settings = Throughput { acceptable_loss_ppm: 100_000.0, ..Throughput::default() };
    let search = searched(&settings, device(900_000, 5_000_000));
    let outcome = search.found.unwrap();
    assert!((990_000..=1_000_000).contains(&outcome.sent_packets), "{outcome:?}");
    assert!(outcome.loss_ppm() <= 100_000.0 && outcome.lost_packets > 0);
}

#[test]
fn the_first_error_ends_the_search() {
    let mut trials = 0;
    let search = search(&Throughput::default(), |_| {
        trials += 1;
        Err::<Outcome, _>("the device has ended")
    });
    assert_eq!((search.unwrap_err(), trials), ("the device has ended", 1));
}

#[test]
fn the_longest_burst_is_that_of_the_ring() {
    let longest = |ring: u64, most| {
        let burst: Result<_, Infallible> = longest_burst(most, |length| Ok(length <= ring));
        let Ok(burst) = burst;
        burst
    };
    for ring in [1, 2, 63, 2048, 100_000] {
        let found = longest(ring, 131_072).unwrap();
        assert!(found <= ring && found + (ring / 32).max(1) >= ring, "{ring} {found}");
    }
    assert_eq!(longest(0, 1024), None);
    assert_eq!(longest(5000, 1024), Some(1024));
}
