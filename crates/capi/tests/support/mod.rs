//! Compiles programs in C against the header and the library that cargo has just built, and runs
//! them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The flags under which a program must compile.
pub(crate) const FLAGS: [&str; 6] =
    ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-O2"];

pub(crate) fn manifest(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where cargo has put the library: beside the tests that depend on it.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let folder = test.parent().expect("in a folder").to_owned();
    assert!(folder.join("libfastlane_c.so").exists(), "no library in {}", folder.display());
    folder
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linked {
    Shared,
    Static,
}

/// A compiled program with a folder of its own.
pub(crate) struct Program {
    folder: TempDir,
}

/// What came of a run.
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Ended {
    /// A counter of the summary; of all ports together.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let value = |line: &str| {
            let (first, value) = line.split_once(char::is_whitespace)?;
            (first == name).then(|| value.trim().parse::<u64>().ok())?
        };
        self.error.lines().filter_map(|line| value(line.trim_start())).sum()
    }

    /// The sum of all counters of drops.
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
    /// The program in a file of this repository.
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
            compiler.arg(format!("-Wl,-rpath,{}", libraries.display()));
        }
        let output = compiler.arg("-pthread").output().expect("there is a compiler");
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        Self { folder }
    }

    /// A file of the program's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command with a configuration, to which a session of its own is added.
    pub(crate) fn command(&self, configuration: &serde_json::Value) -> Command {
        let mut configuration = configuration.clone();
        configuration["session"] = self.path("session.sock").to_str().unwrap().into();
        let path = self.path("configuration.json");
        std::fs::write(&path, configuration.to_string()).expect("the folder can be written");
        let mut command = Command::new(self.path("program"));
        command.arg(path);
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, configuration: &serde_json::Value) -> Ended {
        finish(self.command(configuration))
    }
}

/// Runs a command to its end.
pub(crate) fn finish(mut command: Command) -> Ended {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let end = Instant::now() + PATIENCE;
    // What a program here says fits a pipe.
    while child.try_wait().expect("it is ours").is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            let Output { stderr, .. } = child.wait_with_output().expect("it is ours");
            panic!("it does not end: {}", String::from_utf8_lossy(&stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("it is ours");
    Ended {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("text"),
        error: String::from_utf8(output.stderr).expect("text"),
    }
}
