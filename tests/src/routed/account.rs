//! Accounting of packets: each packet that does not arrive is under one counter, of Linux or of the
//! router.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Routed, counters};
use crate::Application;

/// Maximum delay of the kernel's counters.
const SETTLES: Duration = Duration::from_secs(5);

/// Counters of drops before the application.
const BEFORE_APPLICATION: [&str; 4] =
    ["drop_device_full", "drop_device_invalid", "drop_no_frame", "drop_receive_length"];
/// Counters of drops between lanes.
const BETWEEN_LANES: [&str; 3] = ["drop_pass_full", "drop_park", "drop_bad_verdict"];
/// Counters of drops at transmission.
const TRANSMIT: [&str; 5] = [
    "drop_transmit_full",
    "drop_transmit_error",
    "drop_transmit_length",
    "drop_copy_no_frame",
    "drop_no_port",
];
/// Counters of drops on the path into Linux.
const TO_LINUX: [&str; 3] = ["drop_kernel_budget", "drop_kernel_full", "drop_no_kernel_peer"];
/// Linux's counters of packets that it does not forward (`/proc/net/snmp`).
const LINUX: [&str; 5] =
    ["InHdrErrors", "InAddrErrors", "InDiscards", "OutDiscards", "OutNoRoutes"];

/// Counters along the path of a packet, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// Reads all counters. Those of the kernel may be slightly older.
    ///
    /// # Panics
    /// When a program that prints them fails.
    #[track_caller]
    #[must_use]
    pub fn of(routed: &Routed, router: &Application) -> Self {
        let mut counts = Self::default();
        let ports = router.totals().0["ports"].as_array().expect("a list of ports").clone();
        for port in &ports {
            for (name, value) in port["counters"].as_object().expect("counters by name") {
                counts.add(name, value.as_u64().expect("a number"));
            }
        }
        for (name, [packets, _]) in counters(router, &[]) {
            counts.add("causes", packets);
            counts.add(if name.starts_with("linux_") { "linux" } else { &name }, packets);
        }
        let wires = [
            ("near_sent", &routed.lab.right, &["wire0"][..], ["tx", "packets"]),
            ("router_wire_dropped", routed.router(), &["wire1", "wire2"], ["tx", "dropped"]),
            ("far_received", &routed.far, &["wire1", "wire2"], ["rx", "packets"]),
        ];
        for (name, host, interfaces, [side, key]) in wires {
            for interface in interfaces {
                let value = host.statistics(interface)[side][key].as_u64();
                counts.add(name, value.expect("a counter of ip"));
            }
        }
        let text = routed.router().run(&["cat", "/proc/net/snmp"]);
        let mut lines = text.lines().filter(|line| line.starts_with("Ip: "));
        let mut words = || lines.next().expect("two lines").split(' ').skip(1);
        for (name, value) in words().zip(words()) {
            counts.add(name, value.parse().unwrap_or(0)); // DefaultTTL may be -1
        }
        counts
    }

    fn add(&mut self, name: &str, value: u64) {
        *self.0.entry(name.to_owned()).or_default() += value;
    }

    fn since(&self, before: &Self) -> Self {
        let of = |name: &String| before.0.get(name).copied().unwrap_or(0);
        let rose = self.0.iter().map(|(name, value)| (name.clone(), value.wrapping_sub(of(name))));
        Self(rose.filter(|(_, value)| *value > 0).collect())
    }

    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    fn sum(&self, names: &[&str]) -> u64 {
        names.iter().map(|name| self.get(name)).sum()
    }

    /// Returns the pairs of sums along the path that must be equal.
    fn equations(&self, sent: u64, arrived: u64) -> [(&'static str, u64, u64); 7] {
        let received = self.get("received_packets");
        let forwarded = self.get("forwarded");
        let by_linux = self.get("ForwDatagrams");
        [
            ("taken by Linux, on the wire", sent, self.get("near_sent")),
            ("on the wire, received", sent, received + self.sum(&BEFORE_APPLICATION)),
            ("received, judged", received, self.get("causes") + self.sum(&BETWEEN_LANES)),
            ("forwarded, sent", forwarded, self.get("sent_packets") + self.sum(&TRANSMIT)),
            (
                "left to Linux, forwarded by it",
                self.get("linux"),
                by_linux + self.sum(&TO_LINUX) + self.sum(&LINUX),
            ),
            (
                "sent, on the far wire",
                self.get("sent_packets") + by_linux,
                self.get("far_received") + self.get("router_wire_dropped"),
            ),
            ("on the far wire, arrived", self.get("far_received"), arrived),
        ]
    }

    /// Asserts that every packet sent since `self` has arrived or is under one counter. Returns the
    /// losses by name. `sent` is the number of packets that Linux has accepted; the links carry
    /// nothing else.
    ///
    /// # Panics
    /// When a packet has vanished or appeared uncounted.
    #[track_caller]
    pub fn account(
        &self,
        routed: &Routed,
        router: &Application,
        sent: u64,
        arrived: u64,
    ) -> BTreeMap<String, u64> {
        let end = Instant::now() + SETTLES;
        loop {
            let rose = Self::of(routed, router).since(self);
            let wrong = rose.equations(sent, arrived).into_iter().find(|(_, a, b)| a != b);
            let Some((what, before, after)) = wrong else {
                let all = [&BEFORE_APPLICATION[..], &BETWEEN_LANES, &TRANSMIT, &TO_LINUX, &LINUX]
                    .concat();
                let names = all.into_iter().chain(["router_wire_dropped", "drop_acl"]);
                let lost = names.map(|name| (name.to_owned(), rose.get(name)));
                return lost.filter(|(_, count)| *count > 0).collect();
            };
            let text = format!("{sent} sent, {arrived} arrived; {what}: {before}, {after}");
            assert!(Instant::now() < end, "{text}\n{:#?}", rose.0);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
