//! What the lanes do to packets, without Linux. Numbers in names are those of the test cases in the
//! README.

mod frames;
mod support;

mod control;
mod downlink;
mod hold;
mod properties;
mod uplink;
