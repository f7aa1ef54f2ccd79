//! Mount and environment of a container that has an allocation.

use crate::DRIVER;
use crate::allocations::SOCKET;
use crate::inventory::is_pci;

/// Interfaces of a pool in a container.
#[derive(Debug)]
pub(crate) struct Container<'a> {
    pool: &'a str,
    interfaces: &'a [String],
}

impl<'a> Container<'a> {
    pub(crate) fn new(pool: &'a str, interfaces: &'a [String]) -> Self {
        Self { pool, interfaces }
    }

    /// Returns the directory at which the container has the agent's socket.
    pub(crate) fn directory(&self) -> String {
        format!("/run/{DRIVER}/{}", self.pool)
    }

    /// Returns the environment: the agent's socket, and the interfaces by number.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let letter = |letter: char| match letter {
            '-' => '_',
            letter => letter.to_ascii_uppercase(),
        };
        let pool: String = self.pool.chars().map(letter).collect();
        let mut variables =
            vec![("FASTLANE_AGENT".to_owned(), format!("{}/{SOCKET}", self.directory()))];
        let named = self.interfaces.iter().enumerate();
        variables.extend(
            named.map(|(number, name)| (format!("FASTLANE_{pool}_{number}"), name.clone())),
        );
        // As device plugins of SR-IOV name them.
        let pci = self.interfaces.iter().filter(|name| is_pci(name)).cloned().collect::<Vec<_>>();
        if !pci.is_empty() {
            variables.push((format!("PCIDEVICE_FASTLANE_DEV_{pool}"), pci.join(",")));
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_finds_the_agent_and_its_interfaces() {
        let interfaces = ["eth1".to_owned(), "eth2".to_owned()];
        let container = Container::new("n3-n6", &interfaces);
        assert_eq!(container.directory(), "/run/fastlane.dev/n3-n6");
        let expected = [
            ("FASTLANE_AGENT", "/run/fastlane.dev/n3-n6/agent.sock"),
            ("FASTLANE_N3_N6_0", "eth1"),
            ("FASTLANE_N3_N6_1", "eth2"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(container.variables(), expected);
    }

    #[test]
    fn pci_devices_have_the_variable_of_other_plugins_too() {
        let interfaces = ["0000:3b:02.0".to_owned(), "0000:3b:02.1".to_owned()];
        let variables = Container::new("vf", &interfaces).variables();
        let value = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.as_str());
        assert_eq!(value("FASTLANE_VF_1"), Some("0000:3b:02.1"));
        assert_eq!(value("PCIDEVICE_FASTLANE_DEV_VF"), Some("0000:3b:02.0,0000:3b:02.1"));
    }
}
