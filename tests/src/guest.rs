//! Guests of the lab: machines that QEMU emulates, with kernels and network devices of their own.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use fastlane_testing::skip;
use rustix::fs::{FlockOperation, flock};

use crate::repository;

/// Variable that is set in a guest.
const INSIDE: &str = "FASTLANE_GUEST";

/// Kernel of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Linux 6.1 of Debian 12, the oldest that Fastlane runs on.
    V6_1,
    /// Linux 6.12 of Debian 13.
    V6_12,
    /// The newest that Debian has built.
    Newest,
}

impl Kernel {
    const fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Newest => "newest",
        }
    }
}

/// A guest that boots for one story and ends with it.
#[derive(Clone, Debug)]
pub struct Guest {
    options: Vec<String>,
    seconds: u32,
}

impl Guest {
    /// Describes a guest with this kernel and without network devices.
    #[must_use]
    pub fn new(kernel: Kernel) -> Self {
        Self { options: vec!["--kernel".into(), kernel.name().into()], seconds: 600 }
    }

    /// Adds two network devices of a model of QEMU on one wire, at the PCI addresses
    /// [`Nic::FIRST`](crate::Nic::FIRST) and [`Nic::SECOND`](crate::Nic::SECOND).
    #[must_use]
    pub fn nics(self, model: &str) -> Self {
        // Options of a model follow a comma.
        let (model, options) = model.split_at(model.find(',').unwrap_or(model.len()));
        self.option("--nics", &format!("{model}:2{options}"))
    }

    /// Adds a device by its description for QEMU.
    #[must_use]
    pub fn device(self, description: &str) -> Self {
        self.option("--device", description)
    }

    /// Reserves huge pages of 2 MiB.
    #[must_use]
    pub fn huge_pages(self, count: usize) -> Self {
        self.option("--huge-pages", &count.to_string())
    }

    /// Sets the number of CPUs; 2 otherwise.
    #[must_use]
    pub fn cpus(self, count: usize) -> Self {
        self.option("--cpus", &count.to_string())
    }

    /// Sets the most seconds that the story may take; 600 otherwise.
    #[must_use]
    pub const fn seconds(mut self, seconds: u32) -> Self {
        self.seconds = seconds;
        self
    }

    fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Runs a story in the guest: the closure, at the end of a test. The guest executes that test
    /// of this program again, which then comes here and runs the story.
    ///
    /// Skips the story as `lab/NAME` if there are no images, or no time is left.
    ///
    /// # Panics
    /// When the story fails, or the guest ends without it.
    #[track_caller]
    pub fn run<F: FnOnce()>(self, story: F) {
        if std::env::var_os(INSIDE).is_some() {
            story();
            return;
        }
        // `lab::dpdk::igb::{{closure}}`
        let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
        let test = path.split_once("::").expect("a function of this program").1;
        let program = std::env::current_exe().expect("the path of this test");
        self.execute(test, || format!("exec {} --exact {test} --nocapture", program.display()));
    }

    /// Runs test programs of this workspace in the guest, each given by the folder of its package,
    /// its name and its arguments.
    ///
    /// # Panics
    /// When one fails, or the guest ends without it.
    #[track_caller]
    pub fn run_programs(self, programs: &[[&str; 3]]) {
        let run = |[folder, name, arguments]: &[&str; 3]| {
            let (folder, program) = (repository(folder), crate::programs::test_program(name));
            format!("cd {} && {} {arguments} && ", folder.display(), program.display())
        };
        let name = format!("programs on Linux {}", self.options[1]);
        self.execute(&name, || programs.iter().map(run).collect::<String>() + "true");
    }

    #[track_caller]
    fn execute(&self, name: &str, command: impl FnOnce() -> String) {
        let lab = repository("lab/guest");
        let images = match images(&lab) {
            Ok(images) => images,
            Err(reason) => return skip(&format!("lab/{name}"), &reason),
        };
        flock(&images, FlockOperation::LockExclusive).expect("a lock");
        if !has_time() {
            let reason = "the time for guests is over: `make test-lab` runs them all";
            return skip(&format!("lab/{name}"), reason);
        }
        let mut boot = Command::new("setpriv");
        // The guest ends with this thread, however that ends.
        boot.args(["--pdeathsig", "KILL"]).arg(lab.join("boot"));
        boot.args(&self.options).args(["--seconds", &self.seconds.to_string(), "--"]);
        let variables = ["FASTLANE_SKIPS", "FASTLANE_SOAK", "LD_LIBRARY_PATH"];
        let set = |name: &&str| Some(format!("export {name}='{}'; ", std::env::var(name).ok()?));
        let set: String = variables.iter().filter_map(set).collect();
        boot.arg(format!("export RUST_BACKTRACE=1 {INSIDE}=1; {set}{}", command()));
        let ended = boot.stdin(Stdio::null()).output().expect("lab/guest/boot can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&ended.stdout), text(&ended.stderr));
        assert!(ended.status.success(), "{name}: {}\n{stdout}{stderr}", ended.status);
        // The summary counts skips of the guest too.
        print!("{stdout}");
    }
}

/// Returns true if a guest may still be started: until `FASTLANE_GUESTS_UNTIL`, in seconds since
/// 1970.
fn has_time() -> bool {
    let until = std::env::var("FASTLANE_GUESTS_UNTIL").ok();
    let until = until.map(|until| until.parse().expect("FASTLANE_GUESTS_UNTIL is a number"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    until.is_none_or(|until: u64| now.as_secs() < until)
}

/// Opens the images of the guests. Locked, the file is that of the one guest that runs: it has both
/// CPUs of a small machine.
///
/// # Errors
/// The reason why no guest can boot here.
fn images(lab: &Path) -> Result<File, String> {
    let folder = Command::new(lab.join("folder")).output().map_err(|error| error.to_string())?;
    let folder = String::from_utf8_lossy(&folder.stdout).trim().to_owned();
    let open = File::open(Path::new(&folder).join("complete"));
    open.map_err(|_| format!("{folder} has no images of guests: `make test-lab` builds them"))
}
