//! Groups of cases: those of a group share a running UPF, and are run by one program.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fastlane_tests::PATIENCE;
use serde_json::Value;

use crate::topology::{Carrier, Setup, is_soak};

/// A group of cases, by the configuration that they need.
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

    /// As the cases call it.
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
            Self::Limits => 64,
            Self::Soak => 256,
            _ => 4096,
        }
    }

    pub(crate) fn establishments_per_s(self) -> u32 {
        if self == Self::Limits { 40 } else { 0 }
    }

    /// T1 in ms. Who does not answer for three of them has lost his association: a machine with
    /// other work takes so long now and then. Where it is waited for many times, it is short.
    pub(crate) fn t1_ms(self) -> u64 {
        if matches!(self, Self::Node | Self::Soak) { 500 } else { 1000 }
    }

    pub(crate) fn quiet_s(self) -> u64 {
        if self == Self::Survive { 4 } else { 0 }
    }
}

/// What became of a group.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// By case, why it did not pass.
    pub(crate) cases: BTreeMap<u32, Result<(), String>>,
    /// What tshark calls malformed.
    pub(crate) malformed: Vec<String>,
}

type Places = HashMap<(Group, Carrier), Arc<OnceLock<Result<Outcome, String>>>>;

/// Runs the cases of a group on a mechanism, once; what became of them.
///
/// # Panics
/// When they could not be run.
#[track_caller]
pub(crate) fn outcome(group: Group, carrier: Carrier) -> impl std::ops::Deref<Target = Outcome> {
    static OUTCOMES: LazyLock<Mutex<Places>> = LazyLock::new(Mutex::default);
    let place = {
        let mut all = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry((group, carrier)).or_default())
    };
    // Who panics in it must not make the next one try again.
    place.get_or_init(|| {
        let run = std::panic::catch_unwind(AssertUnwindSafe(|| run(group, carrier, &[])));
        run.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|&it| it.to_owned()))
                .unwrap_or_default()
        })
    });
    Held(place)
}

struct Held(Arc<OnceLock<Result<Outcome, String>>>);

impl std::ops::Deref for Held {
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
pub(crate) fn run(group: Group, carrier: Carrier, only: &[u32]) -> Outcome {
    let setup = Setup::new(carrier).expect("namespaces can be made");
    let upf = setup.start(group);
    let pid = upf.process.id();
    let judge = setup.judge(python(), group, only, pid);
    let limit = if is_soak() { 120 * PATIENCE } else { Duration::from_secs(900) };
    let ended = judge.wait_within(limit);
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    let said = upf.process.stderr();
    if ended.stdout.contains("\"passed\": false") {
        let last: Vec<&str> = said.lines().rev().take(40).collect();
        eprintln!("{group:?} on {carrier:?}, the UPF:");
        last.iter().rev().for_each(|line| eprintln!("  {line}"));
    }
    upf.stop(); // says by its status that all frames came back
    setup.end();
    parse(&ended.stdout)
}

fn parse(text: &str) -> Outcome {
    let mut outcome =
        Outcome { cases: BTreeMap::new(), malformed: vec!["nothing said".to_owned()] };
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

/// Python with the packages of `requirements.txt`, in the build folder.
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// What the program that runs the cases says to a question about itself.
///
/// # Panics
/// When it fails.
pub(crate) fn ask(question: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("upf/run.py");
    let output = Command::new(python()).arg(script).arg(question).output();
    let output = output.expect("Python can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{question}: {said}");
    String::from_utf8(output.stdout).expect("text")
}
