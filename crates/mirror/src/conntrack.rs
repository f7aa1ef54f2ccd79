//! Connections that Linux tracks: conntrack entries, their events, and changes to them.
//!
//! The protocol is ctnetlink, the part of nfnetlink that conntrack(8) uses. A [`ConntrackListener`]
//! dumps [`Connection`]s and receives [`ConntrackEvent`]s; a [`ConntrackWriter`] changes entries.
//! Both work in the network namespace of the thread that opened them and need CAP_NET_ADMIN.
//!
//! With `net.netfilter.nf_conntrack_events` at its default of 2, Linux reports the events of a
//! connection only if somebody listened when the connection began (`nf_ct_ecache_ext_add` in
//! `net/netfilter/nf_conntrack_ecache.c`); with 0 it reports none. A connection of a dump is
//! therefore known to be followed only once an event of it was received.
//! [`ConntrackChange::touch`] causes one.

mod connection;
mod connection_reader;
mod conntrack_change;
mod conntrack_socket;

pub use connection::{Connection, ConnectionTuple, Status, TcpFlags, TcpProgress, TcpState};
pub use connection_reader::{ConntrackEvent, ConntrackEvents};
pub use conntrack_change::ConntrackChange;
pub use conntrack_socket::{ConntrackListener, ConntrackWriter, Groups, Heard};
