//! Publication of the node's devices as a ResourceSlice.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};

use crate::DRIVER;
use crate::api_server::ApiServer;
use crate::inventory::{Device, Devices, is_pci};

/// Time between two looks at the slice, which kubelet and administrators may delete.
const PERIOD: Duration = Duration::from_secs(60);
/// Time after a start of kubelet at which it has deleted the slices of its node, and time until the
/// next attempt after an error.
const SETTLING: Duration = Duration::from_secs(2);

/// Publisher of the slice of a node.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) node: String,
    pub(crate) memif_links: u32,
    pub(crate) devices: watch::Receiver<Devices>,
    /// Tells that kubelet was started.
    pub(crate) kubelet: Arc<Notify>,
}

impl Publisher {
    /// Publishes the devices and every change of them. Does not return.
    pub(crate) async fn run(mut self) {
        let (mut reported, mut is_first) = (String::new(), true);
        loop {
            let devices = self.devices.borrow_and_update().clone();
            let (server, node, memif_links) =
                (Arc::clone(&self.server), self.node.clone(), self.memif_links);
            let publish = move || publish(&server, &node, &devices, memif_links);
            let published = tokio::task::spawn_blocking(publish).await;
            let published = published.unwrap_or_else(|error| Err(error.to_string()));
            let period = if published.is_ok() { PERIOD } else { SETTLING };
            match published {
                Ok(is_new) => {
                    if is_new || is_first {
                        tracing::info!("the devices of node `{}` are published", self.node);
                    }
                    is_first = false;
                    reported.clear();
                }
                Err(error) if error == reported => {}
                Err(error) => {
                    tracing::warn!("the devices cannot be published: {error}");
                    reported = error;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                _ = self.devices.changed() => {}
                () = self.kubelet.notified() => tokio::time::sleep(SETTLING).await,
            }
        }
    }
}

/// Removes the slice of a node that does not publish its devices any more.
///
/// # Errors
/// The reason of the API server.
pub(crate) fn withdraw(server: &ApiServer, node: &str) -> Result<(), String> {
    server.delete(&path(node))
}

fn path(node: &str) -> String {
    format!("/apis/resource.k8s.io/v1/resourceslices/{node}-{DRIVER}")
}

/// Publishes the devices if they are not. Returns true if they were not.
fn publish(
    server: &ApiServer,
    node: &str,
    devices: &Devices,
    memif_links: u32,
) -> Result<bool, String> {
    let path = path(node);
    let published = server.get(&path)?;
    let described = describe(devices, memif_links);
    let spec = published.as_ref().map(|slice| &slice["spec"]);
    if spec.is_some_and(|spec| decided(&spec["devices"]) == decided(&described)) {
        return Ok(false);
    }
    let generation = spec.and_then(|spec| spec["pool"]["generation"].as_u64()).unwrap_or(0) + 1;
    let owner = server.get(&format!("/api/v1/nodes/{node}"))?;
    let uid = owner.ok_or_else(|| format!("there is no node `{node}`; set NODE_NAME"))?;
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": format!("{node}-{DRIVER}"),
            // The slice ends with its node.
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid["metadata"]["uid"],
                "controller": true,
            }],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": described,
        },
    });
    server.apply(&path, &slice).map(|_| true)
}

/// Returns what of a list of devices this driver decides: the API server adds defaults and times.
fn decided(devices: &Value) -> Vec<Value> {
    let devices = devices.as_array().into_iter().flatten();
    let decided = devices.map(|device| {
        let capacity = device["capacity"].as_object().into_iter().flatten();
        let capacity: Map<String, Value> =
            capacity.map(|(name, it)| (name.clone(), it["value"].clone())).collect();
        let taints = device["taints"].as_array().into_iter().flatten();
        let taints: Vec<Value> =
            taints.map(|it| json!([it["key"], it["value"], it["effect"]])).collect();
        json!([device["name"], device["attributes"], capacity, taints])
    });
    decided.collect()
}

/// Returns the list of devices of a slice.
fn describe(devices: &Devices, memif_links: u32) -> Value {
    let interfaces = devices.iter().map(interface);
    let memif_links = (0..memif_links).map(|number| {
        let attributes = json!({"kind": {"string": "memif"}});
        json!({"name": link_name(number), "attributes": attributes})
    });
    Value::Array(interfaces.chain(memif_links).collect())
}

/// Returns the name of a memif link.
pub(crate) fn link_name(number: u32) -> String {
    format!("memif-{number}")
}

fn interface(device: &Device) -> Value {
    let text = |text: &str| json!({"string": text});
    let mut attributes = Map::new();
    let kind = if is_pci(&device.interface) { "pci" } else { "interface" };
    attributes.insert("kind".to_owned(), text(kind));
    attributes.insert("pool".to_owned(), text(&device.pool));
    attributes.insert("interface".to_owned(), text(&device.interface));
    let mut described = json!({"name": device.name});
    if let Some(properties) = &device.properties {
        attributes.insert("driver".to_owned(), text(&properties.driver));
        if let Some(link) = &properties.link {
            attributes.insert("mac".to_owned(), text(&link.mac));
            attributes.insert("mtu".to_owned(), json!({"int": link.mtu}));
            described["capacity"] = json!({"queues": {"value": link.queues.to_string()}});
        }
        let known = [
            ("resource.kubernetes.io/pcieRoot", properties.pcie_root.as_deref().map(text)),
            ("k8s.cni.cncf.io/deviceID", properties.pci_address.as_deref().map(text)),
            ("numaNode", properties.numa_node.map(|node| json!({"int": node}))),
        ];
        for (name, value) in known {
            if let Some(value) = value {
                attributes.insert(name.to_owned(), value);
            }
        }
    }
    described["attributes"] = Value::Object(attributes);
    if let Some(trouble) = &device.trouble {
        // The scheduler gives it to no new pod.
        let taint = json!({
            "key": format!("{DRIVER}/unusable"),
            "value": trouble_word(trouble),
            "effect": "NoSchedule",
        });
        described["taints"] = json!([taint]);
    }
    described
}

/// Returns the value of the taint: a label of at most 63 letters.
fn trouble_word(trouble: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let word: String = trouble.chars().map(letter).take(63).collect();
    word.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{LinkProperties, Properties};

    fn device() -> Device {
        let properties = Properties {
            driver: "ice".to_owned(),
            link: Some(LinkProperties {
                mac: "02:00:00:00:00:01".to_owned(),
                mtu: 1500,
                queues: 4,
            }),
            vfio_node: None,
            numa_node: Some(1),
            pci_address: Some("0000:3b:00.0".to_owned()),
            pcie_root: Some("pci0000:3a".to_owned()),
        };
        Device {
            pool: "upf".to_owned(),
            interface: "eth0.1".to_owned(),
            name: "eth0-1".to_owned(),
            properties: Some(properties),
            trouble: None,
        }
    }

    #[test]
    fn a_device_has_attributes_and_its_queues_as_capacity() {
        let described = describe(&vec![device()], 1);
        let nic = &described[0];
        assert_eq!(nic["name"], "eth0-1");
        assert_eq!(nic["attributes"]["interface"]["string"], "eth0.1");
        assert_eq!(nic["attributes"]["numaNode"]["int"], 1);
        let root = &nic["attributes"]["resource.kubernetes.io/pcieRoot"];
        assert_eq!(root["string"], "pci0000:3a");
        assert_eq!(nic["capacity"]["queues"]["value"], "4");
        assert_eq!(nic["taints"], Value::Null);
        assert_eq!(described[1]["name"], "memif-0");
    }

    #[test]
    fn a_pci_device_has_its_address_and_no_queues() {
        let mut device = device();
        device.interface = "0000:3b:02.0".to_owned();
        device.properties.as_mut().unwrap().link = None;
        let described = describe(&vec![device], 0);
        let attributes = &described[0]["attributes"];
        assert_eq!(attributes["kind"]["string"], "pci");
        assert_eq!(attributes["interface"]["string"], "0000:3b:02.0");
        assert_eq!(attributes["k8s.cni.cncf.io/deviceID"]["string"], "0000:3b:00.0");
        assert_eq!((&attributes["mac"], &described[0]["capacity"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn a_device_in_trouble_is_tainted() {
        let mut device = device();
        device.trouble = Some("it is down; set it up".to_owned());
        let described = describe(&vec![device], 0);
        let taint = &described[0]["taints"][0];
        assert_eq!(
            (&taint["value"], &taint["effect"]),
            (&json!("it-is-down--set-it-up"), &json!("NoSchedule"))
        );
    }

    #[test]
    fn a_slice_is_published_again_if_something_was_decided_anew() {
        let is_same = |a: &Value, b: &Value| decided(a) == decided(b);
        let described = describe(&vec![device()], 2);
        let mut theirs = described.clone();
        theirs[0]["nodeAllocatable"] = json!(null);
        theirs[0]["capacity"]["queues"]["requestPolicy"] = json!({});
        assert!(is_same(&theirs, &described));
        theirs[0]["attributes"]["mtu"]["int"] = json!(9000);
        assert!(!is_same(&theirs, &described));
        let mut fewer = described.clone();
        fewer.as_array_mut().unwrap().pop();
        assert!(!is_same(&fewer, &described));
        let mut device = device();
        device.trouble = Some("it is down".to_owned());
        let mut tainted = describe(&vec![device], 2);
        assert!(!is_same(&tainted, &described));
        let before = tainted.clone();
        tainted[0]["taints"][0]["timeAdded"] = json!("2026-11-26T07:00:00Z");
        assert!(is_same(&tainted, &before));
    }
}
