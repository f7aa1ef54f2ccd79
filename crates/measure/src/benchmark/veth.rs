//! Network namespace with veth pairs, for trials that need interfaces of their own.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::Result;

/// Environment variable that is set when the command runs in the namespace already.
const INSIDE: &str = "FASTLANE_BENCH_NAMESPACE";
/// Number of pairs: one for the device and one for its rival.
const PAIRS: usize = 2;

/// Enters a new network namespace with the pairs `device0`, `generator0` and `device1`,
/// `generator1`. It executes this program again in the namespace, and creates the pairs there. The
/// namespace ends with the last process in it.
///
/// # Errors
/// Returns an error if the namespace or a pair cannot be created.
pub(super) fn enter() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return (0..PAIRS).try_for_each(make);
    }
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        // Interfaces can be created in a user namespace. Steering programs need CAP_BPF in the
        // initial one and fail with a message; mechanisms without them can be measured.
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--"]).arg(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(INSIDE, "1");
    let error = command.exec();
    Err(format!("unshare: {error}; install `util-linux`").into())
}

fn make(number: usize) -> Result<()> {
    let (device, generator) = (format!("device{number}"), format!("generator{number}"));
    ip(&format!(
        "link add {generator} address 02:00:00:00:00:01 type veth \
         peer name {device} address 02:00:00:00:00:02"
    ))?;
    for end in [&device, &generator] {
        ip(&format!("link set {end} addrgenmode none"))?;
        ip(&format!("link set {end} arp off up"))?;
    }
    Ok(())
}

fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    let output = output.map_err(|error| format!("ip: {error}; install `iproute2`"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let reason = String::from_utf8_lossy(&output.stderr);
            Err(format!("ip {words}: {}", reason.trim_end()).into())
        }
    }
}
