//! Where packets are that did not arrive: each is under one counter, of Linux or of the router.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Routed, counters};
use crate::Application;

/// How long what the kernel counts may take to be shown.
const SETTLES: Duration = Duration::from_secs(5);

/// Lost between the wire and the application.
const BEFORE: [&str; 4] =
    ["drop_device_full", "drop_device_invalid", "drop_no_frame", "drop_receive_length"];
/// Lost between two lanes.
const BETWEEN: [&str; 3] = ["drop_pass_full", "drop_park", "drop_bad_verdict"];
/// To be forwarded, and not handed over.
const OUT: [&str; 5] = [
    "drop_transmit_full",
    "drop_transmit_error",
    "drop_transmit_length",
    "drop_copy_no_frame",
    "drop_no_port",
];
/// To Linux, which did not get it.
const TO_LINUX: [&str; 3] = ["drop_kernel_budget", "drop_kernel_full", "drop_no_kernel_peer"];
/// What Linux counts of packets that it got and does not forward (`/proc/net/snmp`).
const LINUX: [&str; 5] =
    ["InHdrErrors", "InAddrErrors", "InDiscards", "OutDiscards", "OutNoRoutes"];

/// The counters on the way of packets, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// Those of now. What the kernel counts may be a little older.
    ///
    /// # Panics
    /// When a program fails that shows them.
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
            counts.add(name, value.parse().unwrap_or(0)); // one of them, not ours, may be -1
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

    /// From each counter on the way to the next: on both sides the same.
    fn equations(&self, sent: u64, arrived: u64) -> [(&'static str, u64, u64); 7] {
        let received = self.get("received_packets");
        let forwarded = self.get("forwarded");
        let by_linux = self.get("ForwDatagrams");
        [
            ("taken by Linux, on the wire", sent, self.get("near_sent")),
            ("on the wire, received", sent, received + self.sum(&BEFORE)),
            ("received, judged", received, self.get("causes") + self.sum(&BETWEEN)),
            ("forwarded, sent", forwarded, self.get("sent_packets") + self.sum(&OUT)),
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

    /// Every packet that was sent since `self` has arrived, or one counter has it. `sent` is what
    /// Linux took to be sent; nothing else may be on the wires. How many were lost, by name.
    ///
    /// # Panics
    /// When a packet is gone without a trace, or was made up.
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
                let all = [&BEFORE[..], &BETWEEN, &OUT, &TO_LINUX, &LINUX].concat();
                let names = all.into_iter().chain(["router_wire_dropped", "drop_acl"]);
                let lost = names.map(|name| (name.to_owned(), rose.get(name)));
                return lost.filter(|(_, count)| *count > 0).collect();
            };
            let said = format!("{sent} sent, {arrived} arrived; {what}: {before}, {after}");
            assert!(Instant::now() < end, "{said}\n{:#?}", rose.0);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
