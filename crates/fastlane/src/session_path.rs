//! Default path of the session of an application.

use std::path::PathBuf;

/// Directory of the session sockets of applications that run as root.
pub const DIRECTORY: &str = "/run/fastlane";

/// Returns the session path of the application `name`: `/run/fastlane/NAME.sock`, or
/// `$XDG_RUNTIME_DIR/fastlane/NAME.sock` for a user other than root with a runtime directory.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = runtime.filter(|path| path.is_absolute() && !rustix::process::geteuid().is_root());
    let directory = own.map_or_else(|| PathBuf::from(DIRECTORY), |path| path.join("fastlane"));
    directory.join(format!("{name}.sock"))
}
