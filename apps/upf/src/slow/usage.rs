//! Usage reporting: URRs and session reports.

mod answered;
mod ask;
mod engine;
mod ground;
mod look;
mod meter;
mod next;
mod provision;
mod remotes;
mod settle;
mod take;
mod timers;
mod write;

pub use answered::Outcome;
pub use ask::{forget_notified, in_answer};
pub use engine::{On, Usage, UsageStatistics};
pub use ground::{Ground, Lines};
pub use meter::Meter;
pub use next::next;
pub use provision::{Given, begin, update};
pub use settle::{STOP_OF_TRAFFIC_S, settle};
pub use take::{DURATION, MOST, PACKETS, VOLUME, take, take_all};
pub use write::write_usage;

#[cfg(test)]
mod tests;
