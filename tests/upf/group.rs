//! Groups of cases. The cases of a group share a running UPF and run in one Python process.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fastlane_tests::PATIENCE;
use serde_json::Value;

use crate::topology::{PortMechanism, Setup, Variant, is_soak};

/// A group of cases with a common configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Group {
    Node,
    Session,
    Data,
    Limits,
    Survive,
    Soak,
}

impl Group {
    pub(crate) const ALL: [Self; 6] =
        [Self::Node, Self::Session, Self::Data, Self::Limits, Self::Survive, Self::Soak];

    /// Returns the name of the group in the Python cases.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Session => "session",
            Self::Data => "data",
            Self::Limits => "limits",
            Self::Survive => "survive",
            Self::Soak => "soak",
        }
    }

    pub(crate) fn sessions(self) -> u32 {
        match self {
            Self::Limits if is_soak() => 4096,
            Self::Limits => 64,
            Self::Soak => 256,
            _ => 4096,
        }
    }

    pub(crate) fn establishments_per_s(self) -> u32 {
        match self {
            Self::Limits if is_soak() => 200,
            Self::Limits => 40,
            _ => 0,
        }
    }

    /// Returns T1 in ms. An association ends after three unanswered heartbeats, which a loaded
    /// machine may delay. T1 is short where cases wait for it often.
    pub(crate) fn t1_ms(self) -> u64 {
        if matches!(self, Self::Node | Self::Soak) { 500 } else { 1000 }
    }

    pub(crate) fn quiet_s(self) -> u64 {
        if self == Self::Survive { 4 } else { 0 }
    }
}

/// Outcome of a group.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Result of each case, with the reason of a failure.
    pub(crate) cases: BTreeMap<u32, Result<(), String>>,
    /// Messages that tshark calls malformed.
    pub(crate) malformed: Vec<String>,
}

type Outcomes = HashMap<(Group, PortMechanism), Arc<OnceLock<Result<Outcome, String>>>>;

/// Runs the cases of a group on a mechanism, once per process. Returns their outcome.
///
/// # Panics
/// When they could not be run.
#[track_caller]
pub(crate) fn outcome(
    group: Group,
    mechanism: PortMechanism,
) -> impl std::ops::Deref<Target = Outcome> {
    static OUTCOMES: LazyLock<Mutex<Outcomes>> = LazyLock::new(Mutex::default);
    let slot = {
        let mut all = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry((group, mechanism)).or_default())
    };
    let usual = Variant::default();
    // Who panics in it must not make the next one try again.
    slot.get_or_init(|| {
        let run = std::panic::catch_unwind(AssertUnwindSafe(|| run(group, mechanism, usual, &[])));
        run.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|&it| it.to_owned()))
                .unwrap_or_default()
        })
    });
    OutcomeRef(slot)
}

struct OutcomeRef(Arc<OnceLock<Result<Outcome, String>>>);

impl std::ops::Deref for OutcomeRef {
    type Target = Outcome;

    fn deref(&self) -> &Outcome {
        match self.0.get() {
            Some(Ok(outcome)) => outcome,
            Some(Err(why)) => panic!("the group could not be run: {why}"),
            None => panic!("the group was not run"),
        }
    }
}

/// Runs the cases of a group (all, or `only` these) on a UPF of its own, which must end well.
///
/// # Panics
/// When that cannot be done.
pub(crate) fn run(
    group: Group,
    mechanism: PortMechanism,
    variant: Variant,
    only: &[u32],
) -> Outcome {
    let setup = Setup::new(mechanism, variant).expect("namespaces can be made");
    let upf = setup.start(group);
    let pid = upf.process.id();
    let judge = setup.judge(python(), group, only, pid);
    let limit = if is_soak() { 120 * PATIENCE } else { Duration::from_secs(900) };
    let ended = judge.wait_within(limit);
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    let message = upf.process.stderr();
    if ended.stdout.contains("\"passed\": false") {
        let last: Vec<&str> = message.lines().rev().take(40).collect();
        eprintln!("{group:?} on {mechanism:?}, the UPF:");
        last.iter().rev().for_each(|line| eprintln!("  {line}"));
    }
    upf.stop(); // says by its status that all frames came back
    setup.end();
    parse(&ended.stdout)
}

fn parse(text: &str) -> Outcome {
    let mut outcome =
        Outcome { cases: BTreeMap::new(), malformed: vec!["nothing message".to_owned()] };
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        if let Some(wrong) = line["malformed"].as_array() {
            outcome.malformed = wrong.iter().map(ToString::to_string).collect();
            continue;
        }
        let number = line["case"].as_u64().and_then(|it| u32::try_from(it).ok());
        let why = line["why"].as_str().unwrap_or("no reason").to_owned();
        let result = if line["passed"] == true { Ok(()) } else { Err(why) };
        outcome.cases.insert(number.expect("a number"), result);
    }
    outcome
}

/// Returns the Python interpreter with the packages of `requirements.txt`, installed in the build
/// folder.
///
/// # Panics
/// When they cannot be installed.
pub(crate) fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let test = std::env::current_exe().expect("the path of this test");
        let folder = test.ancestors().nth(3).expect("a build folder").join("upf-suite");
        let program = folder.join("bin/python");
        let wanted = Path::new(env!("CARGO_MANIFEST_DIR")).join("upf/requirements.txt");
        let marker = folder.join("requirements.txt");
        // Parts of the tests run side by side: the first one installs.
        let lock = File::create(folder.with_extension("lock")).expect("the lock is writable");
        lock.lock().expect("the lock");
        let read = |path: &Path| std::fs::read(path).unwrap_or_default();
        if read(&marker) != read(&wanted) {
            command(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
            let mut install = Command::new(&program);
            install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
            command(install.args(["--require-hashes", "-r"]).arg(&wanted));
            std::fs::copy(&wanted, &marker).expect("the marker is written");
        }
        program
    })
}

fn command(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {message}");
}

/// Runs the program of the cases with a query option. Returns its output.
///
/// # Panics
/// When it fails.
pub(crate) fn ask(question: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("upf/run.py");
    let output = Command::new(python()).arg(script).arg(question).output();
    let output = output.expect("Python can be started");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{question}: {message}");
    String::from_utf8(output.stdout).expect("text")
}
