//! Usage reporting: URRs and session reports.

mod meter;
mod next;
mod provision;
mod settle;
mod take;

pub use meter::Meter;
pub use next::next;
pub use provision::{Given, begin, update};
pub use settle::{STOP_OF_TRAFFIC_S, settle};
pub use take::{DURATION, MOST, PACKETS, VOLUME, take, take_all};

#[cfg(test)]
mod tests;
