//! PCI devices, and which driver of the kernel has them: that of their network interface, or
//! vfio-pci, by which a process drives them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::interface::Interface;

/// Privilege of writing to files of root in sysfs.
const ROOT: &str = "CAP_DAC_OVERRIDE";

/// Driver that gives a device to a process (kernel: Documentation/driver-api/vfio.rst).
const VFIO: &str = "vfio-pci";

/// A device on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    address: String,
}

impl PciDevice {
    /// Returns the device at an address such as `0000:04:02.0`, or `None` if there is none.
    #[must_use]
    pub fn at(address: &str) -> Option<Self> {
        let plain = |letter: char| letter.is_ascii_hexdigit() || ":.".contains(letter);
        let device = Self { address: address.to_owned() };
        (address.chars().all(plain) && device.file("vendor").exists()).then_some(device)
    }

    /// Returns the device of an interface, or `None` if it has none on the PCI bus.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn of(interface: &Interface) -> Result<Option<Self>, Error> {
        let Some([bus, name]) = interface.parent()? else { return Ok(None) };
        if bus == "pci" {
            return Ok(Self::at(&name));
        }
        // The device of virtio is a child of one on the PCI bus.
        let path = Path::new("/sys/bus").join(bus).join("devices").join(name);
        let path = fs::canonicalize(path).unwrap_or_default();
        let parent = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        Ok(parent.and_then(Self::at))
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the name of the driver that has the device.
    #[must_use]
    pub fn driver(&self) -> Option<String> {
        let driver = fs::read_link(self.file("driver")).ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns true if vfio-pci has the device.
    #[must_use]
    pub fn is_of_vfio(&self) -> bool {
        self.driver().as_deref() == Some(VFIO)
    }

    /// Returns the number of its IOMMU group: what a process has by VFIO is the whole group. `None`
    /// if no IOMMU confines the device, also if VFIO ignores that.
    #[must_use]
    pub fn iommu_group(&self) -> Option<u32> {
        let group = self.file("iommu_group");
        // vfio.enable_unsafe_noiommu_mode=1
        let name = fs::read_to_string(group.join("name")).unwrap_or_default();
        if name.trim() == "vfio-noiommu" {
            return None;
        }
        fs::read_link(group).ok()?.file_name()?.to_str()?.parse().ok()
    }

    /// Returns the device node by which a process has its IOMMU group.
    #[must_use]
    pub fn vfio_node(&self) -> Option<PathBuf> {
        Some(Path::new("/dev/vfio").join(self.iommu_group()?.to_string()))
    }

    /// Returns the other devices of its IOMMU group, without bridges, which nobody drives.
    #[must_use]
    pub fn group_members(&self) -> Vec<Self> {
        let entries = fs::read_dir(self.file("iommu_group/devices")).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let devices = names.filter_map(|name| Self::at(&name));
        devices.filter(|device| device != self && !device.is_bridge()).collect()
    }

    fn is_bridge(&self) -> bool {
        // PCI Local Bus Specification 3.0, appendix D: base class 6, sub-class 4.
        fs::read_to_string(self.file("class")).is_ok_and(|class| class.starts_with("0x0604"))
    }

    /// Gives the device to vfio-pci. Its network interface ends.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Unfit`] if vfio-pci does not take it.
    pub fn give_to_vfio(&self) -> Result<(), Error> {
        if !Path::new("/sys/bus/pci/drivers").join(VFIO).exists() {
            return Err(self.unfit("the kernel has no vfio-pci", "run `modprobe vfio-pci`"));
        }
        self.rebind(VFIO)?;
        if self.driver().as_deref() == Some(VFIO) {
            return Ok(());
        }
        Err(self.unfit("vfio-pci does not take it", "look at `dmesg`; it needs an IOMMU"))
    }

    /// Gives the device to the driver that the kernel has for it. Its network interface begins.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Unfit`] if the kernel has no driver for it.
    pub fn give_to_kernel(&self) -> Result<(), Error> {
        // A line without a name ends the override.
        self.rebind("\n")?;
        match self.driver().as_deref() {
            None | Some(VFIO) => {
                Err(self.unfit("no driver of the kernel takes it", "load the module of its driver"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Lets the kernel probe the device anew, with the driver of this name only.
    fn rebind(&self, driver: &str) -> Result<(), Error> {
        self.write(&self.file("driver_override"), driver)?;
        let unbind = self.file("driver/unbind");
        if unbind.exists() {
            self.write(&unbind, &self.address)?;
        }
        self.write(Path::new("/sys/bus/pci/drivers_probe"), &self.address)
    }

    fn write(&self, path: &Path, value: &str) -> Result<(), Error> {
        fs::write(path, value).map_err(|error: io::Error| {
            let place = path.display();
            Error::kernel(format!("PCI device {}: writing {place}", self.address), ROOT, error)
        })
    }

    fn unfit(&self, reason: &str, remedy: &str) -> Error {
        Error::Unfit {
            subject: format!("PCI device {}", self.address),
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new("/sys/bus/pci/devices").join(&self.address).join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_no_device() {
        for address in ["", "..", "../../class", "ffff:ff:1f.7"] {
            assert_eq!(PciDevice::at(address), None, "{address}");
        }
    }

    #[test]
    fn the_loopback_is_on_no_bus() {
        let loopback = Interface::query("lo").unwrap();
        assert_eq!(PciDevice::of(&loopback).unwrap(), None);
    }
}
