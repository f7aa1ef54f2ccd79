//! Rivals that use no type of the framework: C programs, `dpdk-testpmd`, and the code that starts
//! them.

pub mod dpdk_loop;
pub mod eal;
pub(crate) mod ffi;
pub mod macswap_in_c;
pub mod testpmd;
