//! Event loop of the control plane process: sockets, lane messages, timers and API requests.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastlane::slow::{Messages, SlowError, SlowPath, attach_wait};
use fastlane::table::TableError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::node::{AttachError, Keep, NodeTables};
use super::socket::{SocketError, Sockets};
use super::{LaneMessage, Node, Outbox};
use crate::config::Settings;
use crate::pfcp::neighbours::Neighbours;
use crate::rules::layout::message::{SessionEvent, kind};
use crate::time::Now;
use crate::time::{MILLISECOND, SECOND};

/// Maximum number of datagrams read from a socket in one iteration.
const DATAGRAMS: usize = 64;
/// Maximum number of lane messages read in one iteration.
const MESSAGES: usize = 512;
/// Longest poll timeout in nanoseconds. The stop flag does not interrupt `poll`, so it is checked
/// this often.
const WAIT: u64 = 100 * MILLISECOND;

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

    /// Notes that the user plane process has ended.
    fn detached(&mut self) {}

    /// Returns a descriptor to poll, if any. It is readable when there is a request.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Serves pending requests, with bounded work.
    fn serve(&mut self, node: &mut Node, now: Now);
}

/// No hook.
impl LoopService for () {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn serve(&mut self, _: &mut Node, _: Now) {}
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
/// `stop` is true. It serves one user plane process after the other. Associations stay when they
/// are replaced.
///
/// # Errors
/// The user plane process has unexpected tables, or an N4 address is missing.
pub fn run(
    settings: &Settings,
    session: &str,
    stop: &AtomicBool,
    service: &mut dyn LoopService,
) -> Result<(), RunError> {
    let mut sockets = None;
    let mut keep = Keep::default();
    while let Some(slow) = attach(session, stop)? {
        // Only one process can write the tables, so the addresses are free now or soon.
        let sockets = match &mut sockets {
            Some(sockets) => sockets,
            none => none.insert(Sockets::bind(&settings.n4, Neighbours::new(settings))?),
        };
        let event_loop = &mut EventLoop { settings, sockets, stop, service: &mut *service };
        match serve_process(event_loop, &slow, &mut keep) {
            Err(error) if slow.is_alive() => return Err(error),
            Ok(()) if stop.load(Ordering::Relaxed) => return Ok(()),
            Ok(()) | Err(_) => {
                tracing::warn!("the user plane process has ended; waiting for the next one")
            }
        }
    }
    Ok(())
}

/// Waits for a user plane process. Returns `None` if it is stopped before.
fn attach(session: &str, stop: &AtomicBool) -> Result<Option<SlowPath>, RunError> {
    use fastlane::session::SessionError;
    while !stop.load(Ordering::Relaxed) {
        match attach_wait(session, Duration::from_nanos(WAIT)) {
            Err(SlowError::Session(SessionError::Absent { .. } | SessionError::Silent { .. })) => {}
            other => return Ok(Some(other?)),
        }
    }
    Ok(None)
}

/// Parts of the event loop that outlive a user plane process.
struct EventLoop<'a> {
    settings: &'a Settings,
    sockets: &'a mut Sockets,
    stop: &'a AtomicBool,
    service: &'a mut dyn LoopService,
}

/// Serves one user plane process until it ends or `stop` is true.
fn serve_process(
    event_loop: &mut EventLoop<'_>,
    slow: &SlowPath,
    keep: &mut Keep,
) -> Result<(), RunError> {
    let mut messages = slow.messages()?;
    let mut out = Outbox::new();
    let parts = NodeTables::attach(event_loop.settings, slow)?;
    if parts.record.get().is_none() && keep.is_new() {
        next_second(event_loop.stop);
    }
    let mut node = Node::open(event_loop.settings, parts, keep, Now::read(), &mut out)?;
    event_loop.service.attached(slow)?;
    let ended = serve(event_loop, &mut node, slow, &mut messages, &mut out);
    event_loop.service.detached();
    *keep = node.keep();
    ended
}

/// Waits for the next second. The recovery time stamp of a new node has a resolution of seconds and
/// must differ from an earlier one.
fn next_second(stop: &AtomicBool) {
    let begun = Now::read();
    let mut now = begun;
    while now.ntp() == begun.ntp() && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_nanos(now.left_of_second().min(WAIT)));
        now = Now::read();
    }
}

fn serve(
    event_loop: &mut EventLoop<'_>,
    node: &mut Node,
    slow: &SlowPath,
    messages: &mut Messages,
    out: &mut Outbox,
) -> Result<(), RunError> {
    let EventLoop { sockets, stop, service, .. } = event_loop;
    while !stop.load(Ordering::Relaxed) {
        let now = Now::read();
        let deadline = node.tick(now, out);
        flush(node, sockets, messages, out, now);
        let wait = deadline.map_or(WAIT, |at| at.saturating_sub(now.monotonic).min(WAIT));
        let ready = sleep(slow, sockets, messages, &**service, wait)?;
        let now = Now::read();
        for index in ready {
            datagrams(node, sockets, index, now, out);
            flush(node, sockets, messages, out, now);
        }
        if !hear(node, messages, now, out)? {
            return Ok(());
        }
        flush(node, sockets, messages, out, now);
        service.serve(node, now);
    }
    Ok(())
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
    events.extend(service.descriptor().map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)));
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
        let Some((local, from, bytes)) = sockets.receive(index) else { return };
        node.receive(now, local, from, bytes, out);
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
        }
    }
}
