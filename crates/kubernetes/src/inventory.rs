//! Devices of the node: the interfaces of the pools, their properties and their health.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastlane::kernel::Interface;
use fastlane_agent::{PoolSettings, vfio_device};
use tokio::sync::watch;

use crate::changes::Changes;

/// Time in which changes of interfaces are gathered before all are looked at.
const GATHERING: Duration = Duration::from_millis(100);

/// Device that a pod can have: an interface of a pool, or a PCI device for VFIO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) pool: String,
    /// Name of the interface, or address of the PCI device, which no interface has as its name: it
    /// has colons.
    pub(crate) interface: String,
    /// Name for Kubernetes: a DNS label, unique on the node.
    pub(crate) name: String,
    /// `None` while the interface does not exist.
    pub(crate) properties: Option<Properties>,
    /// Reason why it cannot be used now.
    pub(crate) trouble: Option<String>,
}

impl Device {
    /// Returns the device node by which a container has a PCI device.
    pub(crate) fn vfio_node(&self) -> Option<&Path> {
        self.properties.as_ref()?.vfio_node.as_deref()
    }
}

/// Returns the device nodes that a container needs for a device: none for an interface, that of
/// VFIO and that of its IOMMU group for a PCI device.
///
/// # Errors
/// The reason why the device cannot be used.
pub(crate) fn vfio_nodes(device: &Device) -> Result<Vec<PathBuf>, String> {
    if !is_pci(&device.interface) {
        return Ok(vec![]);
    }
    let trouble = || device.trouble.clone().unwrap_or_default();
    let group = device.vfio_node().ok_or_else(trouble)?;
    Ok(vec![PathBuf::from("/dev/vfio/vfio"), group.to_owned()])
}

/// Returns true if a name of a device is the address of a PCI device.
pub(crate) fn is_pci(name: &str) -> bool {
    name.contains(':')
}

/// Properties of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) driver: String,
    /// Properties of an interface; `None` of a PCI device.
    pub(crate) link: Option<LinkProperties>,
    /// Device node of the IOMMU group, of a PCI device.
    pub(crate) vfio_node: Option<PathBuf>,
    pub(crate) numa_node: Option<u32>,
    /// Address on the PCI bus, such as `0000:3b:00.0`.
    pub(crate) pci_address: Option<String>,
    /// Root of its PCI bus, such as `pci0000:3a`.
    pub(crate) pcie_root: Option<String>,
}

/// Properties of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkProperties {
    pub(crate) mac: String,
    pub(crate) mtu: u32,
    /// Number of receive queues that an application may have.
    pub(crate) queues: u32,
}

/// All devices of the node.
pub(crate) type Devices = Vec<Device>;

/// Reads the devices of pools.
pub(crate) fn read(pools: &BTreeMap<String, PoolSettings>) -> Devices {
    let mut devices = Devices::new();
    for (pool, settings) in pools {
        let links = settings.interfaces.iter();
        let links = links.map(|(name, limit)| (name, look(name, limit.queues)));
        let pci = settings.pci.iter().map(|it| (it, look_at_pci(it, pool, &settings.pci)));
        for (interface, (properties, trouble)) in links.chain(pci) {
            let name = unique_label(interface, &devices);
            let (pool, interface) = (pool.clone(), interface.clone());
            devices.push(Device { pool, interface, name, properties, trouble });
        }
    }
    devices
}

/// Looks at the interfaces whenever `changes` tells, and publishes what has changed.
pub(crate) async fn watch(
    pools: BTreeMap<String, PoolSettings>,
    devices: watch::Sender<Devices>,
    mut changes: Changes,
) {
    loop {
        changes.next().await;
        tokio::time::sleep(GATHERING).await;
        let now = read(&pools);
        devices.send_if_modified(|known| {
            for (device, before) in now.iter().zip(known.iter()) {
                if device.trouble != before.trouble {
                    let trouble = device.trouble.as_deref().unwrap_or("it can be used again");
                    tracing::info!("device `{}`: {trouble}", device.interface);
                }
            }
            std::mem::replace(known, now.clone()) != now
        });
    }
}

fn look_at_pci(
    address: &str,
    pool: &str,
    devices: &[String],
) -> (Option<Properties>, Option<String>) {
    let (device, _) = match vfio_device(address, pool, devices) {
        Ok(found) => found,
        Err(trouble) => return (None, Some(trouble)),
    };
    let sysfs = Path::new("/sys/bus/pci/devices").join(address);
    let bus = fs::canonicalize(&sysfs).ok();
    let properties = Properties {
        driver: device.driver().unwrap_or_default(),
        link: None,
        vfio_node: device.vfio_node(),
        numa_node: number(&sysfs.join("numa_node")),
        pci_address: Some(address.to_owned()),
        pcie_root: bus.as_deref().and_then(pcie_root),
    };
    (Some(properties), None)
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
        link: Some(LinkProperties { mac, mtu: interface.mtu, queues }),
        vfio_node: None,
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
    fn a_pci_device_has_two_nodes_unless_it_is_in_trouble() {
        let mut vf = device("0000:3b:02.0");
        vf.trouble = Some("no driver has it".to_owned());
        assert_eq!(vfio_nodes(&vf).unwrap_err(), "no driver has it");
        let node = Some(PathBuf::from("/dev/vfio/12"));
        vf.properties = Some(Properties { vfio_node: node, ..Properties::default() });
        let nodes = vfio_nodes(&vf).unwrap();
        assert_eq!(nodes, [Path::new("/dev/vfio/vfio"), Path::new("/dev/vfio/12")]);
        assert!(vfio_nodes(&device("eth1")).unwrap().is_empty());
        let (properties, trouble) = look_at_pci("ffff:ff:1f.7", "vf", &[]);
        assert_eq!(properties, None);
        assert!(trouble.unwrap().contains("no PCI device `ffff:ff:1f.7`"));
    }

    #[test]
    fn an_interface_that_does_not_exist_is_in_trouble() {
        let (properties, trouble) = look("fastlane-none", None);
        assert_eq!(properties, None);
        assert!(trouble.unwrap().contains("fastlane-none"));
    }
}
