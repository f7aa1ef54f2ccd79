//! Stories in guests that QEMU emulates: network devices and kernels that this machine lacks.
//!
//! A story is a test whose body runs in the guest, with the files of this machine. The two devices
//! of a guest are on one wire; they take the place of the veth pair of the other stories.
//! `make test-lab` builds the images of the guests and runs them all.

mod af_xdp;
mod bond;
mod conformance;
mod dpdk;
mod ethtool;
mod hot_restart;
mod impaired;
mod kernel_gtp;
mod kernels;
mod linux_devices;
mod router;
mod rss;
mod sr_iov;
mod support;
mod switching;
