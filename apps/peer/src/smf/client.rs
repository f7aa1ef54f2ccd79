//! Requests and answers over the socket.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastlane_pfcp::ie::{OffendingIe, RecoveryTimeStamp};
use fastlane_pfcp::{Cause, Fault, Group, Header, Message, MessageType, Writer};

use super::SmfError;
use super::request::node_id;

/// A request that is not answered is sent again after this time (T1 of clause 6.4)...
const T1: Duration = Duration::from_secs(1);
/// ...and so often in all (N1).
const N1: u32 = 5;
/// How long one look at the socket lasts.
const LOOK: Duration = Duration::from_millis(50);
/// From 1900 to 1970, in seconds.
const FROM_1900: u64 = 2_208_988_800;

/// What went over the socket besides requests and their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were sent again.
    pub repeated: u64,
    /// Heartbeats of the UPF that were answered.
    pub heartbeats: u64,
    /// Reports of the UPF about sessions that were answered.
    pub reports: u64,
    /// Other requests of the UPF that were answered.
    pub requests: u64,
    /// Answers that nobody waited for, and what was no PFCP.
    pub strange: u64,
}

struct Pending<T> {
    datagram: Vec<u8>,
    sent: Instant,
    times: u32,
    what: T,
}

/// One side of PFCP between an SMF and one UPF. `T` says what an answer is about.
pub struct Client<T> {
    socket: UdpSocket,
    upf: SocketAddr,
    local: SocketAddr,
    started: u32,
    sequence: u32,
    pending: HashMap<u32, Pending<T>>,
    /// The UPF's number of each session, by ours less one.
    seids: Vec<u64>,
    room: Vec<u8>,
    looked: Instant,
    counts: Counts,
}

impl<T> Client<T> {
    /// Binds the socket.
    ///
    /// # Errors
    ///
    /// The address is another's, or there is no way to the UPF.
    pub fn open(local: SocketAddr, upf: SocketAddr) -> Result<Self, SmfError> {
        let failed = |error| SmfError::Socket { local, error };
        let socket = UdpSocket::bind(local).map_err(failed)?;
        // Of several addresses, the one by which the UPF is reached.
        socket.connect(upf).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
        // Room for a window of answers, as far as the system allows.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            socket,
            upf,
            local: address,
            // 32 bits of it are sent; they wrap in 2036 (clause 8.2.65).
            started: (now.as_secs() + FROM_1900) as u32,
            sequence: now.subsec_nanos() & 0x00ff_ffff,
            pending: HashMap::new(),
            seids: Vec::new(),
            room: vec![0; 65_536],
            looked: Instant::now(),
            counts: Counts::default(),
        })
    }

    /// Our address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.local.ip()
    }

    /// When this SMF began: seconds since 1900.
    #[must_use]
    pub const fn started(&self) -> u32 {
        self.started
    }

    /// What went over the socket besides.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Requests without an answer yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// Remembers the UPF's number of a session, for answers to its reports.
    pub fn remember(&mut self, ours: u64, theirs: u64) {
        let place = usize::try_from(ours.saturating_sub(1)).unwrap_or(usize::MAX);
        if place >= self.seids.len() {
            self.seids.resize(place + 1, 0);
        }
        self.seids[place] = theirs;
    }

    /// Sends the request that `make` makes for a sequence number.
    ///
    /// # Errors
    ///
    /// The socket failed.
    pub fn request(&mut self, what: T, make: impl FnOnce(u32) -> Vec<u8>) -> Result<(), SmfError> {
        self.sequence = self.sequence.wrapping_add(1) & 0x00ff_ffff;
        let datagram = make(self.sequence);
        self.send(&datagram)?;
        let pending = Pending { datagram, sent: Instant::now(), times: 1, what };
        self.pending.insert(self.sequence, pending);
        Ok(())
    }

    /// Waits a moment for a datagram. An answer is given to `take` with its elements.
    ///
    /// # Errors
    ///
    /// The socket failed, or a request was sent as often as it may be.
    pub fn turn(&mut self, take: impl FnOnce(T, Group<'_>)) -> Result<(), SmfError> {
        let mut room = std::mem::take(&mut self.room);
        let received = self.socket.recv(&mut room);
        let done = match &received {
            Ok(length) => self.receive(&room[..*length], take),
            Err(_) => Ok(()),
        };
        self.room = room;
        done?;
        match received {
            Ok(_) => {}
            Err(error) => match error.kind() {
                // Refused: nobody listens there yet.
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused => {}
                _ => return Err(SmfError::Socket { local: self.local, error }),
            },
        }
        self.repeat()
    }

    fn receive(
        &mut self,
        datagram: &[u8],
        take: impl FnOnce(T, Group<'_>),
    ) -> Result<(), SmfError> {
        let Ok((message, _)) = Message::parse(datagram) else {
            self.counts.strange += 1;
            return Ok(());
        };
        if let Some(answer) = message.header.message_type.response() {
            return self.answer(&message, answer);
        }
        match self.pending.remove(&message.header.sequence) {
            Some(pending) => take(pending.what, message.group()),
            None => self.counts.strange += 1,
        }
        Ok(())
    }

    fn theirs(&self, ours: u64) -> u64 {
        let place = usize::try_from(ours).ok().and_then(|ours| ours.checked_sub(1));
        place.and_then(|place| self.seids.get(place)).copied().unwrap_or(0)
    }

    /// Answers a request of the UPF; all are accepted.
    fn answer(&mut self, request: &Message<'_>, answer: MessageType) -> Result<(), SmfError> {
        let header = Header {
            message_type: answer,
            seid: request.header.seid.map(|ours| self.theirs(ours)),
            ..request.header
        };
        let mut datagram = Vec::new();
        let (local, started) = (self.local.ip(), self.started);
        Writer::new(&mut datagram).message(Header { follow_on: false, ..header }, |w| {
            match request.header.message_type {
                MessageType::HEARTBEAT_REQUEST => return w.put(&RecoveryTimeStamp(started)),
                kind if !kind.is_session() => w.put(&node_id(local)),
                _ => {}
            }
            w.put(&Cause::REQUEST_ACCEPTED);
            if answer == MessageType::ASSOCIATION_SETUP_RESPONSE {
                w.put(&RecoveryTimeStamp(started));
            }
        });
        match request.header.message_type {
            MessageType::HEARTBEAT_REQUEST => self.counts.heartbeats += 1,
            MessageType::SESSION_REPORT_REQUEST => self.counts.reports += 1,
            _ => self.counts.requests += 1,
        }
        self.send(&datagram)
    }

    /// Sends again what has waited for long enough.
    fn repeat(&mut self) -> Result<(), SmfError> {
        let now = Instant::now();
        if now - self.looked < LOOK {
            return Ok(());
        }
        self.looked = now;
        let mut again = Vec::new();
        for pending in self.pending.values_mut().filter(|pending| now - pending.sent >= T1) {
            if pending.times == N1 {
                return Err(SmfError::Silent { upf: self.upf, local: self.local });
            }
            pending.times += 1;
            pending.sent = now;
            again.push(pending.datagram.clone());
        }
        self.counts.repeated += again.len() as u64;
        again.iter().try_for_each(|datagram| self.send(datagram))
    }

    fn send(&self, datagram: &[u8]) -> Result<(), SmfError> {
        match self.socket.send(datagram) {
            Ok(_) => Ok(()),
            // What does not leave is sent again like what is lost.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(SmfError::Socket { local: self.local, error }),
        }
    }
}

/// Whether an answer accepts the request.
pub(super) fn verdict(answer: Group<'_>) -> Result<(), Fault> {
    match answer.need::<Cause>()? {
        cause if cause.is_accepted() => Ok(()),
        cause => {
            let offending = answer.find::<OffendingIe>().ok().flatten();
            Err(Fault { cause, offending: offending.map(OffendingIe::ie_type) })
        }
    }
}
