//! DPDK's environment abstraction layer (EAL), which starts once per process.

mod arguments;
mod pages;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Error;
use crate::plugin::{Plugin, ignored_variable, is_privileged};

/// Kind of pages for DPDK's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Huge pages if enough are free, otherwise pages of the system, which [`Environment::warning`]
    /// reports.
    #[default]
    Auto,
    /// Huge pages; starting fails without them.
    Required,
    /// Pages of the system. They need no preparation and no privilege, and cost speed by TLB
    /// misses. PCI devices need huge pages.
    None,
}

/// Settings of DPDK's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentSettings {
    /// CPUs of the lanes. DPDK's own threads avoid them, if there are others.
    pub lane_cpus: Vec<usize>,
    /// PCI addresses of all devices that will be opened, such as `0000:04:02.0`. DPDK probes no
    /// other.
    pub pci: Vec<String>,
    /// Kind of pages.
    pub huge_pages: HugePages,
    /// Memory for the frames of all lanes in MiB
    /// ([`LaneMemory::size_mib`](crate::LaneMemory::size_mib)). DPDK's own memory is added.
    pub memory: usize,
    /// Further EAL arguments, as for `dpdk-testpmd`. Each replaces our argument of the same name.
    pub arguments: Vec<String>,
}

/// A running DPDK. It ends when the last device, memory and queue that uses it is dropped, and
/// cannot start again in this process.
pub struct Environment {
    plugin: Plugin,
    warning: Option<String>,
    /// Serializes changes of devices and memories.
    control: Mutex<()>,
    /// Dropping it ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the version of the installed DPDK, such as `DPDK 22.11.11`, without starting it.
///
/// # Errors
/// [`Error::NoPlugin`], [`Error::Broken`], [`Error::OtherVersion`].
pub fn installed() -> Result<String, Error> {
    Ok(Plugin::load()?.dpdk_version())
}

/// State of DPDK in this process.
enum State {
    NotStarted,
    Running(Weak<Environment>),
    Failed,
}

static STATE: Mutex<State> = Mutex::new(State::NotStarted);

impl Environment {
    /// Starts DPDK in a thread of its own that stays, so that the calling thread keeps its CPUs and
    /// signals. Ignores the settings if DPDK is already running.
    ///
    /// # Errors
    /// [`Error::NoPlugin`], [`Error::Broken`], [`Error::OtherVersion`], [`Error::NoHugePages`],
    /// [`Error::Environment`], [`Error::PrivilegedArguments`].
    pub fn start(settings: &EnvironmentSettings) -> Result<Arc<Self>, Error> {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::NotStarted => {}
            State::Running(environment) => {
                return environment.upgrade().ok_or_else(|| starts_once("it has ended"));
            }
            State::Failed => return Err(starts_once("its start has failed")),
        }
        arguments::check(&settings.arguments, is_privileged())?;
        let plugin = Plugin::load()?;
        let (arguments, pages) = arguments::build(settings)?;
        let warnings: Vec<String> = ignored_variable().into_iter().chain(pages).collect();
        let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
        *state = State::Failed;
        let (stop, stopped) = channel();
        let thread = spawn_eal(plugin, arguments, settings.lane_cpus.clone(), stopped)?;
        let environment = Arc::new(Self {
            plugin,
            warning,
            control: Mutex::new(()),
            stop: Some(stop),
            thread: Some(thread),
        });
        *state = State::Running(Arc::downgrade(&environment));
        Ok(environment)
    }

    /// Returns a warning for the operator if DPDK runs without huge pages.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the version of DPDK, such as `DPDK 22.11.11`.
    #[must_use]
    pub fn version(&self) -> String {
        self.plugin.dpdk_version()
    }

    /// Creates two ports connected by rings of `size` packets, a power of two. Packets sent on one
    /// are received on the other without a copy. For tests and measurements. Returns the names of
    /// the devices.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn ring_pair(&self, name: &str, queues: u16, size: u32) -> Result<[String; 2], Error> {
        let made = self.with(|plugin| plugin.ring_pair(name, queues, size));
        made.map_err(|reason| Error::Refused { device: name.to_owned(), reason })?;
        Ok(["a", "b"].map(|end| format!("net_ring_{name}_{end}")))
    }

    /// Returns the NUMA node of a device (`rte_eth_dev_socket_id`), or -1 if it has none or does
    /// not exist. Opens the device, which [`Device::open`](crate::Device::open) then takes.
    #[must_use]
    pub fn node_of(&self, device: &str) -> i32 {
        let info = self.with(|plugin| plugin.device_info(plugin.probe(device)?));
        info.map_or(-1, |info| info.socket)
    }

    /// Returns the descriptor that becomes readable when a device has been removed: an eventfd, to
    /// be read without blocking. [`Link::is_removed`](crate::Link::is_removed) tells which.
    #[must_use]
    pub fn removal_events(&self) -> Option<BorrowedFd<'_>> {
        self.plugin.removal_events()
    }

    pub(crate) fn plugin(&self) -> Plugin {
        self.plugin
    }

    /// Runs an action on devices or memories while no other thread does.
    pub(crate) fn with<T>(&self, action: impl FnOnce(Plugin) -> T) -> T {
        let _one_at_a_time = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        action(self.plugin)
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
        formatter
            .debug_struct("Environment")
            .field("warning", &self.warning)
            .finish_non_exhaustive()
    }
}

fn starts_once(reason: &str) -> Error {
    Error::Environment {
        reason: format!("{reason}, and it starts only once in a process"),
        remedy: "start the process again".to_owned(),
    }
}

/// Starts EAL in a new thread, which becomes EAL's main thread.
fn spawn_eal(
    plugin: Plugin,
    arguments: Vec<String>,
    lane_cpus: Vec<usize>,
    stopped: Receiver<()>,
) -> Result<JoinHandle<()>, Error> {
    let (report, started) = channel();
    let run = move || {
        let arguments = avoid_lane_cpus(&lane_cpus, arguments);
        let result = plugin.init_eal(&arguments);
        let is_running = result.is_ok();
        // The receiver exists: `spawn_eal` waits for the report.
        let _ = report.send(result.map_err(|reason| (reason, arguments)));
        if is_running {
            let _ = stopped.recv(); // ends when the other side is dropped
            plugin.clean_up_eal();
        }
    };
    let thread = std::thread::Builder::new().name("dpdk".to_owned()).spawn(run);
    let failed =
        |reason: String, remedy: &str| Error::Environment { reason, remedy: remedy.to_owned() };
    let thread =
        thread.map_err(|error| failed(format!("cannot start its thread: {error}"), "try again"))?;
    match started.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err((reason, arguments))) => Err(failed(
            format!("{reason}, with the arguments `{}`", arguments[1..].join(" ")),
            "see its messages on standard error",
        )),
        Err(_) => Err(failed("its thread has ended".to_owned(), "try again")),
    }
}

/// Removes the CPUs of the lanes from the calling thread, and restricts EAL's threads to the
/// others. If no others are left, they run on all.
fn avoid_lane_cpus(lane_cpus: &[usize], mut arguments: Vec<String>) -> Vec<String> {
    let Ok(allowed) = sched_getaffinity(None) else { return arguments };
    let mut others = allowed;
    for cpu in lane_cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        others.unset(*cpu);
    }
    if others.count() == 0 {
        others = allowed;
    }
    // Fails only if the allowed CPUs have changed meanwhile; EAL's threads then run on more CPUs.
    let _ = sched_setaffinity(None, &others);
    let cpus: Vec<_> =
        (0..CpuSet::MAX_CPU).filter(|cpu| others.is_set(*cpu)).map(|cpu| cpu.to_string()).collect();
    let names = ["-c", "-l", "--lcores", "--coremask"];
    if !arguments::contains(&arguments, &names) {
        arguments.insert(1, format!("--lcores=0@({})", cpus.join(",")));
    }
    arguments
}
