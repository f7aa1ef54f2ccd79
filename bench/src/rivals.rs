//! Rivals that use no type of the framework: C programs, `dpdk-testpmd`, and the code that starts
//! them.

#[cfg(feature = "scenarios")]
pub mod dpdk_loop;
pub mod eal;
pub(crate) mod ffi;
#[cfg(feature = "scenarios")]
pub mod macswap_in_c;
#[cfg(feature = "scenarios")]
pub mod testpmd;
