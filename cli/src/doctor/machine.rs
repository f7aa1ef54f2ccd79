//! Properties of the machine besides its interfaces: kernel, privileges, memory, CPUs.

use std::fmt;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, CpuSet};
use serde::Serialize;

use super::{fact, size};

/// Oldest supported kernel version.
const OLDEST_KERNEL: [u32; 2] = [6, 1];
/// Kernel version from which AF_XDP has frames longer than a page (XDP_USE_SG).
const LONG_FRAMES: [u32; 2] = [6, 6];

/// Memory that a lane locks with AF_XDP by default, in bytes: 8192 frames of 2048 bytes.
const DEFAULT_POOL: u64 = 8192 * 2048;

/// Properties of the machine as seen by this process.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Machine {
    pub(super) kernel: Kernel,
    pub(super) capabilities: Vec<Capability>,
    /// True if the capabilities apply to the whole machine. In another user namespace a process can
    /// have them all and still be refused to load programs or lock memory.
    pub(super) initial_user_namespace: bool,
    /// Memory that this process may lock, in bytes (`ulimit -l`); null if it is not limited.
    pub(super) locked_memory: Option<u64>,
    pub(super) hugepages: Vec<Hugepages>,
    pub(super) dpdk: Dpdk,
    pub(super) cpus: Cpus,
}

/// Installation of DPDK.
#[derive(Debug, Serialize)]
pub(super) struct Dpdk {
    /// Version reported by DPDK; null if it cannot be used.
    pub(super) version: Option<String>,
    /// Reason that it cannot be used, and the remedy.
    pub(super) missing: Option<String>,
}

impl Dpdk {
    fn look() -> Self {
        match fastlane::installed_dpdk() {
            Ok(version) => Self { version: Some(version), missing: None },
            Err(error) => Self { version: None, missing: Some(error.to_string()) },
        }
    }
}

/// Version of the kernel.
#[derive(Debug, Serialize)]
pub(super) struct Kernel {
    pub(super) release: String,
    /// True if the version is supported.
    pub(super) supported: bool,
    /// True if AF_XDP has frames longer than a page (XDP_USE_SG).
    #[serde(skip)]
    pub(super) has_long_frames: bool,
}

impl Kernel {
    fn new(release: String) -> Self {
        let supported = is_at_least(&release, OLDEST_KERNEL);
        let has_long_frames = is_at_least(&release, LONG_FRAMES);
        Self { release, supported, has_long_frames }
    }
}

/// Capability (capabilities(7)) and its purpose.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Capability {
    pub(super) name: &'static str,
    /// True if this process has it.
    pub(super) effective: bool,
    pub(super) needed_for: &'static str,
}

/// Huge pages of one size.
#[derive(Debug, Serialize)]
pub(super) struct Hugepages {
    /// Size of a page in bytes.
    pub(super) size: u64,
    pub(super) total: u64,
    pub(super) free: u64,
}

/// CPU numbers.
#[derive(Debug, Serialize)]
pub(super) struct Cpus {
    /// CPUs that this process may run on.
    pub(super) allowed: Vec<usize>,
    /// CPUs isolated from the scheduler (`isolcpus=`), which suit busy lanes best.
    pub(super) isolated: Vec<usize>,
}

const CAPABILITIES: [(&str, CapabilitySet, &str); 6] = [
    (
        "CAP_NET_ADMIN",
        CapabilitySet::NET_ADMIN,
        "af-xdp (attaching its program), tap, the way back into Linux",
    ),
    ("CAP_NET_RAW", CapabilitySet::NET_RAW, "af-xdp and af-packet (their sockets)"),
    ("CAP_BPF", CapabilitySet::BPF, "af-xdp and af-packet (loading the steering programs)"),
    ("CAP_PERFMON", CapabilitySet::PERFMON, "af-xdp and af-packet (their pointers into packets)"),
    (
        "CAP_IPC_LOCK",
        CapabilitySet::IPC_LOCK,
        "af-xdp (locking its frames beyond the limit of locked memory)",
    ),
    ("CAP_SYS_NICE", CapabilitySet::SYS_NICE, "real-time priority for lanes that share a CPU"),
];

impl Machine {
    /// Examines the machine. Unreadable properties count as absent.
    pub(super) fn look() -> Self {
        let effective = rustix::thread::capabilities(None).map(|sets| sets.effective);
        let effective = effective.unwrap_or(CapabilitySet::empty());
        let capabilities = CAPABILITIES.map(|(name, flag, needed_for)| Capability {
            name,
            effective: effective.contains(flag),
            needed_for,
        });
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease").trim().to_owned();
        Self {
            kernel: Kernel::new(release),
            capabilities: capabilities.into(),
            initial_user_namespace: is_identity(&read("/proc/self/uid_map")),
            locked_memory: getrlimit(Resource::Memlock).current,
            hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")),
            dpdk: Dpdk::look(),
            cpus: Cpus {
                allowed: allowed_cpus(),
                isolated: cpu_list(&read("/sys/devices/system/cpu/isolated")),
            },
        }
    }

    /// Returns the problems that prevent any start.
    pub(super) fn problems(&self) -> Option<String> {
        let [major, minor] = OLDEST_KERNEL;
        (!self.kernel.supported).then(|| {
            let release = &self.kernel.release;
            format!("Linux {release} is too old; install Linux {major}.{minor} or later")
        })
    }

    /// Returns the named capabilities that this process lacks.
    pub(super) fn lacks<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        let has = |name| {
            let known = |capability: &Capability| capability.name == name && capability.effective;
            self.capabilities.iter().any(known)
        };
        names.iter().copied().filter(|name| !has(*name)).collect()
    }

    /// Returns true if a lane of the default size can lock its frames.
    pub(super) fn can_lock_a_pool(&self) -> bool {
        let privileged = self.initial_user_namespace && self.lacks(&["CAP_IPC_LOCK"]).is_empty();
        privileged || self.locked_memory.is_none_or(|limit| limit >= DEFAULT_POOL)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "this machine, as this process sees it")?;
        let verdict = if self.kernel.supported { "new enough" } else { "too old" };
        fact(formatter, "kernel", &format!("{}: {verdict}", self.kernel.release))?;
        let capabilities = self.capabilities.iter().map(|capability| {
            let Capability { name, effective, needed_for } = capability;
            format!("{name:<13} {:<3}  for {needed_for}", if *effective { "yes" } else { "NO" })
        });
        fact(formatter, "capabilities", &capabilities.collect::<Vec<_>>().join("\n"))?;
        if !self.initial_user_namespace {
            let text = "a user namespace of its own: capabilities do not reach the whole machine";
            fact(formatter, "namespace", text)?;
        }
        let limit = self.locked_memory.map_or_else(|| "not limited".to_owned(), size);
        let enough = if self.can_lock_a_pool() { "enough" } else { "NOT enough" };
        let pool = size(DEFAULT_POOL);
        let text =
            format!("{limit}: {enough} for the frames of an af-xdp lane ({pool} by default)");
        fact(formatter, "locked memory", &text)?;
        let pages = self.hugepages.iter().map(|pages| {
            format!("{} of {} free, {} each", pages.free, pages.total, size(pages.size))
        });
        let pages = pages.collect::<Vec<_>>().join("\n");
        fact(formatter, "huge pages", if pages.is_empty() { "none" } else { &pages })?;
        let dpdk = self.dpdk.version.as_ref().or(self.dpdk.missing.as_ref());
        fact(formatter, "DPDK", dpdk.map_or("", |text| text.trim_start_matches("DPDK ")))?;
        let isolated = match &self.cpus.isolated[..] {
            [] => "none isolated".to_owned(),
            cpus => format!("isolated: {}", numbers(cpus)),
        };
        fact(formatter, "CPUs", &format!("{}; {isolated}", numbers(&self.cpus.allowed)))
    }
}

pub(super) fn numbers(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns true if a release such as `6.1.0-13-amd64` is of this version or a later one.
fn is_at_least(release: &str, version: [u32; 2]) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => [major, minor] >= version,
        _ => false,
    }
}

/// Returns true if a UID map is the identity, as in the initial user namespace
/// (user_namespaces(7)).
fn is_identity(uid_map: &str) -> bool {
    let map: Vec<&str> = uid_map.split_ascii_whitespace().collect();
    map == ["0", "0", "4294967295"]
}

fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![] };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Parses a list such as `0,2-4`. Malformed items are ignored.
pub(super) fn cpu_list(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse::<usize>().ok()?);
        Some(first..=last.min(CpuSet::MAX_CPU))
    });
    ranges.flatten().collect()
}

fn hugepages(directory: &Path) -> Vec<Hugepages> {
    let Ok(entries) = std::fs::read_dir(directory) else { return vec![] };
    let pages = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count = |file: &str| -> Option<u64> {
            std::fs::read_to_string(entry.path().join(file)).ok()?.trim().parse().ok()
        };
        let (total, free) = (count("nr_hugepages")?, count("free_hugepages")?);
        Some(Hugepages { size: kilobytes.checked_mul(1024)?, total, free })
    });
    let mut pages: Vec<_> = pages.collect();
    pages.sort_by_key(|pages| pages.size);
    pages
}

#[cfg(test)]
impl Machine {
    /// Returns a machine with all capabilities.
    pub(super) fn capable() -> Self {
        let mut machine = Self::look();
        machine.capabilities.iter_mut().for_each(|capability| capability.effective = true);
        (machine.initial_user_namespace, machine.locked_memory) = (true, None);
        machine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        for release in ["6.1.0-13-amd64", "6.18.44", "10.0", "6.1"] {
            assert!(is_at_least(release, [6, 1]), "{release}");
        }
        for release in ["5.15.0", "6.0.19", "4.18.0-553.el8", "", "x.y"] {
            assert!(!is_at_least(release, [6, 1]), "{release}");
        }
    }

    #[test]
    fn lists_and_maps_are_read() {
        assert_eq!(cpu_list("0,2-4\n"), [0, 2, 3, 4]);
        assert_eq!(cpu_list("\n"), [0; 0]);
        assert_eq!(cpu_list("x,1-,7"), [7]);
        assert!(is_identity("         0          0 4294967295\n"));
        assert!(!is_identity("         0       1000          1\n"));
    }

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::look();
        assert!(!machine.kernel.release.is_empty());
        assert!(!machine.cpus.allowed.is_empty());
        let text = machine.to_string();
        for (name, _, _) in CAPABILITIES {
            assert!(text.contains(name), "{text}");
        }
        assert_eq!(Machine::capable().lacks(&["CAP_BPF", "CAP_NET_RAW"]), [""; 0]);
    }

    #[test]
    fn locking_needs_a_limit_or_the_capability() {
        let mut machine = Machine::capable();
        machine.locked_memory = Some(64 << 10);
        assert!(machine.can_lock_a_pool());
        machine.initial_user_namespace = false;
        assert!(!machine.can_lock_a_pool(), "the capability of a namespace does not count");
        machine.locked_memory = Some(DEFAULT_POOL);
        assert!(machine.can_lock_a_pool());
    }
}
