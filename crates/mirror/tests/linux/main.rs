//! The kernel mirror against a real Linux, in network namespaces. What `ip -json` shows is the
//! oracle for the model, `ip route get` for the lookups.
#![allow(unsafe_code, reason = "the guard of a lane: nobody writes while these tests look")]

mod agreement;
mod changes;
mod corpus;
mod ecmp;
mod lanes;
mod limits;
mod oracle;
mod rig;

mod scale;
