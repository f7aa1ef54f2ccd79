//! Counters of a running application from `fastlane top`.

use serde_json::Value;

/// Output of `fastlane top NAME --once --json`.
#[derive(Clone, Debug)]
pub struct Totals(pub Value);

impl Totals {
    /// Returns a counter of a port, summed over all lanes and the main thread.
    ///
    /// # Panics
    /// When there is no such counter or port.
    #[track_caller]
    #[must_use]
    pub fn port(&self, port: &str, counter: &str) -> u64 {
        let all = self.0["ports"].as_array().expect("a list of ports").iter();
        let counts: Vec<u64> = all
            .filter(|entry| entry["port"] == port)
            .map(|entry| entry["counters"][counter].as_u64())
            .collect::<Option<_>>()
            .unwrap_or_else(|| panic!("no counter {counter} in {}", self.0));
        assert!(!counts.is_empty(), "no port {port} in {}", self.0);
        counts.iter().sum()
    }

    /// Returns a counter of the port `wire`.
    #[track_caller]
    #[must_use]
    pub fn wire(&self, counter: &str) -> u64 {
        self.port("wire", counter)
    }

    /// Returns a counter of a lane.
    ///
    /// # Panics
    /// When there is no such counter or lane.
    #[track_caller]
    #[must_use]
    pub fn lane(&self, lane: usize, counter: &str) -> u64 {
        let value = self.0["lanes"][lane]["counters"][counter].as_u64();
        value.unwrap_or_else(|| panic!("no counter {counter} of lane {lane} in {}", self.0))
    }

    /// Returns the drop counters of a port that are not zero.
    ///
    /// # Panics
    /// When the output has another form.
    #[track_caller]
    #[must_use]
    pub fn drops(&self, port: &str) -> Vec<(String, u64)> {
        let first = self.0["ports"][0]["counters"].as_object().expect("counters by name");
        let names = first.keys().filter(|name| name.starts_with("drop_"));
        let drops = names.map(|name| (name.clone(), self.port(port, name)));
        drops.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the mode of a port's mechanism.
    ///
    /// # Panics
    /// When there is no such port.
    #[track_caller]
    #[must_use]
    pub fn mode(&self, port: &str) -> String {
        let ports = self.0["application"]["ports"].as_array().expect("a list of ports");
        let facts = ports.iter().find(|facts| facts["name"] == port).expect("the port");
        facts["mode"].as_str().expect("a word").to_owned()
    }
}
