//! Queue of queries from the API thread to the control plane.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;

use super::metrics::Snapshot;
use super::view::{AssociationView, Page, Sample, SessionView, Trace};
use crate::session::SessionIndex;

/// Capacity of the queue.
const WAITING: usize = 16;

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
    /// All counters.
    Snapshot,
}

/// Subject of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceSubject {
    /// Subscriber: digits of the SUPI.
    Supi(String),
    /// UE address.
    Address(IpAddr),
    /// Local TEID.
    Teid(u32),
}

/// Parses an address; a TEID as `0x` and hex digits or a number of at most 10 digits; a SUPI with
/// or without `imsi-`.
impl FromStr for TraceSubject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        if let Some(hex) = text.strip_prefix("0x") {
            let teid = u32::from_str_radix(hex, 16);
            return teid.map(Self::Teid).map_err(|_| format!("`{text}` is no TEID of 32 bits"));
        }
        let supi = text.strip_prefix("imsi-");
        match supi.unwrap_or(text) {
            number if supi.is_none() && number.len() <= 10 && digits(number) => {
                let teid = number.parse();
                teid.map(Self::Teid).map_err(|_| format!("`{text}` is no TEID of 32 bits"))
            }
            number if digits(number) && number.len() <= 15 => Ok(Self::Supi(number.to_owned())),
            _ => Err(format!(
                "`{text}` is neither SUPI, address nor TEID; write a SUPI (imsi-001010000000001), \
                 an address of a UE, or a TEID (0x1234)"
            )),
        }
    }
}

impl fmt::Display for TraceSubject {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Supi(digits) => write!(to, "imsi-{digits}"),
            Self::Address(address) => address.fmt(to),
            Self::Teid(teid) => write!(to, "{teid:#010x}"),
        }
    }
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
    /// Reply to [`Query::Numbers`].
    Snapshot(Box<Snapshot>),
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
    /// The control plane has ended.
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
        self.queries.try_recv().ok().inspect(|_| {
            // More queries may follow.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_who_in_four_ways() {
        let of = |text: &str| text.parse::<TraceSubject>();
        assert_eq!(of("10.45.0.2"), Ok(TraceSubject::Address("10.45.0.2".parse().unwrap())));
        assert_eq!(of("2001:db8::1"), Ok(TraceSubject::Address("2001:db8::1".parse().unwrap())));
        assert_eq!(of("0x1f"), Ok(TraceSubject::Teid(31)));
        assert_eq!(of("31"), Ok(TraceSubject::Teid(31)));
        assert_eq!(of("4294967295"), Ok(TraceSubject::Teid(u32::MAX)));
        assert!(of("4294967296").is_err());
        assert!(of("0x100000000").is_err());
        assert_eq!(of("imsi-31"), Ok(TraceSubject::Supi("31".to_owned())));
        assert_eq!(of("001010000000001"), Ok(TraceSubject::Supi("001010000000001".to_owned())));
        for nobody in ["", "x", "imsi-", "imsi-1x", "1234567890123456", "10.45.0"] {
            assert!(of(nobody).is_err(), "{nobody}");
        }
        for who in ["imsi-31", "10.45.0.2", "0x0000001f"] {
            assert_eq!(of(who).unwrap().to_string(), who);
        }
    }

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
