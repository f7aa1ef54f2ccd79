//! The programs that run in a pod and on the host.

use std::fmt;
use std::net::Ipv4Addr;

use fastlane_tests::cluster::pod::Pods;
use fastlane_tests::upf::Session;
use fastlane_tests::upf::frames::{self, Stamp};
use serde_json::{Value, json};

use crate::rivals::eal::CPU;

/// MAC address of the interfaces of programs.
pub const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// MAC address of their far ends.
pub const FAR: &str = "02:00:00:00:00:02";
/// Destination of users' packets. It is on no link, so `next-hop` is the way to it.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Number of sessions of a UPF.
pub const SESSIONS: usize = 100;
/// Number of frames that are sent in turn.
const FRAMES: u64 = 1024;

/// Program that runs in a pod and on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// macswap with one port.
    Macswap,
    /// The UPF with N3 and N6: uplink packets of [`SESSIONS`] sessions.
    Upf,
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl Subject {
    /// Returns the name of the program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Macswap => "macswap",
            Self::Upf => "upf",
        }
    }

    /// Returns the numbers of the veth pairs of program number 1 or 2.
    #[must_use]
    pub fn pairs(self, number: usize) -> Vec<usize> {
        match self {
            Self::Macswap => vec![number],
            Self::Upf => vec![number, number + 2],
        }
    }

    /// Returns the pools of the agent: the interfaces of program number 1.
    #[must_use]
    pub fn pool(self) -> Value {
        let names = self.pairs(1).into_iter().map(|pair| (format!("near{pair}"), json!({})));
        let interfaces: serde_json::Map<String, Value> = names.collect();
        json!({self.resource(): {"interfaces": interfaces, "steer": []}})
    }

    const fn resource(self) -> &'static str {
        match self {
            Self::Macswap => "wire",
            Self::Upf => "upf",
        }
    }

    /// Returns the variables in a pod that name its interfaces.
    #[must_use]
    pub fn variables(self) -> Vec<String> {
        let pool = self.resource().to_uppercase();
        (0..self.pairs(1).len()).map(|index| format!("env:FASTLANE_{pool}_{index}")).collect()
    }

    /// Returns the configuration with these interfaces. A lane sleeps once all frames are
    /// forwarded, so it uses no CPU time until it is stopped.
    #[must_use]
    pub fn configuration(self, interfaces: &[String]) -> Value {
        // Linux has no part: in a pod it would be behind a TAP, on the host beside the lane.
        let port = |index: usize, steer: Value| {
            let driver = json!({"interface": interfaces.get(index), "mode": "native-copy"});
            json!({"driver": {"af-xdp": driver}, "steer": steer, "kernel": "none"})
        };
        let lanes = json!({"cpus": [CPU], "idle": "interrupt"});
        match self {
            Self::Macswap => json!({
                "lanes": lanes, "ports": {"wire": port(0, json!([]))},
            }),
            Self::Upf => json!({
                "lanes": lanes,
                "ports": {
                    "n3": port(0, json!([{"udp-port": 2152}])),
                    "n6": port(1, json!([{"destination": "10.45.0.0/16"}])),
                },
                "app": {
                    "node-id": "192.0.2.9", "n4": {"addresses": ["192.0.2.9"], "release-s": 0},
                    "gtp": {"probe-s": 0},
                    "interfaces": {
                        "n3": {"port": "n3", "role": "n3", "addresses": ["10.30.0.1"],
                               "next-hop": FAR},
                        "n6": {"port": "n6", "role": "n6", "network-instances": ["internet"],
                               "next-hop": FAR},
                    },
                    "pools": [{"network-instance": "internet", "prefix": "10.45.0.0/16"}],
                    "sessions": SESSIONS,
                },
            }),
        }
    }

    /// Returns a pod with the program.
    #[must_use]
    pub fn pod(self) -> Value {
        let mut pod = match self {
            Self::Macswap => Pods::macswap(self.name()),
            Self::Upf => Pods::upf(self.name()),
        };
        // No quota: nothing stops the lane for using its share of CPU time.
        pod["spec"]["containers"][0]["resources"] = json!({
            "limits": {format!("fastlane.dev/{}", self.resource()): self.pairs(1).len()},
        });
        pod
    }

    /// Returns the command line of the program in a pod with this address.
    #[must_use]
    pub fn command_line(self, address: &str) -> String {
        match self {
            Self::Macswap => "macswap /etc/macswap/macswap.json".to_owned(),
            Self::Upf => Pods::upf_command(address).join(" "),
        }
    }
}

/// Returns uplink packets of sessions.
#[must_use]
pub fn uplink(sessions: &[Session]) -> Vec<Vec<u8>> {
    // Equal lengths: the sequence number decides about them.
    let stamp = Stamp { session: 1, number: 0, version: 0 };
    let frames = (0..FRAMES as usize).zip(sessions.iter().cycle());
    frames.map(|(_, session)| frames::uplink(NEAR, session, SERVER, &stamp)).collect()
}
