//! Netlink follower: reads events and dumps, and updates the tables.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use fastlane_core::PortId;
use fastlane_table::{AnyState, Readers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::message::{Dump, Link, Message, Reachability};
use super::model::{Changes, Inconsistency, MAIN, Model};
use super::publish::{Occupancy, Publisher};
use super::settings::{REST, RESYNC_PAUSE};
use super::socket::{Dumper, ROUTING_GROUPS, Received, Socket, TRAFFIC_CONTROL_GROUP};
use super::{Error, Memories, MirrorSettings};

mod neighbour_probes;
mod request_sender;

use neighbour_probes::NeighbourProbes;
use request_sender::RequestSender;

/// Maximum number of events that are applied before the tables are written.
const EVENT_BATCH: usize = 512;
/// Maximum number of such batches in one call of [`Follower::step`].
const BATCHES_PER_STEP: usize = 16;
/// Interval after which entries that did not fit are retried.
const RETRY: Duration = Duration::from_secs(1);
/// Retry interval while released records wait for the lanes to pass a turn.
const RETRY_SOON: Duration = Duration::from_millis(5);
/// Interval at which events are read while a dump is in progress.
const EVENT_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of dumped batches that wait to be applied.
const DUMP_BATCHES: usize = 16;
/// Maximum number of events stored during a resync. With more, another resync follows.
const BACKLOG: usize = 1 << 18;

/// Statistics of a follower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerStatistics {
    /// Number of change messages received.
    pub events: u64,
    /// Number of table updates.
    pub generation: u64,
    /// Number of resyncs, including the first.
    pub resyncs: u64,
    /// Number of resyncs requested because events were lost.
    pub overruns: u64,
    /// Number of resyncs requested because Linux may have changed routes without an event, or
    /// changed a route that the mirror did not have.
    pub doubts: u64,
    /// Number of resyncs requested because a dump was interrupted by changes.
    pub interrupted: u64,
    /// Number of messages that could not be parsed. Each requests a resync.
    pub malformed: u64,
    /// Number of neighbour probes that Linux was asked to send.
    pub probes: u64,
    /// Duration of the last resync, in nanoseconds.
    pub resync_time: u64,
    /// Occupancy of the tables.
    pub occupancy: Occupancy,
}

/// Keeps the tables of a mirror current. One thread runs it, for the network namespace in which it
/// was opened.
pub struct Follower {
    settings: MirrorSettings,
    memories: Memories,
    events: Socket,
    /// The dump socket; `None` while a thread dumps.
    dumper: Option<Dumper>,
    state: Model,
    publisher: Publisher,
    neighbour_probes: NeighbourProbes,
    request_sender: RequestSender,
    statistics: FollowerStatistics,
    /// Reason of the pending resync, if one is needed.
    resync_reason: Option<ResyncReason>,
    /// Earliest time of the next resync.
    next_resync: Instant,
    next_retry: Instant,
    /// True once all pending events were applied.
    events_drained: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResyncReason {
    First,
    Overrun,
    Inconsistency,
    Interrupted,
    Malformed,
}

impl Follower {
    /// Creates the tables of a mirror and fills them from the network namespace of the calling
    /// thread. `ports` maps interface indexes to ports; `readers` are the lanes that will read.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a socket, a dump or memory.
    pub fn open(
        settings: MirrorSettings,
        ports: &[(u32, PortId)],
        readers: &Arc<Readers>,
    ) -> Result<Self, Error> {
        let memories = Memories::create(&settings)?;
        Self::with_memories(settings, memories, ports, readers)
    }

    fn with_memories(
        settings: MirrorSettings,
        memories: Memories,
        ports: &[(u32, PortId)],
        readers: &Arc<Readers>,
    ) -> Result<Self, Error> {
        let refused = |error| Error::kernel("subscribing to rtnetlink events", error);
        let mut groups = ROUTING_GROUPS.to_vec();
        groups.extend(settings.honour_traffic_control.then_some(TRAFFIC_CONTROL_GROUP));
        let mut publisher = Publisher::attach(&memories, &settings, readers)?;
        publisher.set_ports(ports, &Model::default());
        let mut follower = Self {
            // Events first, so that nothing is missed between the dumps and them.
            events: Socket::of_events(&groups, settings.receive_buffer).map_err(refused)?,
            dumper: Some(Dumper::new().map_err(refused)?),
            state: Model::new(&settings.tables),
            neighbour_probes: NeighbourProbes::new(
                settings.keep_alive,
                settings.tables.iter().any(|table| *table != MAIN),
            ),
            request_sender: RequestSender::start().map_err(refused)?,
            memories,
            settings,
            publisher,
            statistics: FollowerStatistics::default(),
            resync_reason: Some(ResyncReason::First),
            next_resync: Instant::now(),
            next_retry: Instant::now(),
            events_drained: false,
        };
        follower.resync()?;
        Ok(follower)
    }

    /// Returns the shared memory of the tables, for the lanes.
    #[must_use]
    pub fn memories(&self) -> &Memories {
        &self.memories
    }

    /// Returns the model: Linux's forwarding state according to dumps and events.
    #[must_use]
    pub fn state(&self) -> &Model {
        &self.state
    }

    /// Returns the statistics.
    #[must_use]
    pub fn statistics(&self) -> FollowerStatistics {
        FollowerStatistics { occupancy: self.publisher.occupancy(), ..self.statistics }
    }

    /// Returns new messages for the operator, with remedies: tables that are too small. Each kind
    /// is returned once.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.publisher.take_notices()
    }

    /// Registers lane state that is indexed by route number
    /// ([`NextHop::route`](super::NextHop::route)). A route's words are zeroed when the route gets
    /// its number, and once now. Call it before the lanes run.
    pub fn count_in(&mut self, counts: AnyState) {
        self.publisher.count_in(counts);
    }

    /// Returns the index of the interface that Linux has for a VLAN of another interface.
    #[must_use]
    pub fn vlan_interface(&self, carrier: u32, vlan: u16) -> Option<u32> {
        let is_it = |link: &&Link| vlan != 0 && (link.carrier, link.vlan) == (carrier, vlan);
        self.state.links().values().find(is_it).map(|link| link.index)
    }

    /// Replaces the set of interfaces that are ports.
    pub fn set_ports(&mut self, ports: &[(u32, PortId)]) {
        self.publisher.set_ports(ports, &self.state);
        self.statistics.generation += 1;
    }

    /// Follows events until `stop` is readable.
    ///
    /// # Errors
    /// Returns the errors of [`step`](Self::step) and of waiting.
    pub fn run(&mut self, stop: impl AsFd) -> Result<(), Error> {
        while !self.wait(stop.as_fd())? {
            self.step()?;
        }
        Ok(())
    }

    /// Waits for work. Returns true if `stop` is readable.
    ///
    /// # Errors
    /// Returns an error if poll(2) fails.
    pub fn wait(&self, stop: BorrowedFd<'_>) -> Result<bool, Error> {
        let timeout = self.timeout().map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut files = [
            PollFd::new(&self.events, PollFlags::IN),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
        ];
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) => Ok(!files[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(Error::kernel("waiting for rtnetlink events", error)),
        }
    }

    /// Returns the time until work is due without an event; `None` if there is none.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let resync = self.resync_reason.map(|_| self.next_resync.saturating_duration_since(now));
        let retry = self.publisher.has_waiting();
        let retry = retry.then(|| self.next_retry.saturating_duration_since(now));
        [resync, retry, self.neighbour_probes.timeout(now)].into_iter().flatten().min()
    }

    /// Returns true if the tables hold everything that Linux has reported and no resync is pending.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.events_drained && self.resync_reason.is_none()
    }

    /// Applies pending events, writes the tables and resyncs if one is due. Does not wait for
    /// events.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a dump or memory. The tables stay as they are.
    pub fn step(&mut self) -> Result<(), Error> {
        for _ in 0..BATCHES_PER_STEP {
            self.events_drained = self.apply_events(None)?;
            if self.events_drained {
                break;
            }
        }
        if self.publisher.has_waiting() && Instant::now() >= self.next_retry {
            self.publisher.retry(&self.state);
            let soon = self.publisher.has_room_soon();
            self.next_retry = Instant::now() + if soon { RETRY_SOON } else { RETRY };
        }
        // Linux reports nothing to a socket that has lost events until all others are read.
        let is_due = self.events_drained && Instant::now() >= self.next_resync;
        if self.resync_reason.is_some() && is_due {
            self.resync()?;
        }
        let now = Instant::now();
        self.neighbour_probes.look(&self.publisher, now);
        while let Some(request) = self.neighbour_probes.next(now) {
            self.statistics.probes += u64::from(self.request_sender.send(request));
        }
        Ok(())
    }

    fn request_resync(&mut self, reason: ResyncReason) {
        self.resync_reason.get_or_insert(reason);
    }

    /// Applies up to one batch of events and appends them to `backlog`. Returns true if none are
    /// left.
    fn apply_events(&mut self, mut backlog: Option<&mut Backlog>) -> Result<bool, Error> {
        let mut changes = Changes::default();
        let mut empty = false;
        for _ in 0..EVENT_BATCH {
            let received = self.events.receive().map_err(failed)?;
            let messages = match received {
                Received::Messages(messages) => messages,
                Received::Nothing => {
                    empty = true;
                    break;
                }
                Received::Lost => {
                    self.resync_reason.get_or_insert(ResyncReason::Overrun);
                    self.statistics.overruns += 1;
                    continue;
                }
            };
            for message in messages {
                let Ok((_, message)) = message else {
                    self.statistics.malformed += 1;
                    self.resync_reason.get_or_insert(ResyncReason::Malformed);
                    continue;
                };
                self.statistics.events += 1;
                if let Some(backlog) = backlog.as_deref_mut() {
                    backlog.add(&message);
                }
                self.state.apply(message, &mut changes);
            }
        }
        if changes.inconsistency.is_some() {
            self.note_inconsistency();
        }
        if !changes.is_empty() {
            self.publish(changes);
        }
        Ok(empty)
    }

    fn note_inconsistency(&mut self) {
        self.statistics.doubts += 1;
        self.request_resync(ResyncReason::Inconsistency);
    }

    fn publish(&mut self, changes: Changes) {
        for key in &changes.neighbours {
            let neighbour = self.state.neighbours().get(key);
            let is_stale = neighbour.is_some_and(|known| known.state == Reachability::Stale);
            self.neighbour_probes
                .set_stale(*key, is_stale && self.neighbour_probes.includes(*key, &self.publisher));
        }
        self.publisher.publish(&self.state, &changes);
        self.statistics.generation += 1;
    }

    /// Reads everything again. Events continue to be applied meanwhile.
    fn resync(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        let reason = self.resync_reason.take();
        let done = self.read_everything();
        let took = start.elapsed();
        self.next_resync = Instant::now() + RESYNC_PAUSE.max(took * REST);
        if done.is_err() {
            self.resync_reason = reason.or(Some(ResyncReason::First)); // and it is tried again
            return done;
        }
        self.statistics.resyncs += 1;
        self.statistics.resync_time = took.as_nanos() as u64;
        Ok(())
    }

    fn read_everything(&mut self) -> Result<(), Error> {
        let mut fresh = Model::new(&self.settings.tables);
        let mut backlog = Backlog::default();
        self.dump(&mut fresh, &mut backlog)?;
        // Events from before the dumps are contained in them. Applying an event again does no harm,
        // but the object that it removes may be missing already.
        while !self.apply_events(Some(&mut backlog))? && !backlog.is_full() {}
        if backlog.is_full() {
            self.request_resync(ResyncReason::Overrun);
        }
        let mut changes = Changes::default();
        for message in backlog.messages {
            fresh.apply(message, &mut changes);
        }
        if changes.inconsistency == Some(Inconsistency::SilentChange) {
            self.request_resync(ResyncReason::Inconsistency);
        }
        let changes = fresh.differences(&self.state);
        self.state = fresh;
        self.publisher.set_ready();
        self.publish(changes);
        Ok(())
    }

    /// Dumps in a separate thread. Linux delays dumps while it configures interfaces and routes of
    /// any namespace; events must not wait that long.
    fn dump(&mut self, fresh: &mut Model, backlog: &mut Backlog) -> Result<(), Error> {
        let refused = |what: Dump, error| Error::kernel(format!("reading {}", what.name()), error);
        let Some(mut dumper) = self.dumper.take() else {
            return Err(failed(io::Error::other("the previous dump was abandoned")));
        };
        let (parts, dumped) = sync_channel(DUMP_BATCHES);
        let controls = self.settings.honour_traffic_control;
        let done = std::thread::scope(|scope| {
            let dump_all = || {
                let parts = parts; // the end of the thread is the end of the parts
                let mut dumps = VecDeque::from(Dump::ALL);
                dumps.extend(controls.then_some(Dump::Disciplines));
                let mut is_whole = true;
                while let Some(what) = dumps.pop_front() {
                    let take = |messages: Vec<Message>| {
                        dumps.extend(messages.iter().filter_map(Dump::following));
                        parts.send(messages).is_ok()
                    };
                    is_whole &= dumper.dump(what, take).map_err(|error| refused(what, error))?;
                }
                Ok(is_whole)
            };
            let thread = std::thread::Builder::new().name("mirror-dump".to_owned());
            let thread = thread.spawn_scoped(scope, dump_all).map_err(failed)?;
            let taken = self.apply_dump(dumped, fresh, backlog);
            let whole: Result<bool, Error> =
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            taken?;
            if !whole? {
                self.statistics.interrupted += 1;
                self.request_resync(ResyncReason::Interrupted);
            }
            Ok(())
        });
        self.dumper = Some(dumper);
        done
    }

    /// Applies dumped batches until the dump ends, and events meanwhile.
    fn apply_dump(
        &mut self,
        dumped: Receiver<Vec<Message>>,
        fresh: &mut Model,
        backlog: &mut Backlog,
    ) -> Result<(), Error> {
        loop {
            match dumped.recv_timeout(EVENT_INTERVAL) {
                Ok(messages) => {
                    let mut ignored = Changes::default();
                    messages.into_iter().for_each(|message| fresh.apply(message, &mut ignored));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.apply_events(Some(backlog))?;
        }
    }
}

impl AsFd for Follower {
    /// Returns the event socket; it is readable when events are pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Events received during a resync.
#[derive(Debug, Default)]
struct Backlog {
    messages: Vec<Message>,
}

impl Backlog {
    fn add(&mut self, message: &Message) {
        if !self.is_full() {
            self.messages.push(message.clone());
        }
    }

    fn is_full(&self) -> bool {
        self.messages.len() >= BACKLOG
    }
}

fn failed(error: io::Error) -> Error {
    Error::kernel("receiving rtnetlink events", error)
}
