//! Event loop of the control plane process: UDP sockets of N4, lane messages, timers and API
//! requests.

use std::io;
use std::time::{Duration, Instant};

use fastlane::slow::{Messages, SlowError, SlowPath, attach_wait};
use fastlane::table::TableError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::neighbours::Neighbours;
use super::node::{AttachError, Keep, NodeTables};
use super::reload::{self, ConfigurationFile, ConfigurationStore, Reloader};
use super::resolver::Resolver;
use super::sockets::{Incoming, SocketError, Sockets};
use super::{LaneMessage, N4Protocol, Node, Outbox, Shutdown};
use crate::config::Settings;
use crate::config::running::RunningConfig;
use crate::rules::layout::message::{SessionEvent, kind};
use crate::time::{MILLISECOND, Now, SECOND};
use crate::transactions::UsageRecord;

/// Maximum number of datagrams read from a socket in one iteration.
const DATAGRAMS: usize = 64;
/// Maximum number of lane messages read in one iteration.
const MESSAGES: usize = 512;
/// Longest poll timeout in nanoseconds. A shutdown request does not interrupt `poll`, so it is
/// checked this often.
const WAIT: u64 = 100 * MILLISECOND;
/// Time for which a control plane that is ending waits for the user plane process, which may be
/// restarting.
const ATTACH_WAIT: Duration = Duration::from_secs(2);

/// Hook for a service that shares the event loop, such as the HTTP API.
pub trait LoopService {
    /// Notes a new user plane process.
    ///
    /// # Errors
    /// Its tables have an unexpected format.
    fn attached(&mut self, slow: &SlowPath) -> Result<(), SlowError> {
        let _ = slow;
        Ok(())
    }

    /// Notes that the user plane process has ended, or that the node is opened anew.
    fn detached(&mut self, node: &Node) {
        let _ = node;
    }

    /// Notes the settings that the node works with from now on.
    fn configured(&mut self, settings: &Settings) {
        let _ = settings;
    }

    /// Returns true if usage records are to be made for [`take_records`](Self::take_records).
    fn exports_usage(&self) -> bool {
        false
    }

    /// Takes the usage records of events since the last call.
    fn take_records(&mut self, records: Vec<UsageRecord>) {
        drop(records);
    }

    /// Appends the descriptors to poll, with the events that make [`serve`](Self::serve) do
    /// something.
    fn poll<'a>(&'a self, descriptors: &mut Vec<PollFd<'a>>) {
        let _ = descriptors;
    }

    /// Serves pending requests, with bounded work, until one has reloaded the configuration.
    fn serve(&mut self, node: &mut Node, reloader: &mut Reloader<'_>, now: Now);

    /// Serves pending requests, with bounded work, while there is no user plane process.
    fn serve_detached(&mut self) {}
}

/// No hook.
impl LoopService for () {
    fn serve(&mut self, _: &mut Node, _: &mut Reloader<'_>, _: Now) {}
}

/// Error of the event loop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The user plane process has unexpected tables.
    #[error(transparent)]
    Slow(#[from] SlowError),
    /// An N4 address cannot be used.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The thread that resolves names of peers cannot be started.
    #[error("app.n4.peers: names cannot be resolved: {0}; configure addresses")]
    Resolver(io::Error),
    /// The node's tables cannot be opened.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A table cannot be written.
    #[error(transparent)]
    Table(#[from] TableError),
    /// `poll` failed.
    #[error("cannot wait for datagrams: {0}")]
    Wait(std::io::Error),
}

/// Runs the control plane process of the application whose Fastlane session is `session`, until
/// `shutdown` ends it. It serves one user plane process after the other. Associations stay when
/// they are replaced.
///
/// It begins with the configuration that is stored in the tables, if there is one, and regards the
/// file as a reload.
///
/// The first shutdown request starts a drain: the process ends when all associations are released,
/// at the latest after `n4.release-s`. The second one ends it at once.
///
/// # Errors
/// The user plane process has unexpected tables, or an N4 address is missing.
pub fn run(
    file: &ConfigurationFile<'_>,
    session: &str,
    shutdown: &Shutdown,
    service: &mut dyn LoopService,
) -> Result<(), RunError> {
    let mut running = file.first.clone();
    let mut sockets = Sockets::unbound();
    let mut resolver = Resolver::start(&running.settings.n4).map_err(RunError::Resolver)?;
    let mut keep = Keep::default();
    while let Some(slow) = attach(session, shutdown, service)? {
        let (running, sockets, resolver) = (&mut running, &mut sockets, &mut resolver);
        let service = &mut *service;
        let event_loop = &mut EventLoop { file, running, sockets, resolver, shutdown, service };
        match serve_process(event_loop, &slow, &mut keep) {
            Err(error) if slow.is_alive() => return Err(error),
            Ok(LoopEnd::Shutdown) => return Ok(()),
            Ok(LoopEnd::Detached | LoopEnd::Reload(_)) | Err(_) => {
                tracing::warn!("the user plane process has ended; waiting for the next one")
            }
        }
    }
    Ok(())
}

/// Reason for the end of the loop that serves a node.
#[derive(Debug)]
enum LoopEnd {
    /// This process ends.
    Shutdown,
    /// The user plane process has ended.
    Detached,
    /// The node continues with this configuration.
    Reload(Box<RunningConfig>),
}

/// Waits for a user plane process. Returns `None` if this process is to end before. A drain that
/// has begun goes on with a user plane process that comes soon.
fn attach(
    session: &str,
    shutdown: &Shutdown,
    service: &mut dyn LoopService,
) -> Result<Option<SlowPath>, RunError> {
    use fastlane::session::SessionError;
    let end = shutdown.is_requested().then(|| Instant::now() + ATTACH_WAIT);
    let waits = || !shutdown.is_requested() || end.is_some_and(|end| Instant::now() < end);
    while waits() && !shutdown.is_immediate() {
        match attach_wait(session, Duration::from_nanos(WAIT)) {
            Err(SlowError::Session(SessionError::Absent { .. } | SessionError::Silent { .. })) => {
                service.serve_detached();
            }
            other => return Ok(Some(other?)),
        }
    }
    Ok(None)
}

/// Parts of the event loop that outlive a user plane process.
struct EventLoop<'a> {
    file: &'a ConfigurationFile<'a>,
    /// The configuration in force.
    running: &'a mut RunningConfig,
    sockets: &'a mut Sockets,
    resolver: &'a mut Option<Resolver>,
    shutdown: &'a Shutdown,
    service: &'a mut dyn LoopService,
}

/// Serves one user plane process until it ends or this process is to end. A reload opens the node
/// anew, on the same tables.
fn serve_process(
    event_loop: &mut EventLoop<'_>,
    slow: &SlowPath,
    keep: &mut Keep,
) -> Result<LoopEnd, RunError> {
    let mut store = ConfigurationStore::attach(slow)?;
    if let Some(stored) = store.stored() {
        configure(event_loop, stored)?;
    } else {
        // The tables are new: numbers of generations begin again.
        event_loop.running.generation = 1;
    }
    if event_loop.sockets.is_empty() {
        // Only one process can write the tables, so the addresses are free now or soon.
        let settings = &event_loop.running.settings;
        *event_loop.sockets = Sockets::bind(settings, Neighbours::new(settings))?;
    }
    let mut messages = slow.messages()?;
    if let Err(reason) = store.commit(event_loop.running, &mut messages) {
        tracing::error!("{reason}");
    }
    drop(messages);
    // A file that has changed since then is a reload, once.
    let mut is_first = true;
    loop {
        match serve_node(event_loop, slow, &mut store, keep, is_first)? {
            LoopEnd::Reload(next) => configure(event_loop, *next)?,
            other => return Ok(other),
        }
        is_first = false;
    }
}

/// Makes the parts of the loop beside the node work with a configuration.
fn configure(event_loop: &mut EventLoop<'_>, next: RunningConfig) -> Result<(), RunError> {
    let is_other = next.settings.n4.peers != event_loop.running.settings.n4.peers;
    *event_loop.running = next;
    let settings = &event_loop.running.settings;
    if is_other {
        *event_loop.resolver = Resolver::start(&settings.n4).map_err(RunError::Resolver)?;
    }
    event_loop.sockets.neighbours = Neighbours::new(settings);
    event_loop.service.configured(settings);
    (event_loop.file.on_change)(settings);
    Ok(())
}

/// Opens a node and serves it. With `is_reloaded`, a file that differs from the configuration in
/// force is applied first.
fn serve_node(
    event_loop: &mut EventLoop<'_>,
    slow: &SlowPath,
    store: &mut ConfigurationStore,
    keep: &mut Keep,
    is_reloaded: bool,
) -> Result<LoopEnd, RunError> {
    let mut messages = slow.messages()?;
    let mut out = Outbox::new();
    out.usage.export(event_loop.service.exports_usage());
    let settings = &event_loop.running.settings;
    let parts = NodeTables::attach(settings, slow)?;
    if parts.record.get().is_none() && keep.is_new() {
        next_second(event_loop.shutdown);
    }
    let mut node = Node::open(settings, parts, keep, Now::read(), &mut out)?;
    if !event_loop.shutdown.is_requested() {
        node.clear_obsolete_exit(Now::read());
    }
    set_peer_addresses(&mut node, event_loop.resolver.as_ref());
    event_loop.service.attached(slow)?;
    let running = event_loop.running.clone();
    let mut reloader = Reloader {
        file: event_loop.file,
        running: &running,
        store,
        messages: &mut messages,
        next: None,
    };
    if is_reloaded {
        let report = reloader.reload(node.sessions(), true);
        if !report.changes.is_empty() || !report.refusals.is_empty() {
            reload::log(&report);
        }
    }
    let ended = serve(event_loop, &mut node, slow, &mut reloader, &mut out);
    event_loop.service.detached(&node);
    if matches!(ended, Ok(LoopEnd::Shutdown)) {
        log_end(&node);
        node.clear_drain();
    }
    *keep = node.keep();
    ended
}

/// Logs what a control plane that ends leaves behind.
fn log_end(node: &Node) {
    let (sessions, count) = (node.sessions().len(), node.associations().count());
    if count > 0 {
        tracing::warn!("ending with {sessions} sessions of {count} associations");
    } else {
        tracing::info!("ending without associations");
    }
}

/// Hands the node what is known of peers that are configured by name.
fn set_peer_addresses(node: &mut Node, resolver: Option<&Resolver>) {
    for (index, addresses) in resolver.into_iter().flat_map(Resolver::latest) {
        node.set_peer_addresses(index, addresses);
    }
}

/// Waits for the next second. The recovery time stamp of a new node has a resolution of seconds and
/// must differ from an earlier one.
fn next_second(shutdown: &Shutdown) {
    let begun = Now::read();
    let mut now = begun;
    while now.ntp() == begun.ntp() && !shutdown.is_immediate() {
        std::thread::sleep(Duration::from_nanos(now.left_of_second().min(WAIT)));
        now = Now::read();
    }
}

fn serve(
    event_loop: &mut EventLoop<'_>,
    node: &mut Node,
    slow: &SlowPath,
    reloader: &mut Reloader<'_>,
    out: &mut Outbox,
) -> Result<LoopEnd, RunError> {
    let EventLoop { file, sockets, resolver, shutdown, service, .. } = event_loop;
    while !shutdown.is_immediate() {
        if let Some(next) = reloader.next.take() {
            return Ok(LoopEnd::Reload(Box::new(next)));
        }
        sockets.bind_missing(Now::read());
        if resolver.as_mut().is_some_and(|resolver| resolver.collect()) {
            set_peer_addresses(node, resolver.as_ref());
        }
        let now = Now::read();
        if shutdown.is_requested() {
            node.prepare_exit(now);
        }
        if node.may_exit(now) {
            break;
        }
        let deadline = node.tick(now, out);
        flush(node, sockets, reloader.messages, out, now);
        let wait = deadline.map_or(WAIT, |at| at.saturating_sub(now.monotonic).min(WAIT));
        let ready = sleep(slow, sockets, reloader.messages, &**service, wait)?;
        let now = Now::read();
        for index in ready {
            datagrams(node, sockets, index, now, out);
            flush(node, sockets, reloader.messages, out, now);
        }
        if !hear(node, reloader.messages, now, out)? {
            return Ok(LoopEnd::Detached);
        }
        flush(node, sockets, reloader.messages, out, now);
        service.take_records(out.usage.take());
        service.serve(node, reloader, now);
        if reloader.next.is_none() && file.take_request() {
            reload::log(&reloader.reload(node.sessions(), true));
        }
    }
    Ok(LoopEnd::Shutdown)
}

/// Waits for work. Returns the indices of the readable sockets.
fn sleep(
    slow: &SlowPath,
    sockets: &Sockets,
    messages: &mut Messages,
    service: &dyn LoopService,
    nanoseconds: u64,
) -> Result<Vec<usize>, RunError> {
    let may_wait = messages.arm();
    let mut events: Vec<PollFd<'_>> =
        sockets.descriptors().map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)).collect();
    events.push(PollFd::new(messages, PollFlags::IN));
    events.push(PollFd::new(slow, PollFlags::IN | PollFlags::RDHUP));
    service.poll(&mut events);
    let wait = if may_wait { nanoseconds } else { 0 };
    let timeout = Timespec {
        tv_sec: i64::try_from(wait / SECOND).unwrap_or(0),
        tv_nsec: i64::try_from(wait % SECOND).unwrap_or(0),
    };
    match poll(&mut events, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(RunError::Wait(error.into())),
    }
    let is_ready =
        |(index, event): (usize, &PollFd<'_>)| (!event.revents().is_empty()).then_some(index);
    let ready = events.iter().take(sockets.len()).enumerate().filter_map(is_ready).collect();
    drop(events);
    messages.disarm();
    Ok(ready)
}

/// Handles the datagrams of a socket.
fn datagrams(node: &mut Node, sockets: &mut Sockets, index: usize, now: Now, out: &mut Outbox) {
    for _ in 0..DATAGRAMS {
        let Some(Incoming { protocol, local, from, bytes }) = sockets.receive(index) else {
            return;
        };
        match protocol {
            N4Protocol::Pfcp => node.receive(now, local, from, bytes, out),
            N4Protocol::GtpU => node.receive_gtpu(now, local, from, bytes, out),
        }
    }
}

/// Handles lane messages. Returns false if the user plane process has ended.
fn hear(
    node: &mut Node,
    messages: &mut Messages,
    now: Now,
    out: &mut Outbox,
) -> Result<bool, RunError> {
    for _ in 0..MESSAGES {
        match messages.receive(Duration::ZERO) {
            Ok(Some(message)) => node.lane_message(now, message.kind, message.body, out),
            Ok(None) => return Ok(true),
            Err(SlowError::Ended) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Sends the contents of the outbox.
fn flush(
    node: &mut Node,
    sockets: &mut Sockets,
    messages: &mut Messages,
    out: &mut Outbox,
    now: Now,
) {
    let failed = out.datagrams.drain(..).filter(|datagram| !sockets.send(datagram)).count();
    node.count_unsent(failed as u64);
    for peer in out.neighbours.drain(..) {
        sockets.neighbours.find_out(peer, now);
    }
    for message in out.lanes.drain(..) {
        match message {
            // Lanes check their sessions anyway; this message makes it soon.
            LaneMessage::Rules(session) => {
                let event = SessionEvent::about(session, now.monotonic);
                for lane in 0..messages.lanes() {
                    messages.send_value(lane, kind::RULES, &event);
                }
            }
            LaneMessage::Probe(probe) => {
                messages.send_value(0, kind::PROBE, &probe);
            }
            LaneMessage::UserPacket(body) => {
                for lane in 0..messages.lanes() {
                    messages.send(lane, kind::USER_PACKET, &body);
                }
            }
        }
    }
}
