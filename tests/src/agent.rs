//! The agent, and applications that have no privilege.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

use crate::{Application, Ended, Host, Lab, Process, binary};

/// User id of the applications without privilege.
pub const NOBODY: u32 = 65534;

/// The capabilities that the agent has in the stories.
const CAPABILITIES: &str = "-all,+net_admin,+net_raw,+bpf,+perfmon,+ipc_lock";

/// A running agent on the left host, and the BPF file system with its pins.
#[derive(Debug)]
pub struct Agent {
    /// Process of the agent; `None` while it is away.
    process: Option<Process>,
    config: PathBuf,
    socket: PathBuf,
    pins: Pins,
}

/// A BPF file system of its own. Dropping it removes all pins.
#[derive(Debug)]
pub struct Pins(PathBuf);

impl Pins {
    /// Mounts it. Returns `None` after a skip if there is none.
    ///
    /// # Panics
    /// When its directory cannot be created.
    #[must_use]
    pub fn mount(lab: &Lab) -> Option<Self> {
        everyone(lab.directory());
        let directory = lab.file("bpf");
        std::fs::create_dir_all(&directory).expect("the directory is ours");
        if let Err(error) = mount("bpf", &directory, "bpf", MountFlags::empty(), None) {
            fastlane_testing::skip("pins", &format!("no BPF file system ({error})"));
            return None;
        }
        Some(Self(directory))
    }

    /// Returns the directory of the owner of the pins.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.0.join("fastlane")
    }

    /// Returns the number of devices that are pinned.
    pub(crate) fn count(&self) -> usize {
        std::fs::read_dir(self.directory()).expect("the agent made it").count()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::DETACH) {
            eprintln!("{} stays mounted: {error}", self.0.display());
        }
    }
}

impl Agent {
    /// Starts the agent with these pools and waits until it listens. Returns `None` after a skip if
    /// there is no BPF file system.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    #[must_use]
    pub fn start(lab: &Lab, pools: &Value) -> Option<Self> {
        let pins = Pins::mount(lab)?;
        let (config, socket) = (lab.file("agent.json"), lab.file("agent.sock"));
        let text = json!({"pools": pools, "socket": socket, "pins": pins.directory()});
        std::fs::write(&config, text.to_string()).expect("the configuration is writable");
        let mut agent = Self { process: None, config, socket, pins };
        agent.run(lab);
        Some(agent)
    }

    /// Returns pools that let [`NOBODY`] use `wire0` with the rules of
    /// [`Application::steered`].
    #[must_use]
    pub fn pools() -> Value {
        json!({"upf": {
            "interfaces": {"wire0": {}},
            "steer": [{"udp-port": 2152}, {"udp-port": "40000-40099"}],
            "users": [NOBODY],
        }})
    }

    /// Starts the agent again and waits until it listens.
    ///
    /// # Panics
    /// When it does not start, or runs.
    #[track_caller]
    pub fn run(&mut self, lab: &Lab) {
        assert!(self.process.is_none(), "the agent runs");
        let mut command = with_capabilities(lab, "fastlane");
        command.arg("agent").arg(&self.config).arg("-v");
        let process = Process::start(command);
        process.wait_for("the agent listens at");
        self.process = Some(process);
    }

    /// Returns the process.
    ///
    /// # Panics
    /// When it is away.
    #[track_caller]
    #[must_use]
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the agent runs")
    }

    /// Kills the agent. Its pins stay.
    ///
    /// # Panics
    /// When it is away.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.take().expect("the agent runs").kill();
    }

    /// Ends the agent by SIGTERM.
    ///
    /// # Panics
    /// When it is away.
    #[track_caller]
    pub fn stop(&mut self) -> Ended {
        self.process.take().expect("the agent runs").stop()
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the number of devices that are pinned.
    ///
    /// # Panics
    /// When the directory cannot be read.
    #[must_use]
    pub fn pinned(&self) -> usize {
        self.pins.count()
    }

    /// Returns the number of descriptors that the agent has.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        descriptors(self.process())
    }

    /// Returns the command that runs a program on the left host as [`NOBODY`] without any
    /// capability, and the path of its session.
    ///
    /// # Panics
    /// When the program cannot be copied to where everybody may read it.
    #[track_caller]
    #[must_use]
    pub fn client(&self, lab: &Lab, program: &str, configuration: Value) -> (Command, PathBuf) {
        self.client_on(lab, &lab.left, program, configuration)
    }

    /// Returns the command that runs a program on a host as [`client`](Self::client) does on the
    /// left one.
    #[track_caller]
    #[must_use]
    pub fn client_on(
        &self,
        lab: &Lab,
        host: &Host,
        program: &str,
        mut configuration: Value,
    ) -> (Command, PathBuf) {
        configuration["agent"] = json!(self.socket);
        let (path, session) = Application::configure(lab, configuration);
        let mut command = unprivileged(lab, host, program);
        command.arg(path);
        (command, session)
    }

    /// Starts macswap on the left host as [`NOBODY`] without any capability, and waits until it
    /// runs.
    ///
    /// # Panics
    /// When it does not start, or has a capability.
    #[track_caller]
    #[must_use]
    pub fn macswap(&self, lab: &Lab, configuration: Value) -> Application {
        let (command, session) = self.client(lab, "macswap", configuration);
        let macswap = Application::run(command, session);
        assert_unprivileged(&macswap.process);
        macswap
    }
}

/// Returns the command that runs a program on the left host with the capabilities of an agent.
pub(crate) fn with_capabilities(lab: &Lab, program: &str) -> Command {
    let bounding = format!("--bounding-set={CAPABILITIES}");
    let mut command = lab.left.command(&["setpriv", &bounding, "--inh-caps=-all"]);
    command.arg(binary(program));
    command
}

/// Returns the number of descriptors that a process has.
pub(crate) fn descriptors(process: &Process) -> usize {
    let directory = format!("/proc/{}/fd", process.id());
    std::fs::read_dir(directory).expect("the process runs").count()
}

/// Returns the command that runs a program on a host as [`NOBODY`] without any capability.
///
/// # Panics
/// When the program cannot be copied to where everybody may read it.
#[track_caller]
#[must_use]
pub fn unprivileged(lab: &Lab, host: &Host, program: &str) -> Command {
    everyone(lab.directory());
    // Where the programs are built, nobody may be let in. Another process copies it: a child that
    // another thread starts would hold the file open for writing, and it could not be executed.
    let copy = lab.file(program);
    if !copy.exists() {
        let done = Command::new("cp").arg(binary(program)).arg(&copy).status();
        assert!(done.is_ok_and(|status| status.success()), "{program} cannot be copied");
    }
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    let mut command = host.command(&["setpriv"]);
    command.args(user).args(["--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]);
    command.arg("--no-new-privs").arg(copy);
    command.env("XDG_RUNTIME_DIR", lab.directory());
    command
}

/// Asserts that a process runs as [`NOBODY`] and has no capability.
///
/// # Panics
/// When it has one, or has ended.
#[track_caller]
pub fn assert_unprivileged(process: &Process) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()));
    let status = status.expect("the process runs");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    assert!(status.contains("CapBnd:\t0000000000000000"), "{status}");
    assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
}

fn everyone(directory: &Path) {
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory, mode).expect("the directory is ours");
}
