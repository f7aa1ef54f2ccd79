//! What both halves share: the tables by name, their keys, what lanes count, and messages.
//!
//! All values are plain old data of fixed size. The slow half writes tables; the lane that owns a
//! session writes its state.

pub mod cause;
pub mod framed;
pub mod identifier;
pub mod key;
pub mod message;
pub mod rules;
pub mod state;

/// The tables by name, each with its type.
pub mod table {
    /// `Array<Rules>` by session: what lanes do with its packets, one immutable value.
    pub const RULES: &str = "rules";
    /// `Array<Block>`: rules of sessions that need more than a line.
    pub const BLOCKS: &str = "blocks";
    /// `Hash<TunnelKey, SessionRef>`: tunnels whose number does not say which session they are of.
    pub const TUNNELS: &str = "tunnels";
    /// `Hash<UserKey, SessionRef>`: users' addresses.
    pub const USERS: &str = "users";
    /// Networks behind users, IPv4: a prefix to a place in [`FRAMED`].
    pub const FRAMED4: &str = "framed4";
    /// Networks behind users, IPv6.
    pub const FRAMED6: &str = "framed6";
    /// `Array<Framed>`: whose network a prefix is, by network instance.
    pub const FRAMED: &str = "framed";
    /// Lane state by line (see [`state`](super::state)): the first lines are those of sessions.
    pub const STATE: &str = "state";
    /// Pending events by session.
    pub const EVENTS: &str = "events";
    /// Lane state by cause: packets and octets of what was not forwarded.
    pub const CAUSES: &str = "causes";
    /// `Array<SessionRecord>`: what the control plane said, for the slow half only.
    pub const SESSIONS: &str = "sessions";
    /// `Array<SessionPart>`: what does not fit a record.
    pub const SESSION_PARTS: &str = "session-parts";
    /// `Array<AnswerRecord>`: answers that may have to be repeated.
    pub const ANSWERS: &str = "answers";
    /// `Array<PeerRecord>`: associations.
    pub const PEERS: &str = "peers";
    /// `Record<NodeRecord>`: recovery time stamp and what else the slow half keeps of itself.
    pub const NODE: &str = "node";
}
