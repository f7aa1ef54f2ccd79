//! `lab/packages`: installs the packages of missing programs, and fails if that did not help.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory of programs that shadows those of the machine, with a substitute for `apt-get`.
struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    /// Creates a machine whose `apt-get` runs `script` after it has logged its arguments.
    fn with_apt_get(script: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let machine = Self { directory };
        machine.add_program("apt-get", &format!("echo \"$@\" >>\"$LOG\"\n{script}"));
        machine.add_program("sudo", "exec \"$@\"");
        machine
    }

    /// Returns the path of a file on the machine.
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Adds a shell script as a program.
    fn add_program(&self, name: &str, script: &str) {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable file");
    }

    /// Runs `lab/packages` with these pairs of program and package.
    fn packages(&self, pairs: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/packages");
        let path = format!("{}:/usr/bin:/bin", self.directory.path().display());
        Command::new(script)
            .args(pairs)
            .env("PATH", path)
            .env("LOG", self.path("log"))
            .env("BIN", self.directory.path())
            .output()
            .expect("lab/packages runs")
    }

    /// Returns the `apt-get` commands that were run, one per line.
    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

/// Returns the install command of one package.
fn install(package: &str) -> String {
    format!("install --yes --quiet --no-install-recommends {package}\n")
}

/// Returns the standard error of a process.
fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn nothing_is_installed_if_all_programs_are_present() {
    let machine = Machine::with_apt_get("exit 1");
    let output = machine.packages(&["sh=dash", "/etc/passwd=base-passwd"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(machine.log(), "");
}

#[test]
fn the_package_of_a_missing_program_is_installed() {
    let machine = Machine::with_apt_get("touch \"$BIN/rocket\"; chmod +x \"$BIN/rocket\"");
    let output = machine.packages(&["sh=dash", "rocket=rocket-tools", "rocket=rocket-tools"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(machine.log(), install("rocket-tools"));
}

#[test]
fn outdated_package_lists_are_updated_once() {
    let machine = Machine::with_apt_get(
        "if [ \"$1\" = update ]; then touch \"$BIN/lists\"; exit; fi\n\
         [ -e \"$BIN/lists\" ] || exit 100\n\
         touch \"$BIN/rocket\"; chmod +x \"$BIN/rocket\"",
    );
    let output = machine.packages(&["rocket=rocket-tools"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = [install("rocket-tools"), "update --quiet\n".into(), install("rocket-tools")];
    assert_eq!(machine.log(), expected.concat());
}

#[test]
fn a_program_that_its_package_no_longer_contains_is_an_error() {
    let machine = Machine::with_apt_get("exit 0");
    let output = machine.packages(&["sh=dash", "rocket=rocket-tools"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "rocket is missing although rocket-tools is installed\n");
}

#[test]
fn a_failed_installation_is_an_error() {
    let machine = Machine::with_apt_get("exit 100");
    let output = machine.packages(&["rocket=rocket-tools"]);
    assert!(!output.status.success());
}
