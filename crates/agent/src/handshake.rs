//! The handshake of Intel's AF_XDP device plugin, by which CNDP and DPDK's AF_XDP driver
//! (`use_cni`) get the map of sockets of an interface.
//!
//! ```text
//! C> /connect,HOSTNAME                     S< /host_ok            the first record
//! C> /version                              S< 0.1
//! C> /xsk_map_fd,INTERFACE                 S< /fd_ack with the descriptor of the map, or /fd_nak
//! C> /config_busy_poll,TIME,BUDGET + socket   S< /config_busy_poll_ack, or _nak
//! C> /fin                                  S< /fin_ack            both close
//! other                                    S< /nak
//! ```
//!
//! A record is ASCII text in one message of a SOCK_SEQPACKET socket. Sources: `udsserver.go` of
//! intel/afxdp-plugins-for-kubernetes, `rte_eth_af_xdp.c` of DPDK, `uds_connect.c` of CNDP. Unlike
//! that plugin, the agent serves any number of connections: one for each queue of DPDK, and those
//! of a container that is started again.
//!
//! The host name is no identity: the client says it. The right is the socket, or the user.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use fastlane::agent::seqpacket::{self, Received};
use fastlane_af_xdp::{self as af_xdp, BusyPoll};
use rustix::net::{AddressFamily, sockopt};

use crate::map_devices::MapDevices;

/// Version of the handshake.
const VERSION: &str = "0.1";
/// Maximum length of a record in bytes. Clients have buffers of 64 to 128.
const LIMIT: usize = 256;
/// Time between two records after which a connection is closed.
const IDLE: Duration = Duration::from_secs(300);
/// Time within which a client must take a response.
const PATIENCE: Duration = Duration::from_secs(5);

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb<'a> {
    Connect,
    Version,
    /// Map of the sockets of an interface.
    Map(&'a str),
    /// Busy polling on the socket that comes with the request.
    BusyPoll {
        microseconds: u32,
        budget: u32,
    },
    Finish,
}

impl<'a> Verb<'a> {
    /// Parses a record. Returns `None` for anything else.
    fn parse(record: &'a [u8]) -> Option<Self> {
        if record.len() > LIMIT {
            return None;
        }
        // Some clients end it as a string of C.
        let text = std::str::from_utf8(record).ok()?.trim_end_matches('\0');
        let mut words = text.split(',').map(str::trim_ascii);
        let verb = match (words.next()?, words.next(), words.next()) {
            ("/connect", Some(_), None) => Self::Connect,
            ("/version", None, None) => Self::Version,
            ("/xsk_map_fd", Some(interface), None) => Self::Map(interface),
            ("/config_busy_poll", Some(time), Some(budget)) => {
                Self::BusyPoll { microseconds: time.parse().ok()?, budget: budget.parse().ok()? }
            }
            ("/fin", None, None) => Self::Finish,
            _ => return None,
        };
        words.next().is_none().then_some(verb)
    }
}

/// Serves a client until it ends the handshake or the connection.
pub(crate) fn serve(connection: &OwnedFd, devices: &MapDevices) {
    let mut is_connected = false;
    loop {
        let received = seqpacket::receive(connection, Some(Instant::now() + IDLE));
        let Ok(Some(Received { bytes, descriptors })) = received else { return };
        let verb = Verb::parse(&bytes);
        let is_first = !std::mem::replace(&mut is_connected, true);
        let (response, map) = match verb {
            Some(Verb::Connect) if is_first => ("/host_ok", None),
            _ if is_first => ("/host_nak", None),
            Some(Verb::Version) => (VERSION, None),
            Some(Verb::Map(interface)) => match devices.map(interface) {
                Some(map) => ("/fd_ack", Some(map)),
                None => ("/fd_nak", None),
            },
            Some(Verb::BusyPoll { microseconds, budget }) => {
                let wanted = BusyPoll { microseconds, budget };
                let is_done = is_busy_polled(descriptors.first(), wanted);
                let no = "/config_busy_poll_nak";
                (if is_done { "/config_busy_poll_ack" } else { no }, None)
            }
            Some(Verb::Finish) => ("/fin_ack", None),
            Some(Verb::Connect) | None => ("/nak", None),
        };
        let files: Vec<BorrowedFd<'_>> = map.into_iter().collect();
        let sent = seqpacket::send(connection, response.as_bytes(), &files, PATIENCE);
        if sent.is_err() || response == "/host_nak" || verb == Some(Verb::Finish) {
            return;
        }
    }
}

/// Sets busy polling on an AF_XDP socket. Returns false if it is none or the kernel refuses.
fn is_busy_polled(socket: Option<&OwnedFd>, wanted: BusyPoll) -> bool {
    let Some(socket) = socket else { return false };
    if sockopt::socket_domain(socket) != Ok(AddressFamily::XDP) {
        return false;
    }
    let done = af_xdp::set_busy_poll(socket.as_fd(), wanted);
    done.inspect_err(|reason| tracing::debug!("busy polling: {reason}")).is_ok()
}

/// Parses a record for the fuzz target.
pub(crate) fn fuzz(record: &[u8]) {
    let verb = Verb::parse(record);
    assert!(verb.is_none() || record.trim_ascii_start().starts_with(b"/"));
    if let Some(Verb::Map(interface)) = verb {
        assert!(interface.len() <= LIMIT && !interface.contains(','));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_of_dpdk_and_cndp_are_known() {
        for (record, verb) in [
            (&b"/connect,pod-7"[..], Verb::Connect),
            (b"/version", Verb::Version),
            (b"/xsk_map_fd,eth1", Verb::Map("eth1")),
            (b"/xsk_map_fd, eth1", Verb::Map("eth1")),
            (b"/config_busy_poll,20,64", Verb::BusyPoll { microseconds: 20, budget: 64 }),
            (b"/fin", Verb::Finish),
            (b"/fin\0", Verb::Finish),
        ] {
            assert_eq!(Verb::parse(record), Some(verb));
        }
    }

    #[test]
    fn anything_else_is_none() {
        let long = [&b"/xsk_map_fd,"[..], &[b'x'; LIMIT]].concat();
        for record in [
            &b""[..],
            b"/connect",
            b"/connect,a,b",
            b"connect,a",
            b"/version,1",
            b"/xsk_map_fd",
            b"/xsk_socket",
            b"/config_busy_poll,20",
            b"/config_busy_poll,20,-1",
            b"/config_busy_poll,20,4294967296",
            b"/config_busy_poll,20,64,1",
            b"/fin,",
            b"\xff\xfe",
            &long,
        ] {
            assert_eq!(Verb::parse(record), None, "{record:?}");
        }
    }
}
