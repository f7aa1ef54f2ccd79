//! Compiles C programs against the header and the library that cargo has just built, and runs them.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod capture;

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Time limit of a program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Compiler flags that programs must pass.
pub(crate) const FLAGS: [&str; 6] =
    ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-O2"];

pub(crate) fn manifest(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the folder of the library, beside the tests that depend on it.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let folder = test.parent().expect("in a folder").to_owned();
    assert!(folder.join("libfastlane_c.so").exists(), "no library in {}", folder.display());
    folder
}

/// Kind of linking.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linked {
    Shared,
    Static,
}

/// A compiled program with its own folder.
pub(crate) struct Program {
    folder: TempDir,
}

/// Result of a run.
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Ended {
    /// Returns a counter of the summary, added over all ports.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let value = |line: &str| {
            let (first, value) = line.split_once(char::is_whitespace)?;
            (first == name).then(|| value.trim().parse::<u64>().ok())?
        };
        self.error.lines().filter_map(|line| value(line.trim_start())).sum()
    }

    /// Returns the sum of all drop counters.
    pub(crate) fn drops(&self) -> u64 {
        let names = self.error.lines().filter_map(|line| line.split_whitespace().next());
        let names: std::collections::BTreeSet<&str> =
            names.filter(|name| name.starts_with("drop_")).collect();
        names.into_iter().map(|name| self.counter(name)).sum()
    }

    pub(crate) fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, status, "{}{}", self.out, self.error);
        self
    }
}

impl Program {
    /// Compiles a program of this repository.
    pub(crate) fn new(source: &str) -> Self {
        Self::linked(source, Linked::Shared)
    }

    pub(crate) fn linked(source: &str, linked: Linked) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut compiler = Command::new("cc");
        compiler.arg("-std=c11").args(FLAGS).arg("-D_POSIX_C_SOURCE=200809L");
        compiler.arg("-I").arg(manifest("include")).arg(manifest(source));
        compiler.arg("-o").arg(folder.path().join("program"));
        let libraries = libraries();
        if linked == Linked::Static {
            compiler.arg(libraries.join("libfastlane_c.a")).args(["-lm", "-lgcc_s"]);
        } else {
            compiler.arg("-L").arg(&libraries).arg("-lfastlane_c");
            // The older tag goes before LD_LIBRARY_PATH, in which cargo names a folder that may
            // hold an older library.
            let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", libraries.display());
            compiler.arg(rpath);
        }
        let output = compiler.arg("-pthread").output().expect("there is a compiler");
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        Self { folder }
    }

    /// Returns the path of a file in the program's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a command with a configuration and a session of its own.
    pub(crate) fn command(&self, configuration: &serde_json::Value) -> Command {
        let mut configuration = configuration.clone();
        configuration["session"] = self.path("session.sock").to_str().unwrap().into();
        let path = self.path("configuration.json");
        std::fs::write(&path, configuration.to_string()).expect("the folder can be written");
        let mut command = Command::new(self.path("program"));
        command.arg(path);
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, configuration: &serde_json::Value) -> Ended {
        finish(self.command(configuration))
    }
}

/// Runs a command to its end.
pub(crate) fn finish(mut command: Command) -> Ended {
    // Files, which unlike pipes are never full.
    let (mut out, mut error) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    command.stdout(out.try_clone().unwrap()).stderr(error.try_clone().unwrap());
    let mut child = command.stdin(Stdio::null()).spawn().expect("the program starts");
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().expect("it is ours") {
            Some(status) => break status,
            None if Instant::now() > end => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("it does not end: {}", text(&mut error));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let status = status.code().unwrap_or(-1);
    Ended { status, out: text(&mut out), error: text(&mut error) }
}

fn text(file: &mut File) -> String {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("text in UTF-8");
    text
}
