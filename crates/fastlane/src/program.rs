//! A program around an application: its settings, and what follows from them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastlane_core::App;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::plan::Source;
use crate::config::raw::Configuration;
use crate::config::{self, AppDefaults};
use crate::{Error, LaneInfo};

/// What a program is besides what its application does with packets. [`main`](crate::main) is
/// enough where `app` has no form that `--schema` should show, and nothing follows from it.
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
}

impl Default for Program {
    fn default() -> Self {
        Self { schema: config::schema, app_defaults: AppDefaults::default() }
    }
}

impl Program {
    /// A program whose object `app` is an `S`: the schema shows it, and mistakes in it are shown
    /// where they are. `defaults` gets what is written and returns a configuration, of which all
    /// keys hold that are not written, at any depth; so capacities of tables need not be written
    /// where they follow from the settings. It may refuse by [`Error::Value`], whose path is in the
    /// whole configuration (`app.users`).
    #[must_use]
    pub fn with_settings<S: DeserializeOwned + JsonSchema>(
        defaults: impl Fn(&S, &Configuration) -> Result<Value, Error> + Send + Sync + 'static,
    ) -> Self {
        Self { schema: config::schema_with::<S>, app_defaults: AppDefaults::new(defaults) }
    }

    /// The JSON schema of its configuration.
    #[must_use]
    pub fn schema(&self) -> String {
        (self.schema)()
    }

    /// As [`main_from`](crate::main_from).
    pub fn main_from<A, F>(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        stop: &Arc<AtomicBool>,
        factory: F,
    ) -> u8
    where
        A: App + Send,
        F: FnMut(&LaneInfo<'_>) -> Result<A, Error>,
    {
        crate::entry::main_of(self, arguments, stop, factory)
    }

    /// Reads the configuration at `path` as the application would that is started as `program`,
    /// with changes as `--set` has them: for the slow half, which shares the file. Touches nothing.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn read<S: DeserializeOwned>(
        &self,
        path: &Path,
        overrides: &[String],
        program: &str,
    ) -> Result<LoadedConfig<S>, Error> {
        let (overrides, app_defaults) = (overrides.to_vec(), self.app_defaults.clone());
        let program = program.to_owned();
        let plan =
            config::load(Source { path: path.to_owned(), overrides, program, app_defaults })?;
        let settings = config::settings(plan.app.as_ref())?;
        let (name, session, configuration) = (plan.name, plan.session, plan.raw);
        Ok(LoadedConfig { name, session, configuration, settings })
    }
}

/// What a program is told by its configuration.
#[derive(Clone, Debug)]
pub struct LoadedConfig<S> {
    /// The name of the running application.
    pub name: String,
    /// Where its session is: for [`attach`](crate::slow::attach), as a path.
    pub session: PathBuf,
    /// All that holds, every default filled in.
    pub configuration: Configuration,
    /// The object `app`.
    pub settings: S,
}
