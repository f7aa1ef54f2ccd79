//! The command `router offload`: the slow path of flows. It follows the connections of Linux and
//! writes those that may be fast to the tables of the running router.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fastlane::mirror::flows::FlowKey;
use fastlane::mirror::flows::{FlowFollower, FlowRecord, FlowSettings, FlowStatus};
use fastlane::now;
use fastlane::slow::{self, SlowPath, Writer};
use fastlane::table::{HashWriter, RecordWriter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::settings::{self, FlowsSettings, Settings};

/// Names of the tables.
pub(crate) const FLOWS: &str = "flows";
pub(crate) const STATUS: &str = "offload";

/// Time between two heartbeats, in nanoseconds.
const HEARTBEAT: u64 = 250_000_000;
/// Time between attempts to reach the router.
const RETRY: Duration = Duration::from_millis(100);

/// Receive buffer for events of connections in bytes: about 10,000 events.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Arguments of `router offload`.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The configuration of the router.
    configuration: PathBuf,
    /// Replace a value of the configuration, as for the router: --set app.flows.mark=2
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Writers of the tables.
struct Tables {
    status: Writer<RecordWriter<FlowStatus>>,
    follower: FlowFollower<Writer<HashWriter<FlowKey, FlowRecord>>>,
    settings: FlowsSettings,
}

impl Arguments {
    /// Runs until it is killed. When the router ends, it waits for the next one.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub fn run(&self) -> Result<String, String> {
        let loaded = settings::program()
            .read::<Settings>(&self.configuration, &self.overrides, "router")
            .map_err(|error| error.to_string())?;
        let flows = loaded.settings.flows.ok_or(
            "the configuration has no flows; write `\"flows\": { \"mark\": 1, \"mask\": 1 }` in \
             its `app`",
        )?;
        check_events()?;
        let session = loaded.session.to_string_lossy().into_owned();
        let mut is_waiting = false;
        loop {
            match slow::attach(&session) {
                Ok(slow) => {
                    is_waiting = false;
                    follow(&slow, &flows)?;
                }
                Err(slow::SlowError::Session(error)) => {
                    if !is_waiting {
                        eprintln!("router offload: waiting for the router: {error}");
                        is_waiting = true;
                    }
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// Checks that Linux reports what becomes of connections.
fn check_events() -> Result<(), String> {
    const PATH: &str = "/proc/sys/net/netfilter/nf_conntrack_events";
    match fs::read_to_string(PATH).as_deref().map(str::trim) {
        Ok("0") => Err("Linux does not report connections: run \
                        `sysctl -w net.netfilter.nf_conntrack_events=1`"
            .to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "Linux does not track connections ({PATH}: {error}): load the module nf_conntrack"
        )),
    }
}

/// Follows the connections until the router ends.
fn follow(slow: &SlowPath, flows: &FlowsSettings) -> Result<(), String> {
    let mut tables = match Tables::attach(slow, flows) {
        Ok(tables) => tables,
        // The router has ended in the meantime, or its predecessor's tables are still in use.
        Err(_) if !slow.is_alive() => return Ok(()),
        Err(error) => return Err(error),
    };
    tables.publish(true);
    let taken_over = tables.follower.statistics().flows;
    eprintln!("router offload: running; {taken_over} flows taken over");
    let mut heartbeat = now();
    loop {
        wait(slow, &tables.follower).map_err(|error| format!("cannot wait: {error}"))?;
        if !slow.is_alive() {
            return Ok(());
        }
        tables.follower.step(now()).map_err(|error| error.to_string())?;
        if tables.follower.must_rejudge() {
            tables.publish(false);
            tables.follower.rejudge(now()).map_err(|error| error.to_string())?;
            heartbeat = 0;
        }
        if now().saturating_sub(heartbeat) >= HEARTBEAT {
            tables.publish(true);
            heartbeat = now();
        }
    }
}

fn wait(
    slow: &SlowPath,
    follower: &FlowFollower<Writer<HashWriter<FlowKey, FlowRecord>>>,
) -> io::Result<()> {
    let time = follower.timeout();
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let mut files = [PollFd::new(slow, PollFlags::IN), PollFd::new(follower, PollFlags::IN)];
    match poll(&mut files, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Tables {
    fn attach(slow: &SlowPath, flows: &FlowsSettings) -> Result<Self, String> {
        let failed = |error: slow::SlowError| error.to_string();
        let status = slow.record_writer(STATUS).map_err(failed)?;
        let table = slow.hash_writer(FLOWS).map_err(failed)?;
        let state = slow.state(FLOWS).map_err(failed)?;
        let settings = FlowSettings {
            policy: flows.policy(),
            receive_buffer: RECEIVE_BUFFER,
            rejudges: flows.rejudge,
        };
        let follower = FlowFollower::open(settings, table, &state, now());
        let follower = follower.map_err(|error| error.to_string())?;
        Ok(Self { status, follower, settings: flows.clone() })
    }

    /// Publishes that the slow path lives, and whether lanes may forward flows.
    fn publish(&mut self, is_active: bool) {
        let FlowsSettings { mark, mask, one_way, grace, .. } = self.settings;
        let status = FlowStatus {
            heartbeat: now(),
            grace: u64::from(grace) * 1_000_000,
            is_active: is_active.into(),
            mark,
            mask,
            one_way: one_way.into(),
            statistics: self.follower.statistics(),
        };
        // A lane that delays the reuse of memory gets the next heartbeat.
        let _ = self.status.set(&status);
    }
}
