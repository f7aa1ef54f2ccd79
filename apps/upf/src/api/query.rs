//! Queries of the API: their queue from the API thread to the control plane, and their replies.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;

use super::metrics::Snapshot;
use super::view::{
    AssociationView, CapturePlan, CaptureSubject, DrainView, NodeView, Page, Sample, SessionRow,
    SessionView, TopView, Trace, TraceSubject,
};
use crate::pfcp::ReloadReport;
use crate::session::SessionIndex;

/// Capacity of the queue.
const WAITING: usize = 16;
/// Maximum number of sessions of a page.
pub(super) const MAX_PAGE: usize = 1000;
/// Maximum number of sessions in a trace.
const MAX_TRACED: usize = 16;

/// Content of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// All associations.
    Associations,
    /// A page of sessions by session index: up to `limit` behind the cursor.
    Sessions {
        /// Cursor: index of the last session of the previous page.
        after: Option<SessionIndex>,
        /// Maximum number of sessions.
        limit: usize,
    },
    /// Session with this UP SEID.
    Session(u64),
    /// Explanation of how packets of a subscriber, address or tunnel are forwarded, and the
    /// decision about a sample packet.
    Trace(TraceSubject, Option<Sample>),
    /// Ports, tunnels and addresses for a capture.
    Capture(CaptureSubject),
    /// Busiest sessions, at most this number, by a scan of all of them.
    Top(usize),
    /// All counters.
    Snapshot,
    /// State of the drain.
    Drain,
    /// Start of a drain with a release period in seconds, and its state afterwards.
    StartDrain(Option<u64>),
    /// End of a drain, and its state afterwards.
    EndDrain,
    /// Reload of the configuration file.
    Reload {
        /// Path that the client expects, absolute.
        config: Option<PathBuf>,
        /// False if it is only checked.
        is_applied: bool,
    },
}

/// Reply to a query.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Reply to [`Query::Associations`].
    Associations(Vec<AssociationView>),
    /// Reply to [`Query::Sessions`].
    Sessions(Page),
    /// Reply to [`Query::Session`], if it exists.
    Session(Option<Box<SessionView>>),
    /// Reply to [`Query::Trace`].
    Trace(Box<Trace>),
    /// Reply to [`Query::Capture`].
    Capture(CapturePlan),
    /// Reply to [`Query::Top`].
    Top(Box<TopView>),
    /// Reply to [`Query::Snapshot`].
    Snapshot(Box<Snapshot>),
    /// Reply to [`Query::Drain`], [`Query::StartDrain`] and [`Query::EndDrain`].
    Drain(DrainView),
    /// Reply to [`Query::Reload`].
    Reload(ReloadReport),
}

/// A query with the channel of its reply.
#[derive(Debug)]
pub struct PendingQuery {
    /// Content of the query.
    pub query: Query,
    /// Channel of the reply; the client may have disconnected.
    pub answer: oneshot::Sender<Reply>,
}

/// Control plane's end of the queue, readable while queries may wait.
#[derive(Debug)]
pub struct QueryReceiver {
    queries: Receiver<PendingQuery>,
    bell: Arc<OwnedFd>,
}

/// API's end of the queue.
#[derive(Clone, Debug)]
pub(super) struct QuerySender {
    queries: SyncSender<PendingQuery>,
    bell: Arc<OwnedFd>,
}

/// Reason why a query gets no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryError {
    /// The queue is full.
    Busy,
    /// The control plane has ended, or has no fast path now.
    Ended,
}

/// Creates the queue.
pub(super) fn pair() -> rustix::io::Result<(QuerySender, QueryReceiver)> {
    let (sender, receiver) = sync_channel(WAITING);
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let sender = QuerySender { queries: sender, bell: Arc::clone(&bell) };
    Ok((sender, QueryReceiver { queries: receiver, bell }))
}

impl QueryReceiver {
    /// Returns the next query, if any. The descriptor stays readable until a call finds the queue
    /// empty.
    pub fn next(&self) -> Option<PendingQuery> {
        // Reads the eventfd first: a sender enqueues the query, then signals.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        // More queries may follow.
        self.queries.try_recv().ok().inspect(|_| self.ring())
    }

    /// Makes the descriptor readable: there is work left.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl AsFd for QueryReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl QuerySender {
    /// Sends a query and waits for the reply.
    pub(super) async fn ask(&self, query: Query) -> Result<Reply, QueryError> {
        let (answer, answered) = oneshot::channel();
        self.queries.try_send(PendingQuery { query, answer }).map_err(|error| match error {
            TrySendError::Full(_) => QueryError::Busy,
            TrySendError::Disconnected(_) => QueryError::Ended,
        })?;
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        answered.await.map_err(|_| QueryError::Ended)
    }
}

/// Answers a query. A query that changes something has been carried out before.
pub fn answer(query: &Query, node: &dyn NodeView) -> Reply {
    match query {
        Query::Associations => {
            let all = node.associations().into_iter().take(MAX_PAGE);
            Reply::Associations(all.map(|it| AssociationView::of(it, node)).collect())
        }
        Query::Sessions { after, limit } => {
            let limit = (*limit).clamp(1, MAX_PAGE);
            let found = node.after(*after, limit);
            // A full page may be followed by another one.
            let next = found.last().filter(|_| found.len() == limit).map(|it| it.id.0);
            let sessions = found.iter().map(|it| SessionRow::of(it, node)).collect();
            Reply::Sessions(Page { sessions, next, total: node.sessions() })
        }
        Query::Session(seid) => {
            let found = node.session(*seid);
            Reply::Session(found.map(|it| Box::new(SessionView::of(&it, node))))
        }
        Query::Trace(who, sample) => {
            let found = node.find(who, MAX_TRACED);
            Reply::Trace(Box::new(Trace::of(who, sample.as_ref(), &found, node)))
        }
        Query::Capture(subject) => {
            let found = match subject {
                CaptureSubject::Seid(seid) => node.session(*seid).into_iter().collect(),
                CaptureSubject::Supi(supi) => {
                    node.find(&TraceSubject::Supi(supi.clone()), MAX_TRACED)
                }
                CaptureSubject::Address(address) => {
                    node.find(&TraceSubject::Address(*address), MAX_TRACED)
                }
            };
            Reply::Capture(node.capture_plan(&found))
        }
        Query::Top(limit) => {
            let mut top = node.top();
            top.sessions.truncate((*limit).clamp(1, MAX_PAGE));
            Reply::Top(Box::new(top))
        }
        Query::Snapshot => Reply::Snapshot(Box::new(node.numbers())),
        Query::Drain | Query::StartDrain(_) | Query::EndDrain => Reply::Drain(node.drain()),
        Query::Reload { .. } => Reply::Reload(node.reload()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_the_bell_rings_until_it_is_empty() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let (sender, receiver) = pair().unwrap();
        let readable = |receiver: &QueryReceiver| {
            let mut one = [PollFd::new(receiver, PollFlags::IN)];
            poll(&mut one, Some(&Timespec::default())).unwrap() == 1
        };
        assert!(!readable(&receiver));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut asked: Vec<_> =
                (0..=WAITING).map(|_| Box::pin(sender.ask(Query::Snapshot))).collect();
            let mut refused = 0;
            for ask in &mut asked {
                tokio::select! {
                    biased;
                    said = ask => refused += usize::from(said.err() == Some(QueryError::Busy)),
                    () = std::future::ready(()) => {}
                }
            }
            assert_eq!(refused, 1);
            let mut taken = 0;
            while readable(&receiver) {
                taken += usize::from(receiver.next().is_some());
            }
            assert_eq!(taken, WAITING);
            drop(receiver);
            assert_eq!(sender.ask(Query::Snapshot).await.err(), Some(QueryError::Ended));
        });
    }
}
