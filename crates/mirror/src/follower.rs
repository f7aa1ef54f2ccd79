//! Follows what Linux does, and keeps the tables.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use fastlane_core::PortId;
use fastlane_table::{AnyState, Readers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::message::{Dump, Message, Reachability};
use super::model::{Changes, Inconsistency, Model};
use super::publish::{Occupancy, Publisher};
use super::settings::{REST, RESYNC_PAUSE};
use super::socket::{Dumper, ROUTING_GROUPS, Received, Socket};
use super::{Error, Memories, MirrorSettings};

mod neighbour_probes;
mod request_sender;

use neighbour_probes::NeighbourProbes;
use request_sender::RequestSender;

/// So many events are taken in before the tables are written.
const EVENTS: usize = 512;
/// So often this is done before others get a turn.
const ROUNDS: usize = 16;
/// What found no room is tried again when there is room, and after this time.
const RETRY: Duration = Duration::from_secs(1);
/// The same while what was given up waits for the lanes.
const RETRY_SOON: Duration = Duration::from_millis(5);
/// So often events are looked after while Linux lets a dump wait.
const LOOK: Duration = Duration::from_millis(1);
/// So many parts of dumps wait to be taken in.
const PARTS: usize = 16;
/// So many events are kept while everything is read anew; with more, it is read once more.
const BACKLOG: usize = 1 << 18;

/// What a follower has seen and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerStatistics {
    /// Messages about what Linux has changed.
    pub events: u64,
    /// How often the tables were written: grows with every change.
    pub generation: u64,
    /// How often everything was read anew, the first time included.
    pub resyncs: u64,
    /// How often because events were lost.
    pub overruns: u64,
    /// How often because Linux may have changed something without saying so, or changed what the
    /// mirror did not have.
    pub doubts: u64,
    /// How often because what was read had changed meanwhile.
    pub interrupted: u64,
    /// Messages that could not be read. Each has everything read anew.
    pub malformed: u64,
    /// How often Linux was asked to look after a neighbour.
    pub probes: u64,
    /// How long the last reading anew has taken, in nanoseconds.
    pub resync_time: u64,
    /// What is in the tables.
    pub occupancy: Occupancy,
}

/// Keeps the tables of a mirror. One thread runs it; it belongs to the network namespace in which
/// it was opened.
pub struct Follower {
    settings: MirrorSettings,
    memories: Memories,
    events: Socket,
    /// `None` while a thread dumps.
    dumper: Option<Dumper>,
    state: Model,
    publisher: Publisher,
    neighbour_probes: NeighbourProbes,
    request_sender: RequestSender,
    statistics: FollowerStatistics,
    /// Why everything must be read anew, if it must.
    wanted: Option<Wanted>,
    /// Not before.
    next_resync: Instant,
    next_retry: Instant,
    /// Whether all events were taken in.
    heard_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    First,
    Overrun,
    Inconsistency,
    Interrupted,
    Malformed,
}

impl Follower {
    /// Makes the tables of a mirror and fills them with what Linux knows in the network namespace
    /// of the calling thread. `ports` are the interfaces, by their numbers, that packets can leave
    /// by; `readers` are the lanes that will read.
    ///
    /// # Errors
    /// When the kernel refuses a socket, a dump or memory.
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
        let refused = |error| Error::kernel("following the kernel's routes", error);
        let mut publisher = Publisher::attach(&memories, &settings, readers)?;
        publisher.set_ports(ports, &Model::default());
        let mut follower = Self {
            // Events first, so that nothing is missed between the dumps and them.
            events: Socket::of_events(&ROUTING_GROUPS, settings.receive_buffer).map_err(refused)?,
            dumper: Some(Dumper::new().map_err(refused)?),
            state: Model::new(&settings.tables),
            neighbour_probes: NeighbourProbes::new(settings.keep_alive),
            request_sender: RequestSender::start().map_err(refused)?,
            memories,
            settings,
            publisher,
            statistics: FollowerStatistics::default(),
            wanted: Some(Wanted::First),
            next_resync: Instant::now(),
            next_retry: Instant::now(),
            heard_all: false,
        };
        follower.resync()?;
        Ok(follower)
    }

    /// The memories of the tables, for the lanes.
    #[must_use]
    pub fn memories(&self) -> &Memories {
        &self.memories
    }

    /// What Linux knows, as far as it was heard of.
    #[must_use]
    pub fn state(&self) -> &Model {
        &self.state
    }

    /// What was seen and done.
    #[must_use]
    pub fn statistics(&self) -> FollowerStatistics {
        FollowerStatistics { occupancy: self.publisher.occupancy(), ..self.statistics }
    }

    /// What is to be told to people since the last time, with the remedy: tables that are too
    /// small. Each kind is told once.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.publisher.take_notices()
    }

    /// Lanes count in `counts` by the numbers of routes
    /// ([`NextHop::route`](super::NextHop::route)). From now on what is counted under a number is
    /// zero when a route gets it, and once now: call it before the lanes run.
    pub fn count_in(&mut self, counts: AnyState) {
        self.publisher.count_in(counts);
    }

    /// Which interfaces, by their numbers, are ports from now on.
    pub fn set_ports(&mut self, ports: &[(u32, PortId)]) {
        self.publisher.set_ports(ports, &self.state);
        self.statistics.generation += 1;
    }

    /// Follows until `stop` can be read.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(&mut self, stop: impl AsFd) -> Result<(), Error> {
        while !self.wait(stop.as_fd())? {
            self.step()?;
        }
        Ok(())
    }

    /// Waits until there is something to do, or `stop` can be read: true.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
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
            Err(error) => Err(Error::kernel("waiting for the kernel's events", error)),
        }
    }

    /// How long nothing has to be done unless an event comes; `None`: for good.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let resync = self.wanted.map(|_| self.next_resync.saturating_duration_since(now));
        let retry = self.publisher.has_waiting();
        let retry = retry.then(|| self.next_retry.saturating_duration_since(now));
        [resync, retry, self.neighbour_probes.timeout(now)].into_iter().flatten().min()
    }

    /// Whether what Linux has told is in the tables, and Linux is not suspected of having changed
    /// more than that.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.heard_all && self.wanted.is_none()
    }

    /// Takes in the events that are there, writes the tables, and reads everything anew when that
    /// has to be. It does not wait for events.
    ///
    /// # Errors
    /// When the kernel refuses what it has granted before. The tables stay as they are.
    pub fn step(&mut self) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            self.heard_all = self.take_in(None)?;
            if self.heard_all {
                break;
            }
        }
        if self.publisher.has_waiting() && Instant::now() >= self.next_retry {
            self.publisher.retry(&self.state);
            let soon = self.publisher.has_room_soon();
            self.next_retry = Instant::now() + if soon { RETRY_SOON } else { RETRY };
        }
        if self.wanted.is_some() && Instant::now() >= self.next_resync {
            self.resync()?;
        }
        let now = Instant::now();
        while let Some(request) = self.neighbour_probes.next(now) {
            self.statistics.probes += u64::from(self.request_sender.ask(request));
        }
        Ok(())
    }

    fn want(&mut self, why: Wanted) {
        self.wanted.get_or_insert(why);
    }

    /// Takes in some events; `kept` gets them, too. True when there are no more.
    fn take_in(&mut self, mut kept: Option<&mut Backlog>) -> Result<bool, Error> {
        let mut changes = Changes::default();
        let mut empty = false;
        for _ in 0..EVENTS {
            let received = self.events.receive().map_err(failed)?;
            let messages = match received {
                Received::Messages(messages) => messages,
                Received::Nothing => {
                    empty = true;
                    break;
                }
                Received::Lost => {
                    self.wanted.get_or_insert(Wanted::Overrun);
                    self.statistics.overruns += 1;
                    continue;
                }
            };
            for message in messages {
                let Ok((_, message)) = message else {
                    self.statistics.malformed += 1;
                    self.wanted.get_or_insert(Wanted::Malformed);
                    continue;
                };
                self.statistics.events += 1;
                if let Some(kept) = kept.as_deref_mut() {
                    kept.add(&message);
                }
                self.state.apply(message, &mut changes);
            }
        }
        if let Some(doubt) = changes.doubt {
            self.doubt(doubt);
        }
        if !changes.is_empty() {
            self.publish(changes);
        }
        Ok(empty)
    }

    fn doubt(&mut self, _: Inconsistency) {
        self.statistics.doubts += 1;
        self.want(Wanted::Inconsistency);
    }

    fn publish(&mut self, changes: Changes) {
        for key in &changes.neighbours {
            let neighbour = self.state.neighbours().get(key);
            let is_stale = neighbour.is_some_and(|known| known.state == Reachability::Stale);
            self.neighbour_probes
                .note(*key, is_stale && self.neighbour_probes.concerns(*key, &self.publisher));
        }
        self.publisher.publish(&self.state, &changes);
        self.statistics.generation += 1;
    }

    /// Reads everything anew. Meanwhile the tables follow the events as they come.
    fn resync(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        let wanted = self.wanted.take();
        let done = self.read_anew();
        let took = start.elapsed();
        self.next_resync = Instant::now() + RESYNC_PAUSE.max(took * REST);
        if done.is_err() {
            self.wanted = wanted.or(Some(Wanted::First)); // and it is tried again
            return done;
        }
        self.statistics.resyncs += 1;
        self.statistics.resync_time = took.as_nanos() as u64;
        Ok(())
    }

    fn read_anew(&mut self) -> Result<(), Error> {
        let mut fresh = Model::new(&self.settings.tables);
        let mut backlog = Backlog::default();
        self.dump(&mut fresh, &mut backlog)?;
        // What came before the dumps came to it is in them, too: to hear it again does no harm, but
        // what it takes away may be gone already.
        while !self.take_in(Some(&mut backlog))? && !backlog.is_full() {}
        if backlog.is_full() {
            self.want(Wanted::Overrun);
        }
        let mut changes = Changes::default();
        for message in backlog.messages {
            fresh.apply(message, &mut changes);
        }
        if changes.doubt == Some(Inconsistency::Silent) {
            self.want(Wanted::Inconsistency);
        }
        let changes = fresh.differences(&self.state);
        self.state = fresh;
        self.publisher.set_ready();
        self.publish(changes);
        Ok(())
    }

    /// Takes in what a thread dumps. Linux lets dumps wait while it works on interfaces and routes
    /// of any namespace, for longer than events may.
    fn dump(&mut self, fresh: &mut Model, backlog: &mut Backlog) -> Result<(), Error> {
        let refused = |what: Dump, error| Error::kernel(format!("reading {}", what.name()), error);
        let Some(mut dumper) = self.dumper.take() else {
            return Err(failed(io::Error::other("its dump was given up")));
        };
        let (parts, dumped) = sync_channel(PARTS);
        let done = std::thread::scope(|scope| {
            let dump_all = || {
                let parts = parts; // the end of the thread is the end of the parts
                let take = |messages| parts.send(messages).is_ok();
                Dump::ALL.into_iter().try_fold(true, |whole, what| {
                    let is_whole = dumper.dump(what, take).map_err(|error| refused(what, error));
                    is_whole.map(|is_whole| whole && is_whole)
                })
            };
            let thread = std::thread::Builder::new().name("mirror-dump".to_owned());
            let thread = thread.spawn_scoped(scope, dump_all).map_err(failed)?;
            let taken = self.take_parts(dumped, fresh, backlog);
            let whole = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            taken?;
            if !whole? {
                self.statistics.interrupted += 1;
                self.want(Wanted::Interrupted);
            }
            Ok(())
        });
        self.dumper = Some(dumper);
        done
    }

    /// Takes in parts of dumps until there are no more, and meanwhile events.
    fn take_parts(
        &mut self,
        dumped: Receiver<Vec<Message>>,
        fresh: &mut Model,
        backlog: &mut Backlog,
    ) -> Result<(), Error> {
        loop {
            match dumped.recv_timeout(LOOK) {
                Ok(messages) => {
                    let mut ignored = Changes::default();
                    messages.into_iter().for_each(|message| fresh.apply(message, &mut ignored));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.take_in(Some(backlog))?;
        }
    }
}

impl AsFd for Follower {
    /// Can be read when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// The events that came while everything was read anew.
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
    Error::kernel("receiving the kernel's events", error)
}
