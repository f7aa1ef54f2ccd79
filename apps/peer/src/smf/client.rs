//! PFCP transactions over the socket: requests, responses and retransmission.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastlane_pfcp::ie::{OffendingIe, RecoveryTimeStamp};
use fastlane_pfcp::{Cause, Fault, Group, Header, Message, MessageType, Writer};

use super::SmfError;
use super::request::node_id;

/// Time after which an unanswered request is sent again (T1, clause 6.4).
const T1: Duration = Duration::from_secs(1);
/// Maximum number of times that a request is sent (N1, clause 6.4).
const N1: u32 = 5;
/// Receive timeout of the socket, and interval of the check for retransmissions.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Seconds from 1900 (NTP epoch) to 1970 (Unix epoch).
const FROM_1900: u64 = 2_208_988_800;

/// Counts of messages other than requests and their responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of retransmissions.
    pub repeated: u64,
    /// Number of heartbeat requests of the UPF answered.
    pub heartbeats: u64,
    /// Number of session reports of the UPF answered.
    pub reports: u64,
    /// Number of other requests of the UPF answered.
    pub requests: u64,
    /// Number of unexpected responses and malformed messages.
    pub strange: u64,
}

struct Pending<T> {
    datagram: Vec<u8>,
    sent: Instant,
    times: u32,
    what: T,
}

/// PFCP entity of an SMF towards one UPF. `T` identifies the subject of a response.
pub struct Client<T> {
    socket: UdpSocket,
    upf: SocketAddr,
    local: SocketAddr,
    started: u32,
    sequence: u32,
    pending: HashMap<u32, Pending<T>>,
    /// SEIDs of the UPF, indexed by the SMF's SEID less one.
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
    /// Returns an error if the address cannot be bound or the UPF cannot be reached.
    pub fn open(local: SocketAddr, upf: SocketAddr) -> Result<Self, SmfError> {
        let failed = |error| SmfError::Socket { local, error };
        let socket = UdpSocket::bind(local).map_err(failed)?;
        // Selects the local address from which the UPF is reached.
        socket.connect(upf).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        socket.set_read_timeout(Some(POLL_INTERVAL)).map_err(failed)?;
        // The buffer holds a window of responses, as far as the limit of the system allows.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            socket,
            upf,
            local: address,
            // The message has 32 bits for it; they wrap in 2036 (clause 8.2.65).
            started: (now.as_secs() + FROM_1900) as u32,
            sequence: now.subsec_nanos() & 0x00ff_ffff,
            pending: HashMap::new(),
            seids: Vec::new(),
            room: vec![0; 65_536],
            looked: Instant::now(),
            counts: Counts::default(),
        })
    }

    /// Returns the local address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.local.ip()
    }

    /// Returns the time at which this SMF started, in seconds since 1900.
    #[must_use]
    pub const fn started(&self) -> u32 {
        self.started
    }

    /// Returns the counts of messages other than requests and their responses.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of requests without a response.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// Stores the UPF's SEID of a session, which responses to its reports carry.
    pub fn remember(&mut self, ours: u64, theirs: u64) {
        let index = usize::try_from(ours.saturating_sub(1)).unwrap_or(usize::MAX);
        if index >= self.seids.len() {
            self.seids.resize(index + 1, 0);
        }
        self.seids[index] = theirs;
    }

    /// Sends the request that `make` encodes for a sequence number.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn request(&mut self, what: T, make: impl FnOnce(u32) -> Vec<u8>) -> Result<(), SmfError> {
        self.sequence = self.sequence.wrapping_add(1) & 0x00ff_ffff;
        let datagram = make(self.sequence);
        self.send(&datagram)?;
        let pending = Pending { datagram, sent: Instant::now(), times: 1, what };
        self.pending.insert(self.sequence, pending);
        Ok(())
    }

    /// Waits up to 50 ms for a datagram, then retransmits what is due. Passes a response and its
    /// elements to `take`.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails or a request stays unanswered after its last
    /// retransmission.
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
                // Refused: the UPF does not listen yet.
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
        let index = usize::try_from(ours).ok().and_then(|ours| ours.checked_sub(1));
        index.and_then(|index| self.seids.get(index)).copied().unwrap_or(0)
    }

    /// Accepts a request of the UPF: sends the response `answer`.
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

    /// Retransmits the requests that have waited for T1.
    fn repeat(&mut self) -> Result<(), SmfError> {
        let now = Instant::now();
        if now - self.looked < POLL_INTERVAL {
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
            // A datagram that is not sent is retransmitted like a lost one.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(SmfError::Socket { local: self.local, error }),
        }
    }
}

/// Returns the fault of a response, or `Ok` if it accepts the request.
pub(super) fn verdict(answer: Group<'_>) -> Result<(), Fault> {
    match answer.need::<Cause>()? {
        cause if cause.is_accepted() => Ok(()),
        cause => {
            let offending = answer.find::<OffendingIe>().ok().flatten();
            Err(Fault { cause, offending: offending.map(OffendingIe::ie_type) })
        }
    }
}
