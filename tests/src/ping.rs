//! Pings: ICMP echo requests by ping(8).

use crate::Host;

impl Host {
    /// Sends one ping. Returns true if it has a response within a second. The words are the address
    /// and further options.
    #[must_use]
    pub fn ping(&self, words: &[&str]) -> bool {
        let ping = ["ping", "-q", "-c", "1", "-W", "1"];
        self.attempt(&[&ping[..], words].concat()).status.success()
    }

    /// Sends pings, 50 a second, and asserts that each has one response.
    ///
    /// It gives ping a deadline. Without one, ping waits after its last request for one interval or
    /// two round trips, whichever is longer, if it has had any response; `-W` counts only if it has
    /// had none (iputils, `ping_common.c`, `__schedule_exit`). A machine that is busy for 20 ms
    /// would seem to lose the last one. With a deadline it sends more instead, until it has as many
    /// responses: to the first ones and perhaps to some behind them.
    ///
    /// # Panics
    /// When one has no response, or two, or one comes too late.
    #[track_caller]
    pub fn assert_pings(&self, count: u32, words: &[&str]) {
        let number = count.to_string();
        let ping = ["ping", "-i", "0.02", "-w", "60", "-c", &number];
        let output = self.attempt(&[&ping[..], words].concat());
        assert_responses(count, &String::from_utf8_lossy(&output.stdout));
    }
}

/// Asserts that a ping with a deadline has had a response to each of its first requests, `count` at
/// least, and none twice.
///
/// # Panics
/// When one is missing, or is there twice.
#[track_caller]
pub fn assert_responses(count: u32, output: &str) {
    let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok();
    let responses = output.lines().filter(|line| line.contains(" bytes from "));
    let mut numbers: Vec<u32> = responses.filter_map(number).collect();
    numbers.sort_unstable();
    let first: Vec<u32> = (1..=count.max(numbers.len() as u32)).collect();
    assert_eq!(numbers, first, "of {count} pings at least: {output}");
}

#[cfg(test)]
mod tests {
    use super::assert_responses;

    /// Returns what ping prints for these responses, after a request that a router has refused.
    fn output(numbers: &[u32]) -> String {
        let refused = "From 10.77.0.1 icmp_seq=1 Destination Host Unreachable\n".to_owned();
        let line =
            |number| format!("64 bytes from 10.77.0.2: icmp_seq={number} ttl=64 time=1 ms\n");
        refused + &numbers.iter().map(line).collect::<String>()
    }

    #[test]
    fn responses_behind_the_last_one_wanted_are_no_fault() {
        assert_responses(2, &output(&[2, 1, 3]));
    }

    #[test]
    #[should_panic(expected = "of 2 pings at least")]
    fn a_lost_one_is_found_though_another_has_come_for_it() {
        assert_responses(2, &output(&[1, 3]));
    }

    #[test]
    #[should_panic(expected = "of 2 pings at least")]
    fn a_response_that_comes_twice_is_found() {
        assert_responses(2, &output(&[1, 2, 2]));
    }

    #[test]
    #[should_panic(expected = "of 2 pings at least")]
    fn an_end_without_all_is_found() {
        assert_responses(2, &output(&[1]));
    }
}
