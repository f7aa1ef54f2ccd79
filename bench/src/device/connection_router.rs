//! A router with NAT for new TCP connections, each of which is opened, carries a request and a
//! response, and is closed: Linux alone, or with the kernel tier and its slow path beside it.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastlane::flow_tier::KernelTier;
use fastlane::mirror::flows::{
    FLOW_WORDS, FlowFollower, FlowKey, FlowPolicy, FlowRecord, FlowSettings, FlowTier,
};
use fastlane::now;
use fastlane_table::{HashWriter, Readers, Spec, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{Pid, gettid};

use crate::Result;
use crate::device::cpu_time::pin;
use crate::device::frame_generator::{CONNECTION, ConnectionGenerator};
use crate::device::nat_router::{MASQUERADE, attach};
use crate::device::router_links::{BATCH, RouterLinks};
use crate::device::translated_flows::living_status;
use crate::rivals::ffi;
use crate::slices::{Contender, Slice};

/// Rules of a firewall, the same for Linux alone but for what stands for `MARK` and `REPORT`.
const RULES: &str = "
table inet firewall {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state invalid drop
        ct state established,related MARK
        iifname \"INSIDE\" REPORT accept
    }
}
";
/// Statement that makes established connections fast, and one that does so once they have grown,
/// which those here do not.
const MARK: &str = "ct mark set ct mark | 0x1 accept";
const MARK_GROWN: &str = "ct packets > 16 ct mark set ct mark | 0x1 accept
        ct state established,related accept";
/// Statements of the rule for new connections with which Linux reports less of them; the latter are
/// enough for connections that have grown.
const REPORT_LESS: &str = "ct event set assured,\"mark\",destroy";
const REPORT_GROWN: &str = "ct event set \"mark\",destroy";
/// Setting of a network namespace: 0 if nobody is told of its connections.
const EVENTS: &str = "/proc/sys/net/netfilter/nf_conntrack_events";
/// CPU of the slow path.
const SLOW_CPU: usize = 0;
/// Number of flows, in both directions.
const CAPACITY: usize = 1 << 17;
/// Numbers of connections, which are parts of addresses.
const NUMBERS: u32 = 1 << 22;
/// Bytes of a request, and of a response.
const PAYLOAD: usize = 64;
/// Receive buffer for events in bytes.
const RECEIVE_BUFFER: usize = 16 << 20;
/// Time without an event after which the slow path is done with a batch. It wakes so often, and
/// connections are few: with 1 ms its wake-ups cost more than the events.
const QUIET: Duration = Duration::from_millis(50);

/// Router of new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firewall {
    /// Linux alone.
    Linux,
    /// The same, with rules by which connections would be fast once they have grown.
    GrownLinux,
    /// The kernel tier and its slow path.
    Tier,
    /// The same, with a rule by which Linux reports less of each connection.
    QuietTier,
    /// The same, with rules by which connections are fast, and reported, once they have grown.
    GrownTier,
    /// The kernel tier without flows, and nobody who follows connections.
    EmptyTier,
    /// The kernel tier, which is paused: it reads headers and looks nothing up.
    PausedTier,
}

/// CPU time that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Threads of the packets' way: the kernel tier and Linux.
    Packets,
    /// The slow path in addition, which has another CPU.
    SlowPath,
}

/// A router whose connections are always new.
pub struct ConnectionRouter {
    links: RouterLinks,
    generator: ConnectionGenerator,
    slow_path: Option<SlowPath>,
    /// The kernel tier, if it has no slow path.
    _tier: Option<KernelTier>,
    counted: Counted,
    /// Number of the next connection.
    next: u32,
}

impl ConnectionRouter {
    /// Creates a router. The calling thread is in its network namespace afterwards.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses something: it takes root.
    pub fn new(firewall: Firewall, counted: Counted) -> Result<Self> {
        let mut links = RouterLinks::new()?;
        let (mark, report) = match firewall {
            Firewall::GrownTier => (MARK_GROWN, REPORT_GROWN),
            // A statement about reports would cost it something although nobody gets any.
            Firewall::GrownLinux => (MARK_GROWN, ""),
            Firewall::QuietTier => (MARK, REPORT_LESS),
            _ => (MARK, ""),
        };
        links.add_rules(&RULES.replace("MARK", mark).replace("REPORT", report))?;
        links.add_rules(MASQUERADE)?;
        let mut tier = match firewall {
            Firewall::Linux | Firewall::GrownLinux => None,
            _ => Some(KernelTier::load(CAPACITY)?),
        };
        if let Some(tier) = &mut tier {
            attach(tier, &links)?;
        }
        let mut slow_path = None;
        match (firewall, &mut tier) {
            (Firewall::Tier | Firewall::QuietTier | Firewall::GrownTier, tier) => {
                slow_path = tier.take().map(SlowPath::start).transpose()?;
            }
            (Firewall::EmptyTier, Some(tier)) => tier.publish(&living_status())?,
            _ => {}
        }
        if slow_path.is_none() {
            // A listener in any namespace makes Linux report the connections of all.
            fs::write(EVENTS, "0")?;
        }
        let flows = if firewall == Firewall::GrownTier { 0 } else { u64::from(BATCH) };
        links.poll_by_threads()?;
        let generator = ConnectionGenerator::new(PAYLOAD, links.unused())?;
        let mut router = Self { links, generator, slow_path, _tier: tier, counted, next: 1 };
        router.slow_batch()?;
        router.check(flows)?;
        router.forget()?;
        Ok(router)
    }

    /// Passes a batch of connections, packet by packet.
    fn batch(&mut self) -> Result<u64> {
        if self.next + BATCH >= NUMBERS {
            self.next = 1;
        }
        for step in 0..CONNECTION.len() {
            self.pass(step)?;
        }
        self.next += BATCH;
        Ok(u64::from(BATCH))
    }

    /// Passes the first batch, of which the slow path sees each packet before the next one. At full
    /// rate it learns of some connections only after their end.
    fn slow_batch(&mut self) -> Result<()> {
        for step in 0..CONNECTION.len() {
            self.pass(step)?;
            self.slow_path.as_ref().map_or(Ok(()), SlowPath::wait)?;
        }
        self.next += BATCH;
        Ok(())
    }

    /// Passes a packet of each connection of a batch.
    fn pass(&mut self, step: usize) -> Result<()> {
        let (generator, first) = (&mut self.generator, self.next);
        let direction = CONNECTION[step];
        let interface = self.links.sender(direction)?;
        self.links.pass(direction, || generator.send(step, first, interface))
    }

    /// Checks that Linux has seen all connections of the first batch end, and that the slow path
    /// has made this number of them flows.
    fn check(&self, flows: u64) -> Result<()> {
        let listed = Command::new("conntrack").args(["-L", "-p", "tcp"]).output()?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let ended = listed.lines().filter(|line| line.contains("TIME_WAIT")).count();
        if ended != BATCH as usize {
            return Err(format!("Linux has {ended} closed connections: {listed}").into());
        }
        if let Some(slow_path) = &self.slow_path {
            slow_path.wait()?;
            let added = slow_path.added.load(Ordering::Relaxed);
            if added != flows {
                return Err(format!("{added} connections became flows, not {flows}").into());
            }
        }
        Ok(())
    }

    /// Makes Linux forget all connections, after the slow path is done with them.
    fn forget(&self) -> Result<()> {
        if let Some(slow_path) = &self.slow_path {
            slow_path.wait()?;
        }
        let flushed = Command::new("conntrack").arg("-F").output()?;
        if !flushed.status.success() {
            return Err(String::from_utf8_lossy(&flushed.stderr).into_owned().into());
        }
        self.slow_path.as_ref().map_or(Ok(()), SlowPath::wait)
    }

    fn cpu(&self) -> Result<u64> {
        let slow = match (&self.slow_path, self.counted) {
            (Some(slow_path), Counted::SlowPath) => ffi::cpu_of_thread(slow_path.id)?,
            _ => 0,
        };
        Ok(self.links.cpu()? + slow)
    }
}

impl Contender for ConnectionRouter {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        self.links.enter()?;
        let (cpu, end, mut connections) = (self.cpu()?, Instant::now() + length, 0);
        while Instant::now() < end {
            connections += self.batch()?;
        }
        // What it still has to do belongs to these connections.
        self.slow_path.as_ref().map_or(Ok(()), SlowPath::wait)?;
        let slice = Slice { cpu: self.cpu()? - cpu, packets: connections };
        self.forget()?;
        Ok(slice)
    }
}

/// The slow path of flows in a thread, as in `router offload`. It ends when this is dropped.
struct SlowPath {
    stop: Arc<AtomicBool>,
    /// Number of times that no event came for a while.
    quiet: Arc<AtomicU64>,
    /// Number of flows that were added.
    added: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
    id: Pid,
}

impl SlowPath {
    /// Starts it in the network namespace of the calling thread.
    fn start(tier: KernelTier) -> Result<Self> {
        let (stop, quiet, added) = Default::default();
        let mut this = Self { stop, quiet, added, thread: None, id: gettid() };
        let (stop, quiet, added) =
            (Arc::clone(&this.stop), Arc::clone(&this.quiet), Arc::clone(&this.added));
        let (send, started) = mpsc::channel();
        this.thread = Some(std::thread::spawn(move || {
            pin(SLOW_CPU);
            let result = follow(tier, &stop, &quiet, &added, || {
                let _ = send.send(gettid());
            });
            if let Err(error) = &result {
                eprintln!("the slow path: {error}");
            }
            result
        }));
        this.id = started.recv().map_err(|_| "the slow path does not start")?;
        Ok(this)
    }

    /// Waits until it has nothing to do.
    fn wait(&self) -> Result<()> {
        // The first time may have begun before the caller's last packet.
        let wanted = self.quiet.load(Ordering::Relaxed) + 2;
        while self.quiet.load(Ordering::Relaxed) < wanted {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err("the slow path has ended".into());
            }
            std::thread::sleep(QUIET / 4);
        }
        Ok(())
    }
}

impl Drop for SlowPath {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Follows connections until `stop`, and calls `started` first.
fn follow(
    mut tier: KernelTier,
    stop: &AtomicBool,
    quiet: &AtomicU64,
    added: &AtomicU64,
    started: impl FnOnce(),
) -> Result<()> {
    tier.publish(&living_status())?;
    let table = Spec::hash::<FlowKey, FlowRecord>("flows", CAPACITY).create()?;
    let state = State::attach(&Spec::state::<FLOW_WORDS>("flows", CAPACITY, 1).create()?)?;
    let writer = Box::new(HashWriter::attach(&table, &Arc::new(Readers::unknown()))?);
    let policy = FlowPolicy { mark: 1, mask: 1, one_way: false };
    let settings =
        FlowSettings { policy, receive_buffer: RECEIVE_BUFFER, rejudges: false, rules: 0 };
    let mut follower = FlowFollower::open(settings, writer, Some(Box::new(tier)), &state, now())?;
    started();
    let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(QUIET.subsec_nanos()) };
    while !stop.load(Ordering::Relaxed) {
        let mut files: Vec<_> =
            follower.interrupts().map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)).collect();
        let has_events = poll(&mut files, Some(&wait))? > 0;
        follower.step(now())?;
        let statistics = follower.statistics();
        added.store(statistics.added, Ordering::Relaxed);
        if statistics.lost > 0 {
            return Err("Linux reports connections faster than the slow path reads".into());
        }
        if !has_events {
            quiet.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}
