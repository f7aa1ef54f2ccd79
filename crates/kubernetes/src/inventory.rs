//! Devices of the node: the interfaces of the pools, their properties and their health.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastlane::kernel::Interface;
use fastlane_agent::PoolSettings;
use tokio::sync::watch;

/// Time between two looks at the interfaces.
const PERIOD: Duration = Duration::from_secs(1);

/// Device that a pod can have: an interface of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) pool: String,
    pub(crate) interface: String,
    /// Name for Kubernetes: a DNS label, unique on the node.
    pub(crate) name: String,
    /// `None` while the interface does not exist.
    pub(crate) properties: Option<Properties>,
    /// Reason why it cannot be used now.
    pub(crate) trouble: Option<String>,
}

/// Properties of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) driver: String,
    pub(crate) mac: String,
    pub(crate) mtu: u32,
    /// Number of receive queues that an application may have.
    pub(crate) queues: u32,
    pub(crate) numa_node: Option<u32>,
    /// Address on the PCI bus, such as `0000:3b:00.0`.
    pub(crate) pci_address: Option<String>,
    /// Root of its PCI bus, such as `pci0000:3a`.
    pub(crate) pcie_root: Option<String>,
}

/// All devices of the node.
pub(crate) type Devices = Vec<Device>;

/// Reads the devices of pools.
pub(crate) fn read(pools: &BTreeMap<String, PoolSettings>) -> Devices {
    let mut devices = Devices::new();
    for (pool, settings) in pools {
        for (interface, limit) in &settings.interfaces {
            let (properties, trouble) = look(interface, limit.queues);
            let name = unique_label(interface, &devices);
            let (pool, interface) = (pool.clone(), interface.clone());
            devices.push(Device { pool, interface, name, properties, trouble });
        }
    }
    devices
}

/// Looks at the interfaces every second and publishes what has changed.
pub(crate) async fn watch(pools: BTreeMap<String, PoolSettings>, devices: watch::Sender<Devices>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        let now = read(&pools);
        devices.send_if_modified(|known| {
            for (device, before) in now.iter().zip(known.iter()) {
                if device.trouble != before.trouble {
                    let trouble = device.trouble.as_deref().unwrap_or("it can be used again");
                    tracing::info!("interface `{}`: {trouble}", device.interface);
                }
            }
            std::mem::replace(known, now.clone()) != now
        });
    }
}

fn look(name: &str, limit: Option<u32>) -> (Option<Properties>, Option<String>) {
    let interface = match Interface::query(name) {
        Ok(interface) => interface,
        Err(error) => return (None, Some(error.to_string())),
    };
    let sysfs = Path::new("/sys/class/net").join(name);
    let mac = interface.mac.map(|byte| format!("{byte:02x}")).join(":");
    let queues =
        limit.map_or(interface.receive_queues, |limit| limit.min(interface.receive_queues));
    let bus = fs::canonicalize(sysfs.join("device")).ok();
    let properties = Properties {
        driver: interface.driver,
        mac,
        mtu: interface.mtu,
        queues,
        numa_node: number(&sysfs.join("device/numa_node")),
        pci_address: bus.as_deref().and_then(pci_address),
        pcie_root: bus.as_deref().and_then(pcie_root),
    };
    let trouble = match (interface.up, interface.carrier) {
        (false, _) => Some("it is down; set it up".to_owned()),
        (true, false) => Some("it has no carrier".to_owned()),
        (true, true) => None,
    };
    (Some(properties), trouble)
}

/// Reads a number that is not negative: -1 means unknown.
fn number(path: &PathBuf) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the last address on the PCI bus in the path of a device.
fn pci_address(path: &Path) -> Option<String> {
    let mut names = path.iter().rev().filter_map(|name| name.to_str());
    names.find(|name| is_pci_address(name)).map(str::to_owned)
}

/// Returns true for the form `0000:3b:00.0`.
fn is_pci_address(name: &str) -> bool {
    let form = |byte: u8| if byte.is_ascii_hexdigit() { b'0' } else { byte };
    name.bytes().map(form).eq(*b"0000:00:00.0")
}

fn pcie_root(path: &Path) -> Option<String> {
    let mut names = path.iter().filter_map(|name| name.to_str());
    names.find(|name| name.starts_with("pci") && name.contains(':')).map(str::to_owned)
}

/// Returns the name of an interface as a DNS label that no other device has.
fn unique_label(interface: &str, others: &[Device]) -> String {
    let letter = |byte: u8| match byte.to_ascii_lowercase() {
        byte if byte.is_ascii_alphanumeric() => char::from(byte),
        _ => '-',
    };
    let label: String = interface.bytes().map(letter).collect();
    let label = label.trim_matches('-').to_owned();
    // Links of memif have names of their own.
    let is_reserved = label.is_empty() || label.starts_with("memif-");
    let label = if is_reserved { format!("if-{label}") } else { label };
    let label = label.trim_matches('-').to_owned();
    let is_free = |label: &String| others.iter().all(|other| other.name != *label);
    let mut names = std::iter::once(label.clone()).chain((2..).map(|n| format!("{label}-{n}")));
    names.find(is_free).unwrap_or(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> Device {
        let (pool, interface) = ("p".to_owned(), name.to_owned());
        Device { pool, interface, name: name.to_owned(), properties: None, trouble: None }
    }

    #[test]
    fn a_name_is_a_label_of_its_own() {
        assert_eq!(unique_label("enp1s0f0np0", &[]), "enp1s0f0np0");
        assert_eq!(unique_label("eth0.100", &[]), "eth0-100");
        assert_eq!(unique_label("_Wire_", &[]), "wire");
        assert_eq!(unique_label("__", &[]), "if");
        assert_eq!(unique_label("memif-0", &[]), "if-memif-0");
        assert_eq!(unique_label("eth0_1", &[device("eth0-1")]), "eth0-1-2");
        assert_eq!(unique_label("A", &[device("a"), device("a-2")]), "a-3");
    }

    #[test]
    fn the_bus_is_read_from_the_path_of_a_device() {
        let path = Path::new("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1");
        assert_eq!(pci_address(path).as_deref(), Some("0000:3b:00.1"));
        assert_eq!(pcie_root(path).as_deref(), Some("pci0000:3a"));
        let virtio = Path::new("/sys/devices/pci0000:00/0000:00:03.0/virtio1");
        assert_eq!(pci_address(virtio).as_deref(), Some("0000:00:03.0"));
        let other = Path::new("/sys/devices/platform/soc/ethernet");
        assert_eq!((pci_address(other), pcie_root(other)), (None, None));
    }

    #[test]
    fn an_interface_that_does_not_exist_is_in_trouble() {
        let (properties, trouble) = look("fastlane-none", None);
        assert_eq!(properties, None);
        assert!(trouble.unwrap().contains("fastlane-none"));
    }
}
