//! The command `router offload`: the slow path of flows. It follows the connections of Linux and
//! writes those that may be fast to the tables of the running router and of the kernel tier.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fastlane::flow_tier::KernelTier;
use fastlane::mirror::flows::{
    FlowFollower, FlowKey, FlowRecord, FlowSettings, FlowStatistics, FlowStatus, FlowTier, PinsPath,
};
use fastlane::mirror::packet_rules::{PerPacketRule, per_packet_rule};
use fastlane::now;
use fastlane::slow::{self, SlowPath, Writer};
use fastlane::table::{HashWriter, RecordWriter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::tier_ports::{TierPorts, TierSettings};
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
    /// Remove the kernel tier from its interfaces, and end. Stop `router offload` first.
    #[arg(long)]
    remove: bool,
}

/// Settings of the slow path.
struct OffloadSettings {
    flows: FlowsSettings,
    tier: Option<TierSettings>,
}

/// Writers of the tables.
struct Tables {
    status: Writer<RecordWriter<FlowStatus>>,
    follower: FlowFollower<Writer<HashWriter<FlowKey, FlowRecord>>>,
    settings: FlowsSettings,
    /// Ports of the kernel tier.
    tier_ports: Option<TierPorts>,
    pins: PinsPath,
    /// Rule for the sake of which no flow is fast.
    packet_rule: Option<PerPacketRule>,
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
        let tier = TierSettings::new(&loaded);
        let flows = loaded.settings.flows.ok_or(
            "the configuration has no flows; write `\"flows\": { \"mark\": 1, \"mask\": 1 }` in \
             its `app`",
        )?;
        let settings = OffloadSettings { flows, tier };
        if self.remove {
            return settings.remove();
        }
        check_events()?;
        let session = loaded.session.to_string_lossy().into_owned();
        let mut is_waiting = false;
        // Rules that have judged the connections, as long as this process lives.
        let mut rules = 0;
        loop {
            match slow::attach(&session) {
                Ok(slow) => {
                    is_waiting = false;
                    rules = follow(&slow, &settings, rules)?;
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

/// Follows the connections until the router ends. `rules` have judged the connections, unless the
/// tables say otherwise. Returns those that have at the end.
fn follow(slow: &SlowPath, settings: &OffloadSettings, rules: u64) -> Result<u64, String> {
    let mut tables = match Tables::attach(slow, settings, rules) {
        Ok(tables) => tables,
        // The router has ended in the meantime, or its predecessor's tables are still in use.
        Err(_) if !slow.is_alive() => return Ok(rules),
        Err(error) => return Err(error),
    };
    tables.rejudge_if_needed()?;
    tables.read_rules()?;
    tables.publish(true)?;
    let taken_over = tables.follower.statistics().flows;
    eprintln!("router offload: running; {taken_over} flows taken over");
    let mut heartbeat = now();
    loop {
        tables.wait(slow).map_err(|error| format!("cannot wait: {error}"))?;
        if !slow.is_alive() {
            return Ok(tables.follower.rules());
        }
        // Routes first: packets that Linux sends elsewhere must not take the old path.
        tables.tier_ports.as_mut().map_or(Ok(()), TierPorts::step)?;
        tables.follower.step(now()).map_err(|error| error.to_string())?;
        tables.rejudge_if_needed()?;
        if tables.follower.take_rule_change() {
            tables.read_rules()?;
            heartbeat = 0;
        }
        if now().saturating_sub(heartbeat) >= HEARTBEAT {
            tables.publish(true)?;
            heartbeat = now();
        }
    }
}

impl OffloadSettings {
    /// Removes the pins of the kernel tier, by which its program is attached.
    fn remove(&self) -> Result<String, String> {
        let tier = self.tier.as_ref().ok_or("the configuration has no port of the kernel tier")?;
        KernelTier::remove(tier.pins()).map_err(|error| error.to_string())?;
        Ok(format!("removed {}\n", tier.pins().display()))
    }
}

impl Tables {
    fn attach(slow: &SlowPath, settings: &OffloadSettings, rules: u64) -> Result<Self, String> {
        let failed = |error: slow::SlowError| error.to_string();
        let OffloadSettings { flows, tier } = settings;
        let status: Writer<RecordWriter<FlowStatus>> =
            slow.record_writer(STATUS).map_err(failed)?;
        let table: Writer<HashWriter<FlowKey, FlowRecord>> =
            slow.hash_writer(FLOWS).map_err(failed)?;
        let tier_ports = tier.as_ref().map(|tier| TierPorts::open(tier, table.capacity()));
        let tier_ports = tier_ports.transpose()?;
        let pins = match tier {
            None => PinsPath::default(),
            Some(tier) => PinsPath::new(tier.pins()).ok_or("`app.flows.pins` is too long")?,
        };
        let tier = tier_ports.as_ref().map(|ports| Box::new(ports.tier()) as Box<dyn FlowTier>);
        let state = slow.state(FLOWS).map_err(failed)?;
        let settings = FlowSettings {
            policy: flows.policy(),
            receive_buffer: RECEIVE_BUFFER,
            rejudges: flows.rejudge,
            rules: status.get().map_or(rules, |predecessor| predecessor.rules),
        };
        let follower = FlowFollower::open(settings, table, tier, &state, now());
        let follower = follower.map_err(|error| error.to_string())?;
        let (settings, packet_rule) = (flows.clone(), None);
        Ok(Self { status, follower, settings, tier_ports, pins, packet_rule })
    }

    /// Waits for events or until a step is due.
    fn wait(&self, slow: &SlowPath) -> io::Result<()> {
        let time = self.follower.timeout();
        let time =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut files = vec![PollFd::new(slow, PollFlags::IN)];
        let interrupts = self.follower.interrupts();
        files.extend(interrupts.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)));
        files.extend(self.tier_ports.as_ref().map(|ports| PollFd::new(ports, PollFlags::IN)));
        match poll(&mut files, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets the rules of Linux judge the flows again if they have changed.
    fn rejudge_if_needed(&mut self) -> Result<(), String> {
        while self.follower.must_rejudge() {
            self.publish(false)?;
            self.follower.rejudge(now()).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Looks for a rule of nftables that acts on each packet of established connections. While
    /// there is one, all packets are Linux's.
    fn read_rules(&mut self) -> Result<(), String> {
        if self.settings.ignore_packet_rules {
            return Ok(());
        }
        let found = per_packet_rule(&self.settings.policy());
        let found = found.map_err(|error| format!("cannot read the rules of nftables: {error}"))?;
        match (&found, &self.packet_rule) {
            (Some(rule), before) if before.as_ref() != Some(rule) => eprintln!(
                "router offload: nothing is fast: {rule} acts on each packet of established \
                 connections; accept them before it, or set app.flows.ignore-packet-rules"
            ),
            (None, Some(rule)) => eprintln!("router offload: {rule} is gone; flows are fast again"),
            _ => {}
        }
        self.packet_rule = found;
        Ok(())
    }

    /// Publishes that the slow path lives, and whether lanes and the kernel tier may forward flows,
    /// unless a rule forbids it.
    fn publish(&mut self, is_active: bool) -> Result<(), String> {
        let is_active = is_active && self.packet_rule.is_none();
        let FlowsSettings { mark, mask, one_way, grace, .. } = self.settings;
        let tier_full = self.tier_ports.as_ref().map_or(0, |ports| ports.tier().lock().full());
        let status = FlowStatus {
            heartbeat: now(),
            grace: u64::from(grace) * 1_000_000,
            is_active: is_active.into(),
            mark,
            mask,
            one_way: one_way.into(),
            rules: self.follower.rules(),
            statistics: FlowStatistics { tier_full, ..self.follower.statistics() },
            pins: self.pins,
        };
        // A lane that delays the reuse of memory gets the next heartbeat.
        let _ = self.status.set(&status);
        let published = self.follower.tier().map_or(Ok(()), |tier| tier.publish(&status));
        published.map_err(|error| format!("the kernel tier takes no status: {error}"))
    }
}
