//! Memory of devices that VFIO gives to this process.

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::Error;

/// Checks that the IOMMU has mapped `mapped` octets for a device: the kernel counts them as locked
/// memory. DPDK only logs what was not mapped, and the device would carry nothing.
///
/// # Errors
/// [`Error::Unfit`] with the limit and the remedy.
pub(crate) fn check_locked_memory(device: &str, mapped: u64) -> Result<(), Error> {
    // Arguments of the driver may follow the address.
    let address = device.split(',').next().unwrap_or(device);
    let driver = std::fs::read_link(format!("/sys/bus/pci/devices/{address}/driver"));
    if !driver.is_ok_and(|driver| driver.ends_with("vfio-pci")) {
        return Ok(());
    }
    let limit = getrlimit(Resource::Memlock).current;
    let may_lock =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    match limit {
        Some(limit) if mapped > limit && !may_lock => Err(Error::Unfit {
            device: device.to_owned(),
            reason: format!(
                "VFIO maps {} MiB of DPDK's memory for it, and this process may have {} MiB of \
                 locked memory (RLIMIT_MEMLOCK)",
                mapped >> 20,
                limit >> 20
            ),
            remedy: "raise the limit (`LimitMEMLOCK=infinity`, `ulimit -l unlimited`) or grant \
                     CAP_IPC_LOCK"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}
