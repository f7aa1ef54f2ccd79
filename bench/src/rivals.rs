//! Rivals, written without a type of the framework: C programs, `dpdk-testpmd`, and their start.

pub mod dpdk_loop;
pub mod eal;
pub(crate) mod ffi;
pub mod macswap_in_c;
pub mod testpmd;
