//! The configuration that both processes work with, and its record in shared memory.
//!
//! The control plane stores it as one value, so it is the old or the new one at every instruction.
//! Lanes are told its generation. A successor of either process continues with the record, and
//! regards the file as a reload.

use fastlane::config::raw::Configuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Settings;

/// Octets of a record.
const RECORD: usize = 64 << 10;
/// Octets in front of the text.
const HEAD: usize = 16;
/// Maximum number of names of network instances, counting those that reloads have removed.
const MAX_NAMES: usize = 4096;

/// The configuration in shared memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConfigurationRecord {
    /// Number of configurations since the tables were created.
    pub generation: u64,
    /// Length of the text in octets.
    length: u32,
    /// Reserved, zero.
    reserved: u32,
    /// The configuration and the names of network instances, as JSON.
    text: [u8; RECORD - HEAD],
}

impl std::fmt::Debug for ConfigurationRecord {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (generation, length) = (self.generation, self.length);
        to.debug_struct("ConfigurationRecord")
            .field("generation", &generation)
            .field("length", &length)
            .finish_non_exhaustive()
    }
}

/// Text of a record.
#[derive(Debug, Deserialize, Serialize)]
struct RecordText {
    configuration: Value,
    instances: Vec<String>,
    steering_due: Vec<String>,
}

/// A configuration with every default filled in.
#[derive(Clone, Debug)]
pub struct RunningConfig {
    /// The whole configuration, to be compared with another one.
    pub configuration: Value,
    /// Its object `app`.
    pub settings: Settings,
    /// Number of configurations since the tables were created: 1 is that of the start.
    pub generation: u64,
    /// Ports whose steering rules may not be in force yet.
    pub steering_due: Vec<String>,
}

impl RunningConfig {
    /// Creates the first configuration of a process from its file.
    #[must_use]
    pub fn new(configuration: &Configuration, settings: Settings) -> Self {
        let mut whole = serde_json::to_value(configuration).unwrap_or_default();
        if let Value::Object(map) = &mut whole {
            map.remove("$schema");
            // With every default, so that writing one into the file is no change.
            map.insert("app".to_owned(), serde_json::to_value(&settings).unwrap_or_default());
        }
        Self { configuration: whole, settings, generation: 1, steering_due: Vec::new() }
    }

    /// Returns this configuration as the successor of `before`: network instances keep their
    /// numbers, on which the tables depend, and new names get new ones.
    ///
    /// # Errors
    /// Too many names were in use since the tables were created.
    pub fn following(mut self, before: &Self) -> Result<Self, String> {
        let mut names = before.settings.numbering.clone();
        if names.is_empty() {
            names = before.settings.used_instances().into_iter().map(str::to_owned).collect();
        }
        for name in self.settings.used_instances() {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        if names.len() > MAX_NAMES {
            return Err(format!(
                "app.interfaces: {} names of network instances were in use since the start; at \
                 most {MAX_NAMES} are possible; restart the UPF",
                names.len()
            ));
        }
        self.settings.numbering = names;
        self.generation = before.generation + 1;
        Ok(self)
    }

    /// Returns the steering rules of a port, as JSON.
    #[must_use]
    pub fn steering(&self, port: &str) -> String {
        let rules = &self.configuration["ports"][port]["steer"];
        if rules.is_null() { "[]".to_owned() } else { rules.to_string() }
    }

    /// Returns the record of this configuration.
    ///
    /// # Errors
    /// It does not fit.
    pub fn record(&self) -> Result<Box<ConfigurationRecord>, String> {
        let instances = self.settings.numbering.clone();
        let (configuration, steering_due) = (self.configuration.clone(), self.steering_due.clone());
        let text = RecordText { configuration, instances, steering_due };
        let text = serde_json::to_vec(&text).map_err(|error| error.to_string())?;
        let mut record = Box::new(ConfigurationRecord {
            generation: self.generation,
            length: u32::try_from(text.len()).unwrap_or(u32::MAX),
            reserved: 0,
            text: [0; RECORD - HEAD],
        });
        let Some(to) = record.text.get_mut(..text.len()) else {
            return Err(format!(
                "the configuration has {} octets as JSON without spaces; a running UPF takes at \
                 most {}; shorten it, or restart the UPF",
                text.len(),
                RECORD - HEAD
            ));
        };
        to.copy_from_slice(&text);
        Ok(record)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The reason why it cannot be read. A release that wrote it differently is one.
    pub fn read(record: &ConfigurationRecord) -> Result<Self, String> {
        let text = record.text.get(..record.length as usize).ok_or("it is too long")?;
        let text: RecordText = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let RecordText { configuration, instances, steering_due } = text;
        let mut settings: Settings =
            serde_json::from_value(configuration["app"].clone()).map_err(|it| it.to_string())?;
        settings.numbering = instances;
        Ok(Self { configuration, settings, generation: record.generation, steering_due })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn running(instances: &[&str]) -> RunningConfig {
        let configuration = json!({
            "ports": { "n3": { "driver": { "memory": {} } }, "n6": { "driver": { "memory": {} },
                       "steer": [{ "destination": "10.45.0.0/16" }] } },
            "app": {
                "node-id": "192.0.2.1",
                "n4": { "addresses": ["192.0.2.1"] },
                "interfaces": {
                    "n3": { "port": "n3", "role": "n3", "addresses": ["10.3.0.1"] },
                    "n6": { "port": "n6", "role": "n6", "network-instances": instances },
                },
            },
        });
        let configuration: Configuration = serde_json::from_value(configuration).unwrap();
        let settings = serde_json::from_value(configuration.app.clone().unwrap()).unwrap();
        RunningConfig::new(&configuration, settings)
    }

    #[test]
    fn network_instances_keep_their_numbers() {
        let first = running(&["ims", "internet"]);
        let second = running(&["a", "internet"]).following(&first).unwrap();
        assert_eq!(second.settings.instances(), ["", "internet", "a"], "as in the tables");
        assert_eq!(second.settings.instance("ims"), None);
        assert_eq!(second.settings.instance("a"), Some(2));
        let third = running(&["ims", "b"]).following(&second).unwrap();
        assert_eq!(third.settings.instances(), ["ims", "", "", "b"]);
        assert_eq!(third.settings.network().domain(3), Some(0), "they share an interface");
        assert_eq!(third.generation, 3);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let first = running(&["internet"]);
        let mut second = running(&["internet", "a"]).following(&first).unwrap();
        second.steering_due = vec!["n6".to_owned()];
        let read = RunningConfig::read(&second.record().unwrap()).unwrap();
        assert_eq!(read.configuration, second.configuration);
        assert_eq!(read.settings.numbering, second.settings.numbering);
        assert_eq!((read.generation, read.steering_due), (2, vec!["n6".to_owned()]));
        assert_eq!(second.steering("n6"), r#"[{"destination":"10.45.0.0/16"}]"#);
        assert_eq!(second.steering("n3"), "[]");
    }

    #[test]
    fn a_configuration_that_does_not_fit_is_refused() {
        let mut large = running(&["internet"]);
        large.configuration["app"]["node-id"] = json!("x".repeat(RECORD));
        let error = large.record().unwrap_err();
        assert!(error.contains("at most 65520"), "{error}");
    }
}
