//! The shared-memory format: table names, keys, rules, counter slots and messages that the fast
//! path and the control plane share.
//!
//! All values are plain old data of fixed size. The control plane writes the tables. The lane that
//! owns a session writes its state.

pub mod counter_slots;
pub mod drop_reason;
pub mod key;
pub mod message;
pub mod session_rules;

/// Tables by name, each with its type.
pub mod table {
    /// `Array<Rules>` by session index: what lanes do with its packets, as one immutable value.
    pub const RULES: &str = "rules";
    /// `Array<Block>`: rules of sessions that exceed the simple form.
    pub const BLOCKS: &str = "blocks";
    /// `Hash<TunnelKey, SessionRef>`: tunnels whose TEID does not contain the session index.
    pub const TUNNELS: &str = "tunnels";
    /// `Hash<UeKey, SessionRef>`: UE addresses.
    pub const USERS: &str = "users";
    /// IPv4 networks behind UEs: a prefix to an index in [`FRAMED`].
    pub const FRAMED4: &str = "framed4";
    /// IPv6 networks behind UEs: a prefix to an index in [`FRAMED`].
    pub const FRAMED6: &str = "framed6";
    /// `Array<Framed>`: owners of a prefix by network instance.
    pub const FRAMED: &str = "framed";
    /// Lane state by counter slot (see [`counter_slots`](super::counter_slots)). The first slots
    /// are those of sessions.
    pub const STATE: &str = "state";
    /// Pending events by session index.
    pub const EVENTS: &str = "events";
    /// Lane state by drop reason: packets and octets.
    pub const CAUSES: &str = "causes";
    /// `Array<SessionRecord>`: sessions as the control plane function configured them, read only by
    /// the control plane.
    pub const SESSIONS: &str = "sessions";
    /// `Array<SessionPart>`: overflow of session records.
    pub const SESSION_PARTS: &str = "session-parts";
    /// `Array<ResponseRecord>`: responses to retransmitted requests.
    pub const ANSWERS: &str = "answers";
    /// `Array<AssociationRecord>`: associations.
    pub const PEERS: &str = "peers";
    /// `Record<NodeRecord>`: recovery time stamp and other state of the node.
    pub const NODE: &str = "node";
}
