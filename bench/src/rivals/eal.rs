//! What every program on DPDK is started with, so that none has better memory than another.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory for each program, in megabytes.
const MEMORY: u64 = 64;
/// The CPU on which packets move; everything else is on CPU 0.
pub const CPU: usize = 1;

/// The arguments that are alike for all: own memory, no devices but those named.
#[derive(Clone, Debug)]
pub struct Eal {
    /// Unlike all others on the machine.
    pub prefix: String,
}

impl Eal {
    /// For one program.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { prefix: format!("fastlane-bench-{}-{number}", std::process::id()) }
    }

    /// The arguments, with one virtual device.
    #[must_use]
    pub fn arguments(&self, device: &str) -> Vec<String> {
        let words = format!("--no-pci --file-prefix {} --vdev {device}", self.prefix);
        words.split(' ').map(str::to_owned).chain(memory()).collect()
    }

    /// Where DPDK keeps the sockets of the program (the DPDK Programmer's Guide, "Environment
    /// Abstraction Layer").
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        let own = || std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let base = match rustix::process::geteuid().is_root() {
            true => PathBuf::from("/var/run"),
            false => own().unwrap_or_else(std::env::temp_dir),
        };
        base.join("dpdk").join(&self.prefix)
    }
}

impl Default for Eal {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.directory());
    }
}

/// The arguments about memory: huge pages where the machine has them.
#[must_use]
pub fn memory() -> Vec<String> {
    let words = match huge_pages() {
        true => format!("-m {MEMORY} --in-memory"),
        false => format!("-m {} --no-huge", 2 * MEMORY),
    };
    words.split(' ').map(str::to_owned).collect()
}

/// Whether three programs find memory in huge pages.
fn huge_pages() -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    number("HugePages_Free:") * number("Hugepagesize:") >= 3 * MEMORY * 1024
}
