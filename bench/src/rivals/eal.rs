//! EAL arguments of every DPDK program, so that all of them have the same memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use fastlane_measure::machine::free_huge_pages;

/// Memory of each program in megabytes.
const MEMORY: u64 = 64;
/// CPU that moves packets; everything else runs on CPU 0.
pub const CPU: usize = 1;

/// Arguments common to all programs: separate memory, and no devices but the named one.
#[derive(Clone, Debug)]
pub struct Eal {
    /// File prefix, unique on the machine.
    pub prefix: String,
}

impl Eal {
    /// Creates the arguments of one program.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { prefix: format!("fastlane-bench-{}-{number}", std::process::id()) }
    }

    /// Returns the arguments with one virtual device.
    #[must_use]
    pub fn arguments(&self, device: &str) -> Vec<String> {
        let words = format!("--no-pci --file-prefix {} --vdev {device}", self.prefix);
        words.split(' ').map(str::to_owned).chain(memory()).collect()
    }

    /// Returns the folder of the program's DPDK sockets (DPDK Programmer's Guide, "Environment
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

/// Returns the memory arguments: huge pages if the machine has them.
#[must_use]
pub fn memory() -> Vec<String> {
    // Enough for the programs of three contenders.
    let words = match free_huge_pages() >= 3 * MEMORY {
        true => format!("-m {MEMORY} --in-memory"),
        false => format!("-m {} --no-huge", 2 * MEMORY),
    };
    words.split(' ').map(str::to_owned).collect()
}
