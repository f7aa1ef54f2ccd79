//! Network devices of a guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Host, LEFT, Lab, RIGHT, eventually};

/// A network device on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    address: String,
}

impl Nic {
    /// PCI address of the first device of a guest. Its MAC address is
    /// [`LEFT_MAC`](crate::LEFT_MAC).
    pub const FIRST: &'static str = "0000:01:00.0";
    /// PCI address of the second one, on the same wire. Its MAC address is
    /// [`RIGHT_MAC`](crate::RIGHT_MAC).
    pub const SECOND: &'static str = "0000:02:00.0";
    /// PCI address of the first device on a second wire.
    pub const THIRD: &'static str = "0000:03:00.0";
    /// PCI address of the second one on that wire.
    pub const FOURTH: &'static str = "0000:04:00.0";

    /// Returns the device at a PCI address.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self { address: address.to_owned() }
    }

    /// Returns the PCI address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns a file of the device in sysfs.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        Path::new("/sys/bus/pci/devices").join(&self.address).join(name)
    }

    /// Writes an attribute of the device.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn write(&self, attribute: &str, value: &str) {
        let path = self.file(attribute);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Waits for its interface in this network namespace. Returns the name.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    #[must_use]
    pub fn interface(&self) -> String {
        let mut found = None;
        eventually("the device has an interface", || {
            found = self.interfaces().next();
            found.is_some()
        });
        found.expect("see above")
    }

    fn interfaces(&self) -> impl Iterator<Item = String> {
        // A virtio device is a child of its PCI device.
        let list = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let children = list(self.file("")).map(|child| child.path().join("net"));
        let folders = std::iter::once(self.file("net")).chain(children);
        folders.flat_map(list).filter_map(|entry| entry.file_name().into_string().ok())
    }

    /// Gives the device to a driver of the kernel, such as `vfio-pci`.
    ///
    /// # Panics
    /// When the driver does not take it.
    #[track_caller]
    pub fn bind(&self, driver: &str) {
        self.write("driver_override", driver);
        if self.file("driver").exists() {
            self.write("driver/unbind", &self.address);
        }
        let path = format!("/sys/bus/pci/drivers/{driver}/bind");
        fs::write(&path, &self.address).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Returns the number of its IOMMU group.
    ///
    /// # Panics
    /// When it has none.
    #[track_caller]
    #[must_use]
    pub fn iommu_group(&self) -> String {
        let group = fs::read_link(self.file("iommu_group")).expect("an IOMMU");
        group.file_name().expect("a number").to_string_lossy().into_owned()
    }

    /// Moves the device's interface to the left or right host of a lab, in place of its `wire0`.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn replace_wire(&self, lab: &Lab, side: Side) {
        let (host, four, six) = match side {
            Side::Left => (&lab.left, LEFT, "fd77::1"),
            Side::Right => (&lab.right, RIGHT, "fd77::2"),
        };
        if !host.attempt(&["ip", "link", "show", "wire0"]).stdout.is_empty() {
            host.run(&["ip", "link", "delete", "wire0"]);
        }
        self.move_to(host, "wire0");
        host.run(&["ip", "address", "add", &format!("{four}/24"), "dev", "wire0"]);
        host.run(&["ip", "address", "add", &format!("{six}/64"), "dev", "wire0", "nodad"]);
    }

    /// Moves the device's interface to a host, under a name, and sets it up there.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn move_to(&self, host: &Host, name: &str) {
        let interface = self.interface();
        run(&["ip", "link", "set", &interface, "netns", &host.path(), "name", name]);
        host.run(&["ip", "link", "set", name, "up"]);
    }
}

/// End of a lab's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host of the application under test.
    Left,
    /// The host of its peer.
    Right,
}

/// Loads modules of the kernel.
///
/// # Panics
/// When one cannot be loaded.
#[track_caller]
pub fn load_modules(names: &[&str]) {
    run(&[&["modprobe", "-a"], names].concat());
}

#[track_caller]
fn run(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().expect("it can be started");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
