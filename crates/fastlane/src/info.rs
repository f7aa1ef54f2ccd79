//! What an application learns of the lane that it will run in.

use serde::de::DeserializeOwned;

use crate::config::plan::Plan;
use crate::config::read::parse_value;
use crate::{Error, PortId};

/// The lane for which an application is made.
#[derive(Clone, Copy, Debug)]
pub struct LaneInfo<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) index: usize,
}

impl LaneInfo<'_> {
    /// The lane's number, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many lanes there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.plan.lanes.len()
    }

    /// The port of this name.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<PortId> {
        self.plan.ports.iter().find(|port| port.name == name).map(|port| port.id)
    }

    /// The port of this name, or an error that names the ports there are.
    ///
    /// # Errors
    /// When there is none.
    pub fn require_port(&self, name: &str) -> Result<PortId, Error> {
        self.port(name).ok_or_else(|| {
            let names: Vec<&str> = self.port_names().collect();
            let names = names.join(", ");
            let what = format!("the application needs a port `{name}`; there are {names}");
            Error::Value { path: "ports".to_owned(), what, meant: None }
        })
    }

    /// The names of the ports; the place of each is its number.
    pub fn port_names(&self) -> impl Iterator<Item = &str> {
        self.plan.ports.iter().map(|port| port.name.as_str())
    }

    /// The object `app` of the configuration; an absent one is read as `{}`.
    ///
    /// # Errors
    /// When it has not the form of `T`, with the path to the mistake.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let empty = || serde_json::Value::Object(serde_json::Map::new());
        parse_value("app", self.plan.app.clone().unwrap_or_else(empty))
    }
}
