//! Manifest of a handover: the program that offers it, and the meaning of each descriptor.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::difference::{compare, without_rules};
use crate::config::plan::Plan;
use crate::open::PortManifest;
use crate::tables::TableFacts;

/// List of what is handed over, with the identity of the application.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Release of Fastlane.
    pub(super) release: String,
    /// Name of the program.
    pub(super) program: String,
    /// Its configuration without what may change while it runs: steering rules, and the keys of
    /// [`Program::changing`](crate::Program::changing).
    pub(super) configuration: Value,
    /// The tables. Their descriptors are writable.
    pub(super) tables: Vec<TableFacts>,
    /// The ports, and the index of their first descriptor.
    pub(super) ports: (PortManifest, usize),
    /// Index of the first descriptor of the message rings, which come last.
    pub(super) messages: Option<usize>,
    /// Number of descriptors.
    pub(crate) descriptors: usize,
}

impl Manifest {
    /// Creates the manifest of an application that runs `plan`, without any descriptor.
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            program: plan.source.program.clone(),
            configuration: plan.source.app_defaults.without_changing(without_rules(plan)),
            tables: vec![],
            ports: Default::default(),
            messages: None,
            descriptors: 0,
        }
    }

    /// Returns true if both manifests are equal.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let [this, other] = [self, other].map(|it| serde_json::to_value(it).unwrap_or_default());
        this == other
    }

    /// Checks that the application with the manifest `ours` may take this over.
    ///
    /// # Errors
    /// The difference: program, release or configuration keys.
    pub(super) fn check(&self, ours: &Self) -> Result<(), String> {
        if self.program != ours.program {
            let (theirs, ours) = (&self.program, &ours.program);
            return Err(format!("it comes from the program {theirs}, this is {ours}"));
        }
        if self.release != ours.release {
            let (theirs, ours) = (&self.release, &ours.release);
            return Err(format!("it comes from release {theirs}, this is {ours}"));
        }
        let mut keys = BTreeSet::new();
        compare("", &self.configuration, &ours.configuration, &mut keys);
        let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        if keys.is_empty() {
            return Ok(());
        }
        Err(format!("the configuration has changed ({})", keys.join(", ")))
    }
}
