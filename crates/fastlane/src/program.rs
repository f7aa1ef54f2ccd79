//! Programs with settings of their own: schema, derived defaults and reading by the slow path.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Error;
use crate::config::plan::Source;
use crate::config::raw::Configuration;
use crate::config::{self, AppDefaults, KernelPort};

/// Program with typed settings. [`main`](crate::main) suffices if `--schema` need not describe
/// `app` and no defaults derive from it.
///
/// # Examples
/// A table whose default capacity follows from the settings:
///
/// ```no_run
/// use fastlane::{Packet, Program, Verdict};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Settings { users: usize }
///
/// let program = Program::with_settings(|settings: &Settings, _written| {
///     Ok(serde_json::json!({ "tables": { "users": { "capacity": settings.users } } }))
/// });
/// program.main_from(std::env::args_os(), &Default::default(), |_lane| {
///     Ok(|_: &mut Packet| Verdict::Reflect)
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) schema: fn() -> String,
    pub(crate) app_defaults: AppDefaults,
    pub(crate) offloads_flows: bool,
}

impl Default for Program {
    fn default() -> Self {
        let (schema, app_defaults) = (config::schema, AppDefaults::default());
        Self { schema, app_defaults, offloads_flows: false }
    }
}

impl Program {
    /// Creates a program whose object `app` is an `S`. The schema describes it, and errors in it
    /// have line and column. `defaults` receives the parsed file and returns default values; keys
    /// present in the file take precedence, at any depth. It may fail with [`Error::Value`], whose
    /// path is relative to the whole configuration (`app.users`).
    #[must_use]
    pub fn with_settings<S: DeserializeOwned + JsonSchema>(
        defaults: impl Fn(&S, &Configuration) -> Result<Value, Error> + Send + Sync + 'static,
    ) -> Self {
        let (schema, app_defaults) = (config::schema_with::<S>, AppDefaults::new(defaults));
        Self { schema, app_defaults, offloads_flows: false }
    }

    /// Permits ports of the kernel tier (`"tier": "kernel"`): the slow path of this program writes
    /// flows to a [`KernelTier`](crate::flow_tier::KernelTier). Other programs refuse such ports.
    #[must_use]
    pub fn offloading_flows(self) -> Self {
        Self { offloads_flows: true, ..self }
    }

    /// Names keys that this program changes while it runs: a process whose file differs in them
    /// only takes over the resources of its predecessor, and finds their values in its tables. A
    /// path is written as in messages (`app.pools`); `*` stands for any key.
    #[must_use]
    pub fn changing(self, keys: &'static [&'static str]) -> Self {
        Self { app_defaults: self.app_defaults.changing(keys), ..self }
    }

    /// Returns the JSON schema of the configuration.
    #[must_use]
    pub fn schema(&self) -> String {
        (self.schema)()
    }

    /// Reads the configuration at `path` as the application named `program` would, with `overrides`
    /// of the form of `--set`. A slow path in a process of its own reads the shared file by this.
    ///
    /// # Errors
    /// The first error found.
    pub fn read<S: DeserializeOwned>(
        &self,
        path: &Path,
        overrides: &[String],
        program: &str,
    ) -> Result<LoadedConfig<S>, Error> {
        let (overrides, app_defaults) = (overrides.to_vec(), self.app_defaults.clone());
        let program = program.to_owned();
        let (path, offloads_flows) = (path.to_owned(), self.offloads_flows);
        let plan = config::load(Source { path, overrides, program, app_defaults, offloads_flows })?;
        let settings = config::settings(plan.app.as_ref())?;
        let (name, session, kernel_ports) = (plan.name, plan.session, plan.kernel_ports);
        Ok(LoadedConfig { name, session, kernel_ports, configuration: plan.raw, settings })
    }
}

/// Configuration of a program, read and resolved.
#[derive(Clone, Debug)]
pub struct LoadedConfig<S> {
    /// Name of the running application.
    pub name: String,
    /// Path of its session, for [`attach`](crate::slow::attach).
    pub session: PathBuf,
    /// Ports of the kernel tier.
    pub kernel_ports: Vec<KernelPort>,
    /// The configuration with every default filled in.
    pub configuration: Configuration,
    /// The settings: the object `app`.
    pub settings: S,
}
