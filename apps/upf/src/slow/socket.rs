//! The UDP sockets of N4, and what is to be sent.

pub mod outbox;
