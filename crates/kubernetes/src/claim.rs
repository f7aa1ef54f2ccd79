//! Claims: which devices of this node a claim has, and which pods may use it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::DRIVER;
use crate::allocations::Claims;
use crate::api_server::ApiServer;

/// Name of the annotation with the name of a claim in the pod that made it from a template.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

/// Claim, as far as the driver reads it (`resource.k8s.io/v1`, ResourceClaim).
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Claim {
    metadata: Metadata,
    #[serde(default)]
    status: ClaimStatus,
}

#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimStatus {
    allocation: Option<AllocationResult>,
    reserved_for: Vec<Consumer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AllocationResult {
    devices: DeviceResults,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DeviceResults {
    results: Vec<AllocatedDevice>,
}

/// Device that the scheduler has chosen.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AllocatedDevice {
    /// Name of the request, with `/` and the name of the subrequest that was chosen, if any.
    pub(crate) request: String,
    driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
}

impl AllocatedDevice {
    /// Returns the name of the request without that of the subrequest.
    pub(crate) fn main_request(&self) -> &str {
        self.request.split('/').next().unwrap_or_default()
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Consumer {
    resource: String,
    uid: String,
}

impl Claim {
    /// Reads a claim.
    ///
    /// # Errors
    /// It does not exist any more, was replaced, or the API server cannot be asked.
    pub(crate) fn read(
        server: &ApiServer,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Self, String> {
        if ![namespace, name, uid].into_iter().all(is_name) {
            return Err("kubelet names a claim by something that is no name".to_owned());
        }
        let object = server.get(&path(namespace, name))?;
        let object = object.ok_or_else(|| format!("claim {namespace}/{name} does not exist"))?;
        Self::parse(object)?.checked(uid)
    }

    fn parse(object: Value) -> Result<Self, String> {
        serde_json::from_value(object).map_err(|error| format!("a claim cannot be read: {error}"))
    }

    fn checked(self, uid: &str) -> Result<Self, String> {
        let Metadata { namespace, name, uid: found, .. } = &self.metadata;
        match found == uid {
            true => Ok(self),
            false => Err(format!("claim {namespace}/{name} was replaced by {found}")),
        }
    }

    pub(crate) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    /// Returns the path of the claim at the API server.
    pub(crate) fn path(&self) -> String {
        path(self.namespace(), self.name())
    }

    /// Returns the name of the claim in the pod that made it from a template.
    pub(crate) fn pod_claim(&self) -> Option<&str> {
        self.metadata.annotations.get(POD_CLAIM).map(String::as_str)
    }

    /// Returns the devices of this driver.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &AllocatedDevice> {
        let results = self.status.allocation.iter().flat_map(|it| &it.devices.results);
        results.filter(|device| device.driver == DRIVER)
    }

    /// Returns the UIDs of the pods for which the claim is reserved.
    pub(crate) fn pods(&self) -> Vec<String> {
        let pods = self.status.reserved_for.iter().filter(|consumer| consumer.resource == "pods");
        pods.map(|consumer| consumer.uid.clone()).collect()
    }
}

/// Returns true if a text can be the name or the UID of an object: nothing else becomes part of a
/// path.
pub(crate) fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
    };
    (1..=253).contains(&text.len()) && text.bytes().all(is_allowed) && !text.starts_with('.')
}

fn path(namespace: &str, name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
}

impl Claims for ApiServer {
    fn reserved_for(&self, namespace: &str, name: &str, uid: &str) -> Result<Vec<String>, String> {
        Claim::read(self, namespace, name, uid).map(|claim| claim.pods())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a claim with these devices: (request, driver, device).
    pub(crate) fn claim(devices: &[(&str, &str, &str)]) -> Claim {
        let results = devices.iter().map(|(request, driver, device)| {
            json!({"request": request, "driver": driver, "pool": "node1", "device": device})
        });
        let results: Vec<Value> = results.collect();
        let object = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": "c", "namespace": "n", "uid": "u-1",
                "annotations": {POD_CLAIM: "nic"},
            },
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [
                    {"resource": "pods", "name": "p", "uid": "p-1"},
                    {"apiGroup": "x", "resource": "others", "name": "o", "uid": "o-1"},
                ],
            },
        });
        Claim::parse(object).unwrap()
    }

    #[test]
    fn a_claim_tells_its_devices_of_this_driver_and_its_pods() {
        let claim = claim(&[("a/fast", DRIVER, "eth1"), ("b", "other.example", "x")]);
        let devices: Vec<_> = claim.devices().collect();
        assert_eq!(devices.len(), 1);
        assert_eq!((devices[0].main_request(), devices[0].device.as_str()), ("a", "eth1"));
        assert_eq!(claim.pods(), ["p-1"]);
        assert_eq!(claim.pod_claim(), Some("nic"));
        assert_eq!(claim.path(), "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c");
    }

    #[test]
    fn a_claim_of_the_same_name_is_another_one() {
        let claim = claim(&[]);
        assert!(claim.clone().checked("u-1").is_ok());
        assert!(claim.checked("u-2").unwrap_err().contains("was replaced by u-1"));
    }

    #[test]
    fn what_is_no_name_does_not_get_into_a_path() {
        assert!(is_name("kube-system") && is_name("a.b-1"));
        for text in ["", "..", "../x", "a/b", "A", "a b", "a%2f", &"x".repeat(254)] {
            assert!(!is_name(text), "{text}");
        }
    }

    #[test]
    fn a_claim_that_is_not_allocated_has_nothing() {
        let object = json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}});
        let claim = Claim::parse(object).unwrap();
        assert_eq!((claim.devices().count(), claim.pods().len()), (0, 0));
        assert!(Claim::parse(json!({"metadata": []})).is_err());
    }
}
