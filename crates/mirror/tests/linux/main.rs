//! Tests against a real Linux in network namespaces. `ip -json` is the oracle for the model, `ip
//! route get` for lookups.
#![allow(unsafe_code, reason = "the guard of a lane: nobody writes while these tests look")]

mod agreement;
mod changes;
mod connections;
mod corpus;
mod ecmp;
mod flow_events;
mod flow_timeouts;
mod lanes;
mod limits;
mod oracle;
mod rig;

mod scale;
