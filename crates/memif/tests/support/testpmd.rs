//! DPDK's memif driver as the peer.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use fastlane_memif::Role;

/// A running `dpdk-testpmd`, which is killed when this is dropped.
pub(crate) struct Testpmd {
    child: Child,
    log: std::path::PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns true if testpmd is installed; otherwise reports the test as skipped.
pub(crate) fn is_installed(test: &str) -> bool {
    let found = Command::new("dpdk-testpmd").arg("--version").output().is_ok();
    if !found {
        fastlane_testing::skip(test, "dpdk-testpmd is not installed: apt-get install dpdk");
    }
    found
}

impl Testpmd {
    /// Starts testpmd without huge pages. It forwards in this mode from its one memif port to
    /// itself.
    pub(crate) fn start(directory: &Path, role: Role, mode: &str, more: &[&str]) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("memif-{}-{number}", std::process::id());
        let log = directory.join(format!("testpmd-{number}.log"));
        let role = if role == Role::Server { "server" } else { "client" };
        let socket = directory.join("memif.sock");
        let device = format!(
            "net_memif0,role={role},id=0,socket={},socket-abstract=no,bsize=2048,rsize=10",
            socket.display()
        );
        let output = File::create(&log).expect("a log");
        let child = Command::new("dpdk-testpmd")
            .args(["--lcores", "0@0-1,1@0-1", "--main-lcore", "0", "--no-huge", "-m", "64"])
            .args(["--no-pci", "--no-telemetry", "--file-prefix", &prefix, "--vdev", &device, "--"])
            .args(["--auto-start", "--nb-cores=1", "--port-topology=loop", "--no-flush-rx"])
            .args(["--total-num-mbufs=8192", "--mbcache=64", &format!("--forward-mode={mode}")])
            .args(more)
            .env("XDG_RUNTIME_DIR", directory)
            .env("RUNTIME_DIRECTORY", directory)
            .stdin(Stdio::piped()) // testpmd ends when its standard input closes
            .stdout(output.try_clone().expect("the same log"))
            .stderr(output)
            .spawn()
            .expect("dpdk-testpmd starts");
        Self { child, log }
    }

    /// Kills the process.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}
