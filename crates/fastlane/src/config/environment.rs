//! Names of devices that come from the environment: `env:NAME`.
//!
//! A container learns its devices from variables. Its configuration names the variable, so one
//! configuration serves all containers.

use super::checks::refuse;
use super::raw::Driver;
use crate::Error;

/// Begin of a value that names a variable. No name of a device has a colon there.
const PREFIX: &str = "env:";

/// Replaces the name of the device of a port by the value of the variable that it names.
///
/// # Errors
/// The variable is not set.
pub(super) fn resolve(
    port: &str,
    driver: &mut Driver,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), Error> {
    let path = |key: &str| format!("ports.{port}.driver.{key}");
    let (path, value) = match driver {
        Driver::AfXdp(driver) => (path("af-xdp.interface"), Some(&mut driver.interface)),
        Driver::AfPacket(driver) => (path("af-packet.interface"), Some(&mut driver.interface)),
        Driver::Dpdk(driver) => (path("dpdk.device"), driver.device.as_mut()),
        _ => return Ok(()),
    };
    let Some(value) = value else { return Ok(()) };
    let Some(name) = value.strip_prefix(PREFIX) else { return Ok(()) };
    *value = variable(name).ok_or_else(|| {
        let what = format!(
            "the variable `{name}` is not set; a container has it if its pod asks for a device"
        );
        refuse(path, what)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolved(driver: serde_json::Value) -> Result<serde_json::Value, String> {
        let mut driver: Driver = serde_json::from_value(driver).unwrap();
        let variable = |name: &str| (name == "NIC").then(|| "eth7".to_owned());
        let done = resolve("wire", &mut driver, variable);
        done.map(|()| serde_json::to_value(driver).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_device_is_named_by_a_variable() {
        for (kind, key) in [("af-xdp", "interface"), ("af-packet", "interface"), ("dpdk", "device")]
        {
            let named = |name: &str| resolved(json!({kind: {key: name}}));
            assert_eq!(named("env:NIC").unwrap()[kind][key], "eth7");
            assert_eq!(named("eth1").unwrap()[kind][key], "eth1");
            let error = named("env:NONE").unwrap_err();
            assert!(error.contains(&format!("ports.wire.driver.{kind}.{key}")), "{error}");
            assert!(error.contains("the variable `NONE` is not set"), "{error}");
        }
        assert!(resolved(json!({"dpdk": {"vdev": "net_null0"}})).is_ok());
        assert!(resolved(json!({"memory": {}})).is_ok());
    }
}
