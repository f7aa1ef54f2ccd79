//! Questions on their way from the API to the slow half.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;

use super::metrics::Numbers;
use super::view::{AssociationView, Page, Sample, SessionView, Trace};
use crate::session::SessionId;

/// Questions that wait for the slow half.
const WAITING: usize = 16;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// All associations.
    Associations,
    /// Sessions in the order of their places: the first ones beyond this place, at most so many.
    Sessions {
        /// The last place of the page before.
        after: Option<SessionId>,
        /// The most of them.
        limit: usize,
    },
    /// The session of this SEID of ours.
    Session(u64),
    /// Why packets of whom go where they go, and what would become of this one.
    Trace(Who, Option<Sample>),
    /// What is counted.
    Numbers,
}

/// Whose packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Of a subscriber: digits of the SUPI.
    Supi(String),
    /// Of an address of a user.
    Address(IpAddr),
    /// Of a tunnel of ours.
    Teid(u32),
}

/// As people write it: an address; a TEID with `0x` before it, or a number of at most 10 digits;
/// a SUPI, with or without `imsi-`.
impl FromStr for Who {
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
                "`{text}` is nobody; write a SUPI (imsi-001010000000001), an address of a user, \
                 or a TEID (0x1234)"
            )),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Supi(digits) => write!(to, "imsi-{digits}"),
            Self::Address(address) => address.fmt(to),
            Self::Teid(teid) => write!(to, "{teid:#010x}"),
        }
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Question::Associations`].
    Associations(Vec<AssociationView>),
    /// To [`Question::Sessions`].
    Sessions(Page),
    /// To [`Question::Session`], if there is one.
    Session(Option<Box<SessionView>>),
    /// To [`Question::Trace`].
    Trace(Box<Trace>),
    /// To [`Question::Numbers`].
    Numbers(Box<Numbers>),
}

/// A question, and where its answer goes.
#[derive(Debug)]
pub struct Query {
    /// The question.
    pub question: Question,
    /// Where the answer goes; whoever asked may have gone.
    pub answer: oneshot::Sender<Answer>,
}

/// The slow half's end: readable while there may be a question.
#[derive(Debug)]
pub struct Inbox {
    queries: Receiver<Query>,
    bell: Arc<OwnedFd>,
}

/// The API's end.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    queries: SyncSender<Query>,
    bell: Arc<OwnedFd>,
}

/// Why nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Too many questions wait.
    Busy,
    /// The slow half has ended.
    Ended,
}

/// Both ends.
pub(super) fn pair() -> rustix::io::Result<(Outbox, Inbox)> {
    let (sender, receiver) = sync_channel(WAITING);
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let outbox = Outbox { queries: sender, bell: Arc::clone(&bell) };
    Ok((outbox, Inbox { queries: receiver, bell }))
}

impl Inbox {
    /// The next question, if there is one. The descriptor is not readable any more when there was
    /// none and none has come since.
    pub fn next(&self) -> Option<Query> {
        // The bell first: who asks puts the question down, then rings.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.queries.try_recv().ok().inspect(|_| {
            // There may be more behind it.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        })
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Outbox {
    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, question: Question) -> Result<Answer, Unanswered> {
        let (answer, answered) = oneshot::channel();
        self.queries.try_send(Query { question, answer }).map_err(|error| match error {
            TrySendError::Full(_) => Unanswered::Busy,
            TrySendError::Disconnected(_) => Unanswered::Ended,
        })?;
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        answered.await.map_err(|_| Unanswered::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_who_in_four_ways() {
        let of = |text: &str| text.parse::<Who>();
        assert_eq!(of("10.45.0.2"), Ok(Who::Address("10.45.0.2".parse().unwrap())));
        assert_eq!(of("2001:db8::1"), Ok(Who::Address("2001:db8::1".parse().unwrap())));
        assert_eq!(of("0x1f"), Ok(Who::Teid(31)));
        assert_eq!(of("31"), Ok(Who::Teid(31)));
        assert_eq!(of("4294967295"), Ok(Who::Teid(u32::MAX)));
        assert!(of("4294967296").is_err());
        assert!(of("0x100000000").is_err());
        assert_eq!(of("imsi-31"), Ok(Who::Supi("31".to_owned())));
        assert_eq!(of("001010000000001"), Ok(Who::Supi("001010000000001".to_owned())));
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
        let (outbox, inbox) = pair().unwrap();
        let readable = |inbox: &Inbox| {
            let mut one = [PollFd::new(inbox, PollFlags::IN)];
            poll(&mut one, Some(&Timespec::default())).unwrap() == 1
        };
        assert!(!readable(&inbox));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut asked: Vec<_> =
                (0..=WAITING).map(|_| Box::pin(outbox.ask(Question::Numbers))).collect();
            let mut refused = 0;
            for ask in &mut asked {
                tokio::select! {
                    biased;
                    said = ask => refused += usize::from(said.err() == Some(Unanswered::Busy)),
                    () = std::future::ready(()) => {}
                }
            }
            assert_eq!(refused, 1);
            let mut taken = 0;
            while readable(&inbox) {
                taken += usize::from(inbox.next().is_some());
            }
            assert_eq!(taken, WAITING);
            drop(inbox);
            assert_eq!(outbox.ask(Question::Numbers).await.err(), Some(Unanswered::Ended));
        });
    }
}
