//! A UPF in network namespaces, with its SMF, gNB and data network.
//!
//! * [`UpfLab`]: the namespaces; it starts the [`Upf`] and reads its metrics.
//! * [`Smf`]: establishes [`Session`]s by [`messages`] and records usage reports.
//! * [`KernelGnb`]: Linux's GTP device as a gNB, with UEs behind it.
//! * [`Traffic`]: sends stamped packets by [`frames`] and collects those that leave the UPF.

pub mod frames;
mod kernel_gnb;
pub mod messages;
mod smf;
mod traffic;
mod upf_lab;

pub use kernel_gnb::KernelGnb;
pub use smf::{Inbox, Session, Smf, accepted};
pub use traffic::{Arrival, Traffic, longest_gap, octets};
pub use upf_lab::{Driver, MAX_IN_PROCESS, N4, NEIGHBOURS, RESPONSE_LIFETIME, RING, Upf, UpfLab};
