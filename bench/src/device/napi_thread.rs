//! Threads of the kernel that poll an interface, so that their CPU time can be told apart.

use std::path::PathBuf;
use std::process::Command;

use crate::Result;

/// Makes a thread poll an interface of the calling thread's network namespace, on this CPU. Returns
/// its folder in `/proc`. Interfaces on the machine have different names meanwhile.
///
/// # Errors
/// Returns an error if the kernel refuses: the interface must poll (of a veth pair: `gro on`).
pub fn poll_by_thread(interface: &str, cpu: usize) -> Result<PathBuf> {
    // The mounted file system shows another namespace.
    let script = format!("mount -t sysfs s /sys && echo 1 > /sys/class/net/{interface}/threaded");
    succeed(Command::new("unshare").args(["-m", "sh", "-c", &script]), "threaded NAPI")?;
    let thread = thread_of(interface)?;
    let id = thread.file_name().unwrap_or_default().to_string_lossy().into_owned();
    run(&format!("taskset -pc {cpu} {id}"))?;
    Ok(thread)
}

fn thread_of(interface: &str) -> Result<PathBuf> {
    let wanted = format!("napi/{interface}-");
    let mut processes = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    let is_it = |process: &PathBuf| {
        let name = std::fs::read_to_string(process.join("comm"));
        name.is_ok_and(|name| name.starts_with(&wanted))
    };
    Ok(processes.find(is_it).ok_or_else(|| format!("{interface} has no NAPI thread"))?)
}

/// Runs a command line.
///
/// # Errors
/// Returns its error.
pub fn run(line: &str) -> Result<()> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    succeed(command.args(words), line)
}

/// Runs a command.
///
/// # Errors
/// Returns its error, with what it is about.
pub fn succeed(command: &mut Command, what: &str) -> Result<()> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
