//! DPDK's environment abstraction layer (EAL), which starts once in a process.

mod arguments;
mod pages;

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Error;
use crate::plugin::Plugin;

/// Which pages DPDK's memory is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Huge ones if enough are free, else those of the system, which
    /// [`Environment::remark`] says.
    #[default]
    Auto,
    /// Huge ones, or it does not start.
    Need,
    /// Those of the system: no preparation, no privilege, some speed lost to TLB misses. Devices on
    /// PCI need huge ones.
    No,
}

/// How DPDK shall start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentSettings {
    /// The CPUs of the lanes: DPDK's own threads keep off them, if there are others.
    pub lane_cpus: Vec<usize>,
    /// The PCI addresses of all devices that will be opened, such as `0000:04:02.0`: DPDK touches
    /// no other.
    pub pci: Vec<String>,
    /// Which pages.
    pub huge_pages: HugePages,
    /// MiB that the frames of all lanes need ([`LaneMemory::size`](crate::LaneMemory::size)); what
    /// DPDK itself needs comes on top.
    pub memory: usize,
    /// Further arguments of EAL, as in `dpdk-testpmd`; each goes before one of ours that says the
    /// same.
    pub arguments: Vec<String>,
}

/// DPDK, started. It ends when the last device, memory and queue that uses it is dropped, and
/// cannot start again in this process.
pub struct Environment {
    plugin: Plugin,
    remark: Option<String>,
    /// Devices come and go one after the other.
    control: Mutex<()>,
    /// Dropping it ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The version of the DPDK that would be used here, as `DPDK 22.11.11`; it is not started.
///
/// # Errors
/// [`Error::NoPlugin`], [`Error::Broken`], [`Error::OtherVersion`].
pub fn installed() -> Result<String, Error> {
    Ok(Plugin::load()?.dpdk_version())
}

/// What has become of DPDK in this process.
enum State {
    Before,
    Runs(Weak<Environment>),
    Failed,
}

static STATE: Mutex<State> = Mutex::new(State::Before);

impl Environment {
    /// Starts DPDK, in a thread of its own that stays, so that the thread of the caller keeps its
    /// CPUs and signals. When it runs already, the settings are not looked at.
    ///
    /// # Errors
    /// [`Error::NoPlugin`], [`Error::Broken`], [`Error::OtherVersion`], [`Error::NoHugePages`],
    /// [`Error::Environment`].
    pub fn start(settings: &EnvironmentSettings) -> Result<Arc<Self>, Error> {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Before => {}
            State::Runs(environment) => {
                return environment.upgrade().ok_or_else(|| once("it has ended"));
            }
            State::Failed => return Err(once("its start has failed")),
        }
        let plugin = Plugin::load()?;
        let (arguments, remark) = arguments::of(settings)?;
        *state = State::Failed;
        let (stop, stopped) = channel();
        let thread = begin(plugin, arguments, settings.lane_cpus.clone(), stopped)?;
        let environment = Arc::new(Self {
            plugin,
            remark,
            control: Mutex::new(()),
            stop: Some(stop),
            thread: Some(thread),
        });
        *state = State::Runs(Arc::downgrade(&environment));
        Ok(environment)
    }

    /// What an operator should know: that there are no huge pages.
    #[must_use]
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// The version of DPDK, as `DPDK 22.11.11`.
    #[must_use]
    pub fn version(&self) -> String {
        self.plugin.dpdk_version()
    }

    /// Makes two ports that are joined by rings of `size` packets, a power of two, so that what is
    /// sent on one is received on the other, without a copy: for tests and measurements. Returns
    /// the names of the devices.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn ring_pair(&self, name: &str, queues: u16, size: u32) -> Result<[String; 2], Error> {
        let made = self.with(|plugin| plugin.ring_pair(name, queues, size));
        made.map_err(|reason| Error::Refused { device: name.to_owned(), reason })?;
        Ok(["a", "b"].map(|end| format!("net_ring_{name}_{end}")))
    }

    pub(crate) fn plugin(&self) -> Plugin {
        self.plugin
    }

    /// Does something with devices or memories, while nobody else does.
    pub(crate) fn with<T>(&self, what: impl FnOnce(Plugin) -> T) -> T {
        let _one_at_a_time = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        what(self.plugin)
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Environment").field("remark", &self.remark).finish_non_exhaustive()
    }
}

fn once(why: &str) -> Error {
    Error::Environment {
        reason: format!("{why}, and it starts only once in a process"),
        remedy: "start the process again".to_owned(),
    }
}

/// Starts EAL in a new thread, which becomes its main one.
fn begin(
    plugin: Plugin,
    arguments: Vec<String>,
    lane_cpus: Vec<usize>,
    stopped: Receiver<()>,
) -> Result<JoinHandle<()>, Error> {
    let (said, started) = channel();
    let run = move || {
        let arguments = keep_off(&lane_cpus, arguments);
        let result = plugin.start(&arguments);
        let goes_on = result.is_ok();
        // Nobody can have gone: `begin` waits.
        let _ = said.send(result.map_err(|reason| (reason, arguments)));
        if goes_on {
            let _ = stopped.recv(); // ends when the other side is dropped
            plugin.stop();
        }
    };
    let thread = std::thread::Builder::new().name("dpdk".to_owned()).spawn(run);
    let failed =
        |reason: String, remedy: &str| Error::Environment { reason, remedy: remedy.to_owned() };
    let thread =
        thread.map_err(|error| failed(format!("no thread for it: {error}"), "try again"))?;
    match started.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err((reason, arguments))) => Err(failed(
            format!("{reason}, with the arguments `{}`", arguments[1..].join(" ")),
            "it has said more on standard error",
        )),
        Err(_) => Err(failed("its thread has ended".to_owned(), "try again")),
    }
}

/// Takes the CPUs of the lanes from the calling thread, and gives EAL what is left: its threads
/// float over these. When nothing is left they float over all.
fn keep_off(lane_cpus: &[usize], mut arguments: Vec<String>) -> Vec<String> {
    let Ok(allowed) = sched_getaffinity(None) else { return arguments };
    let mut rest = allowed;
    for cpu in lane_cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        rest.unset(*cpu);
    }
    if rest.count() == 0 {
        rest = allowed;
    }
    // Fails only where the CPUs have changed meanwhile; then EAL floats a little wider.
    let _ = sched_setaffinity(None, &rest);
    let cpus: Vec<_> =
        (0..CpuSet::MAX_CPU).filter(|cpu| rest.is_set(*cpu)).map(|cpu| cpu.to_string()).collect();
    let names = ["-c", "-l", "--lcores", "--coremask"];
    if !arguments::has(&arguments, &names) {
        arguments.insert(1, format!("--lcores=0@({})", cpus.join(",")));
    }
    arguments
}
