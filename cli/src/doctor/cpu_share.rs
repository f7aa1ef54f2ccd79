//! CPU time that this process's control group has, and warnings: a quota that stops lanes, CPUs
//! that other containers use too, CPUs far from a device.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::machine::{cpu_list, numbers};

/// Variable that every container of a pod has.
const IN_A_POD: &str = "KUBERNETES_SERVICE_HOST";
/// Directory in containers with the metadata of their devices (KEP-5304).
const METADATA: &str = "var/run/kubernetes.io/dra-device-attributes";
/// Shares of a whole CPU (kubelet: MilliCPUToShares).
const SHARES: u64 = 1024;

/// CPU time of a control group.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CpuShare {
    /// CPU time of each period, in CPUs; null if it is not limited.
    quota: Option<f64>,
    /// Number of periods in which the quota was used up.
    throttled_periods: u64,
    /// Time for which threads were stopped because of that, in seconds.
    throttled_seconds: f64,
    /// Share beside other control groups.
    #[serde(skip)]
    weight: Option<Weight>,
}

/// Share beside other control groups.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Weight {
    /// Shares of version 1 (`cpu.shares`).
    Shares(u64),
    /// Weight of version 2 (`cpu.weight`).
    Weight(u64),
}

impl Weight {
    /// Returns true if a container that requests `cpus` whole CPUs has this share. Container
    /// runtimes translate shares into weights by one of two formulas (runc 1.3.2 by the second).
    fn is_of(self, cpus: usize) -> bool {
        let shares = SHARES * cpus as u64;
        match self {
            Self::Shares(own) => own == shares,
            Self::Weight(own) => {
                let linear = 1 + (shares.max(2) - 2) * 9999 / 262_142;
                let log = (shares.max(2) as f64).log2();
                let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
                own == linear || own == 10_f64.powf(exponent).ceil() as u64
            }
        }
    }
}

impl CpuShare {
    /// Reads that of this process, below the root of a file system. What cannot be read counts as
    /// absent.
    pub(super) fn look(root: &Path) -> Self {
        let read = |file: &Path| std::fs::read_to_string(file).unwrap_or_default();
        let groups = read(&root.join("proc/self/cgroup"));
        let mut lines = groups.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
        let base = root.join("sys/fs/cgroup");
        let of_cpu = |line: &Vec<&str>| line.len() == 3 && line[1].split(',').any(|it| it == "cpu");
        let (folder, path) = match lines.clone().find(of_cpu) {
            Some(line) => (base.join(line[1]), line[2]),
            None => (base, lines.find(|line| line[0] == "0").map_or("/", |line| line[2])),
        };
        // A container sees the path on its node, or only its own group.
        let own = folder.join(path.trim_start_matches('/'));
        let group = if own.join("cpu.stat").exists() { own } else { folder };
        let value = |file: &str| read(&group.join(file));
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let stat = value("cpu.stat");
        let counter = |name: &str| {
            let words = stat.lines().filter_map(|line| line.split_once(' '));
            let mut values = words.filter(|(key, _)| *key == name);
            values.next().and_then(|(_, value)| number(value))
        };
        let nanoseconds =
            counter("throttled_time").or_else(|| Some(counter("throttled_usec")? * 1000.0));
        let limit = value("cpu.max");
        let two = limit.split_once(' ').map(|(quota, period)| (number(quota), number(period)));
        let (quota, period) = two.unwrap_or_else(|| {
            (number(&value("cpu.cfs_quota_us")), number(&value("cpu.cfs_period_us")))
        });
        let quota = quota.zip(period).filter(|(quota, period)| *quota > 0.0 && *period > 0.0);
        let count = |file: &str| value(file).trim().parse().ok();
        Self {
            quota: quota.map(|(quota, period)| quota / period),
            throttled_periods: counter("nr_throttled").unwrap_or(0.0) as u64,
            throttled_seconds: nanoseconds.unwrap_or(0.0) / 1e9,
            weight: count("cpu.shares")
                .map(Weight::Shares)
                .or_else(|| count("cpu.weight").map(Weight::Weight)),
        }
    }

    /// Returns warnings for lanes on these CPUs.
    pub(super) fn warnings(&self, root: &Path, allowed: &[usize]) -> Vec<String> {
        let in_a_pod = std::env::var_os(IN_A_POD).is_some();
        let shared = in_a_pod.then(|| self.shared(root, allowed)).flatten();
        let far = devices(root).into_iter().filter_map(|device| device.far_from(root, allowed));
        self.throttled().into_iter().chain(shared).chain(far).collect()
    }

    fn throttled(&self) -> Option<String> {
        let Self { quota, throttled_periods: periods, throttled_seconds: seconds, .. } = self;
        let quota = (*quota)?;
        (*periods > 0).then(|| {
            format!(
                "the CPU limit of {quota} has stopped this container in {periods} periods, for \
                 {seconds:.1} s in all: its lanes lose packets meanwhile; raise the limit, or own \
                 whole CPUs (equal requests and limits, kubelet's static CPU manager)"
            )
        })
    }

    /// Returns a warning unless these CPUs are a container's own: as many as it requests, and not
    /// all of the node.
    fn shared(&self, root: &Path, allowed: &[usize]) -> Option<String> {
        let online = std::fs::read_to_string(root.join("sys/devices/system/cpu/online"));
        let is_part = allowed.len() < cpu_list(&online.unwrap_or_default()).len();
        let is_owned = is_part && self.weight.is_some_and(|weight| weight.is_of(allowed.len()));
        (!is_owned).then(|| {
            format!(
                "CPUs {} are not this container's own: other pods stop its lanes; request and \
                 limit the same number of whole CPUs, with kubelet's static CPU manager",
                numbers(allowed)
            )
        })
    }
}

/// A device and its NUMA node.
#[derive(Debug, PartialEq)]
struct Device {
    name: String,
    node: u32,
}

impl Device {
    /// Returns a warning if one of these CPUs is on another node.
    fn far_from(&self, root: &Path, allowed: &[usize]) -> Option<String> {
        let Self { name, node } = self;
        let path = format!("sys/devices/system/node/node{node}/cpulist");
        let near = cpu_list(&std::fs::read_to_string(root.join(path)).ok()?);
        let far: Vec<usize> = allowed.iter().copied().filter(|cpu| !near.contains(cpu)).collect();
        (!far.is_empty()).then(|| {
            format!(
                "{name} is at NUMA node {node} (CPUs {}), CPUs {} are not: packets cross over; \
                 choose lanes.cpus, or the device by its attribute numaNode",
                numbers(&near),
                numbers(&far)
            )
        })
    }
}

/// Returns the devices whose NUMA node is known: interfaces of this network namespace, and those of
/// the container's claims.
fn devices(root: &Path) -> Vec<Device> {
    let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let interfaces = entries(root.join("sys/class/net")).filter_map(|entry| {
        let node = std::fs::read_to_string(entry.path().join("device/numa_node")).ok()?;
        // -1 if it is unknown.
        Some(Device {
            name: entry.file_name().into_string().ok()?,
            node: node.trim().parse().ok()?,
        })
    });
    let below = |folder: std::fs::DirEntry| entries(folder.path());
    let files = entries(root.join(METADATA)).flat_map(below).flat_map(below).flat_map(below);
    let claimed = files.flat_map(|file| {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let metadata: Value = serde_json::from_str(&text).unwrap_or_default();
        claimed(&metadata)
    });
    let mut devices: Vec<Device> = interfaces.chain(claimed).collect();
    devices.sort_by(|one, other| one.name.cmp(&other.name));
    devices
}

/// Returns the devices in the metadata of a claim.
fn claimed(metadata: &Value) -> Vec<Device> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let devices = list(metadata, "requests").into_iter().flat_map(|it| list(&it, "devices"));
    let known = devices.filter_map(|device| {
        let attributes = &device["attributes"];
        let node = attributes["numaNode"]["int"].as_u64()?.try_into().ok()?;
        Some(Device { name: attributes["interface"]["string"].as_str()?.to_owned(), node })
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Creates files below a new root.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn quotas_of_both_versions_of_control_groups_are_read() {
        let first = root(&[
            ("proc/self/cgroup", "3:memory:/x\n2:cpu,cpuacct:/pods/a\n0::/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 9\nnr_throttled 7\n"),
            (
                "sys/fs/cgroup/cpu,cpuacct/pods/a/cpu.stat",
                "nr_throttled 3\nthrottled_time 2500000000",
            ),
            ("sys/fs/cgroup/cpu,cpuacct/pods/a/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/pods/a/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/pods/a/cpu.shares", "2048\n"),
        ]);
        // A control group namespace: the path is not that of the mount.
        let second = root(&[
            ("proc/self/cgroup", "0::/../a\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 1\nnr_throttled 3\nthrottled_usec 2500000\n"),
            ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/cpu.weight", "79\n"),
        ]);
        for (root, weight) in [(&first, Weight::Shares(2048)), (&second, Weight::Weight(79))] {
            let expected = CpuShare {
                quota: Some(1.5),
                throttled_periods: 3,
                throttled_seconds: 2.5,
                weight: Some(weight),
            };
            let share = CpuShare::look(root.path());
            assert_eq!(share, expected);
            let warning = share.throttled().unwrap();
            assert!(warning.contains("limit of 1.5") && warning.contains("3 periods"), "{warning}");
        }
        let none = root(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cpu.stat", "nr_throttled 3\n"),
            ("sys/fs/cgroup/cpu.max", "max 100000\n"),
        ]);
        let share = CpuShare::look(none.path());
        assert_eq!((share.quota, share.throttled()), (None, None));
        assert_eq!(CpuShare::look(Path::new("/nowhere")), CpuShare::default());
    }

    #[test]
    fn cpus_are_owned_if_they_are_as_many_as_requested_and_not_all() {
        let root = root(&[("sys/devices/system/cpu/online", "0-7\n")]);
        let with = |weight| CpuShare { weight: Some(weight), ..CpuShare::default() };
        for (weight, allowed, is_owned) in [
            (Weight::Shares(2048), &[2, 3][..], true),
            (Weight::Shares(2048), &[0, 1, 2, 3, 4, 5, 6, 7], false),
            (Weight::Shares(8192), &[0, 1, 2, 3, 4, 5, 6, 7], false),
            (Weight::Shares(102), &[2, 3], false),
            (Weight::Weight(79), &[2, 3], true),
            (Weight::Weight(174), &[2, 3], true),
            (Weight::Weight(100), &[2, 3], false),
        ] {
            let warning = with(weight).shared(root.path(), allowed);
            assert_eq!(warning.is_none(), is_owned, "{weight:?} {allowed:?}: {warning:?}");
        }
    }

    #[test]
    fn devices_of_another_numa_node_are_named() {
        let metadata = json!({"requests": [{"devices": [{"attributes": {
            "interface": {"string": "eth1"}, "numaNode": {"int": 1},
        }}]}]});
        let root = root(&[
            ("sys/class/net/eth0/device/numa_node", "0\n"),
            ("sys/class/net/eth9/device/numa_node", "-1\n"),
            (
                &format!("{METADATA}/resourceclaims/nic/q/fastlane.dev-metadata.json"),
                &metadata.to_string(),
            ),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7\n"),
        ]);
        let found = devices(root.path());
        let device = |name: &str, node| Device { name: name.to_owned(), node };
        assert_eq!(found, [device("eth0", 0), device("eth1", 1)]);
        assert_eq!(found[0].far_from(root.path(), &[0, 1]), None);
        let warning = found[1].far_from(root.path(), &[3, 4]).unwrap();
        assert!(warning.starts_with("eth1 is at NUMA node 1 (CPUs 4, 5, 6, 7), CPUs 3 are not"));
    }
}
