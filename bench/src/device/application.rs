//! A Fastlane application as a separate process, as its users run it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fastlane::counters::{LaneCounter, PortCounter};
use fastlane::session::{self, Client};
use fastlane::{App, Packet, Turn};
use fastlane_measure::program::{Looping, Odometer, Program};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Result;
use crate::device::load::Echoes;
use crate::device::memory_lane::{frame, macswap};

/// First command line argument that turns this program into a [`Filled`] application.
pub const LOOP: &str = "loop";

/// Returns the driver of a port on a DPDK device, as written in a configuration.
#[must_use]
pub fn dpdk_driver(device: &str) -> Value {
    json!({ "dpdk": { "vdev": device } })
}

/// Macswap application that first sends its own packets, for devices that loop packets back.
#[derive(Default)]
pub struct Filled {
    left: u64,
    frame: Vec<u8>,
    waits: bool,
    /// Number of packets to swap before the application ends; 0 means no limit.
    limit: u64,
    swapped: u64,
    /// Delay before the first packet is sent, in nanoseconds; 0 once the timer runs.
    delay: u64,
}

/// Settings of [`Filled`]: `app` in the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Fill {
    packets: u64,
    length: usize,
    #[serde(default)]
    limit: u64,
    #[serde(default)]
    delay_ms: u64,
}

impl Filled {
    /// Creates an application that sends `packets` packets of `length` bytes to port 0. If `waits`
    /// is set, it sends nothing before [`begin`](Self::begin).
    #[must_use]
    pub fn new(packets: u64, length: usize, waits: bool) -> Self {
        Self { left: packets, frame: frame(length), waits, ..Self::default() }
    }

    /// Allows the application to send.
    pub fn begin(&mut self) {
        self.waits = false;
    }

    #[cold]
    fn send(&mut self, turn: &mut Turn) {
        if self.delay > 0 && turn.start_timer(std::mem::take(&mut self.delay), 0) {
            self.waits = true;
        }
        if turn.expired().is_some() {
            self.waits = false;
        }
        while self.left > 0 && !self.waits {
            let Some(packet) = turn.new_packet(fastlane::PortId(0)) else { return };
            if let Some(bytes) = packet.append(self.frame.len()) {
                bytes.copy_from_slice(&self.frame);
            }
            self.left -= 1;
        }
    }
}

impl App for Filled {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        self.swapped += packets.len() as u64;
        for packet in packets {
            let verdict = macswap(packet);
            packet.set_verdict(verdict);
        }
        if self.limit > 0 && self.swapped >= self.limit {
            turn.end();
        }
    }

    fn turn(&mut self, turn: &mut Turn) {
        if self.left > 0 {
            self.send(turn);
        }
    }
}

/// Runs a [`Filled`] application with the configuration named on the command line and returns the
/// exit status.
pub fn run(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> u8 {
    fastlane::main_from(arguments, &Arc::default(), |lane| {
        let Fill { packets, length, limit, delay_ms } = lane.settings()?;
        let filled = Filled::new(packets, length, false);
        Ok(Filled { limit, delay: delay_ms * 1_000_000, ..filled })
    })
}

/// Program that an [`Application`] runs.
#[derive(Clone, Debug)]
pub enum ApplicationKind {
    /// The program `macswap`, as it is shipped.
    Macswap,
    /// The macswap of this program, which first sends its own packets.
    Filled {
        /// Number of packets that it sends.
        packets: u64,
        /// Length of each packet in bytes.
        length: usize,
    },
    /// The fast path process of `upf`, as it is shipped.
    Upf,
    /// Path of another program that takes a configuration.
    Other(PathBuf),
}

/// Running application with one lane, pinned to the CPU that moves packets.
pub struct Application {
    /// The process.
    pub program: Program,
    /// Thread id of its lane.
    pub thread: u64,
    /// Client of its session.
    pub client: Client,
    files: Files,
}

impl Application {
    /// Starts the program with one port. `driver` is the port's driver as written in a
    /// configuration; `lanes` holds additional settings of the lane.
    ///
    /// # Errors
    /// Returns an error if the program does not start.
    pub fn start(which: &ApplicationKind, driver: &Value, lanes: &Value) -> Result<Self> {
        let app = match which {
            ApplicationKind::Filled { packets, length } => {
                json!({ "packets": packets, "length": length })
            }
            _ => Value::Null,
        };
        Self::configured(which, &json!({ "wire": { "driver": driver } }), lanes, &app)
    }

    /// Starts the program with the given ports, additional lane settings and application settings.
    ///
    /// # Errors
    /// Returns an error if the program does not start.
    pub fn configured(
        which: &ApplicationKind,
        ports: &Value,
        lanes: &Value,
        app: &Value,
    ) -> Result<Self> {
        let files = Files::new();
        let mut configuration = json!({
            "name": files.name,
            "session": files.session,
            "lanes": { "cpus": [crate::rivals::eal::CPU], "idle": "busy" },
            "ports": ports,
        });
        if let Some(lanes) = lanes.as_object() {
            lanes.iter().for_each(|(key, value)| configuration["lanes"][key] = value.clone());
        }
        if !app.is_null() {
            configuration["app"] = app.clone();
        }
        std::fs::write(&files.configuration, configuration.to_string())?;
        let own = std::env::current_exe()?;
        let path = files.configuration.as_os_str();
        let mut program = match which {
            ApplicationKind::Macswap => {
                Program::start("macswap", beside(&own, "macswap")?, [path])?
            }
            ApplicationKind::Filled { .. } => {
                Program::start("macswap that fills", &own, [LOOP.as_ref(), path])?
            }
            ApplicationKind::Upf => {
                Program::start("upf fast", beside(&own, "upf")?, ["fast".as_ref(), path])?
            }
            ApplicationKind::Other(program) => Program::start("the application", program, [path])?,
        };
        let client = program.wait_for("its session", |_| session::connect(&files.session).ok())?;
        let thread = program.wait_for("its lane", |_| {
            Some(client.counters.lane(0).load(LaneCounter::Thread)).filter(|&thread| thread > 0)
        })?;
        Ok(Self { program, thread, client, files })
    }

    /// Returns the path of the session socket.
    #[must_use]
    pub fn session(&self) -> &Path {
        &self.files.session
    }

    /// Waits until the application moves packets, then stops it until its first slice.
    ///
    /// # Errors
    /// Returns an error if the application ends or moves no packets.
    pub fn looping(mut self) -> Result<Looping<Sent>> {
        let mut sent = Sent(self.client);
        self.program.wait_for("packets", |_| sent.packets().ok().filter(|&count| count > 0))?;
        drop(self.files);
        Looping::new(self.program, self.thread, sent)
    }
}

impl Echoes for Application {
    fn echoed(&self) -> u64 {
        sent(&self.client)
    }

    fn cpu(&self) -> Result<u64> {
        self.program.cpu(self.thread)
    }
}

/// Number of packets that an application has sent, from its counters.
pub struct Sent(Client);

impl Odometer for Sent {
    fn packets(&mut self) -> Result<u64> {
        Ok(sent(&self.0))
    }
}

fn sent(client: &Client) -> u64 {
    let of = |port| client.counters.port_total(port, PortCounter::SentPackets);
    (0..client.counters.ports()).map(of).sum()
}

/// Returns the path of a program of this workspace that was built together with this one.
fn beside(own: &Path, name: &str) -> Result<PathBuf> {
    let path = own.with_file_name(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("{}: not built; `make bench` builds it", path.display()).into()),
    }
}

/// Files that an application needs while it starts. They are removed on drop.
struct Files {
    name: String,
    configuration: PathBuf,
    session: PathBuf,
}

impl Files {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fl-bench-{}-{number}", std::process::id());
        let file = |extension| std::env::temp_dir().join(format!("{name}.{extension}"));
        Self { configuration: file("json"), session: file("sock"), name }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.configuration, &self.session] {
            let _ = std::fs::remove_file(path);
        }
    }
}
