//! The program: command line, configuration, and the start of both processes.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fastlane::slow::HandoverHolder;
use fastlane::{Error, LaneInfo, LoadedConfig, Program};
use signal_hook::consts::SIGHUP;

use crate::api::backend::Backend;
use crate::config::reloadable::RELOADABLE;
use crate::config::running::RunningConfig;
use crate::config::{Settings, defaults};
use crate::pfcp::ConfigurationFile;
use crate::pfcp::associations::association_record::AssociationRecord;
use crate::pfcp::node::NodeRecord;
use crate::pfcp::run::run;
use crate::rules::Capacities;
use crate::rules::layout::slices::{SLICES, SliceRecord};
use crate::rules::layout::table;
use crate::store::record::{ResponseRecord, SessionPart, SessionRecord};

pub mod blackhole_routes;
mod end_signals;
pub mod supervise;

pub use end_signals::{stop_by_signal, wait_for_end};

/// Name of the program, and of its session unless the configuration has another one.
pub const NAME: &str = "upf";

/// Time for which the control plane keeps the resources of a fast path process that ended, for its
/// successor.
const HANDOVER_TIME: Duration = Duration::from_secs(60);

/// Returns the description of this program for Fastlane.
#[must_use]
pub fn program() -> Program {
    Program::with_settings(|settings, written| {
        defaults(settings, written, &Capacities::of(settings).by_table())
    })
    .changing(RELOADABLE)
}

/// Reads the configuration, for everything except the fast path.
///
/// # Errors
/// Returns the first error.
pub fn read(path: &Path, overrides: &[String]) -> Result<LoadedConfig<Settings>, Error> {
    program().read(path, overrides, NAME)
}

/// Runs the fast path in this process, with the command line of a Fastlane application, until it is
/// asked to end or `stop` is true. Returns the exit status.
pub fn fast(words: impl IntoIterator<Item = OsString>, stop: &Arc<AtomicBool>) -> u8 {
    program().main_from(words, stop, |lane| {
        create_control_tables(lane)?;
        crate::datapath::upf(lane)
    })
}

/// Creates the tables that lanes never read, in which the control plane keeps its state for its
/// successor.
fn create_control_tables(lane: &LaneInfo<'_>) -> Result<(), Error> {
    lane.array::<SessionRecord>(table::SESSIONS)?;
    lane.array::<SessionPart>(table::SESSION_PARTS)?;
    lane.array::<ResponseRecord>(table::ANSWERS)?;
    lane.array::<AssociationRecord>(table::PEERS)?;
    lane.record::<NodeRecord>(table::NODE)?;
    lane.array::<SliceRecord>(SLICES)?;
    Ok(())
}

/// Runs the control plane in this process until it is asked to end: by a first signal after a
/// drain, by a second one at once.
///
/// # Errors
/// If the configuration is invalid, or this machine refuses something.
pub fn slow(path: &Path, overrides: &[String], verbose: u8) -> Result<(), Error> {
    let LoadedConfig { session, settings, configuration, .. } = read(path, overrides)?;
    fastlane::log(verbose);
    let failed = |error| Error::Run(format!("cannot handle signals: {error}"));
    let shutdown = end_signals::follow().map_err(failed)?;
    let is_requested = Arc::<AtomicBool>::default();
    signal_hook::flag::register(SIGHUP, Arc::clone(&is_requested)).map_err(failed)?;
    prepare(&settings);
    let session = as_path(&session);
    let keeper = HandoverHolder::start(&session, HANDOVER_TIME);
    if let Err(error) = &keeper {
        tracing::warn!("a fast path process that dies cannot hand its resources over: {error}");
    }
    let mut backend = Backend::open(&settings, &session).map_err(Error::application)?;
    tracing::info!("running; waiting for the fast path at {session}");
    let file = ConfigurationFile {
        first: RunningConfig::new(&configuration, settings),
        read: &|| {
            let LoadedConfig { configuration, settings, .. } =
                read(path, overrides).map_err(|error| error.to_string())?;
            Ok(RunningConfig::new(&configuration, settings))
        },
        path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        on_change: &prepare,
        is_requested: &is_requested,
    };
    run(&file, &session, &shutdown, &mut backend).map_err(Error::application)
}

/// Prepares Linux for the pools, and warns of what an operator should know.
fn prepare(settings: &Settings) {
    for problem in blackhole_routes::add_missing(settings) {
        tracing::warn!("{problem}");
    }
    if let Some(warning) = open_n4(settings) {
        tracing::warn!("{warning}");
    }
}

/// Returns the session path with a slash; without one it would be the name of an application.
fn as_path(session: &Path) -> String {
    let text = session.to_string_lossy();
    if text.contains('/') { text.into_owned() } else { format!("./{text}") }
}

/// Returns warnings about what will probably fail, in addition to Fastlane's, one sentence each.
/// Changes nothing.
#[must_use]
pub fn warnings(settings: &Settings) -> Vec<String> {
    let n4 = settings.n4.addresses.iter().filter_map(|address| missing(*address));
    let pools = blackhole_routes::examine(settings);
    let api = settings.api.filter(|address| !address.ip().is_loopback()).map(|address| {
        format!(
            "app.api: {address} is reachable from other hosts and the API has no authentication; \
             use 127.0.0.1, or protect it"
        )
    });
    n4.chain(open_n4(settings)).chain(pools).chain(api).chain(no_directory(settings)).collect()
}

/// Returns the warning that the directory of the usage export does not exist, if so.
fn no_directory(settings: &Settings) -> Option<String> {
    let socket = Path::new(&settings.usage_export.as_ref()?.socket);
    let directory = socket.parent().filter(|it| !it.is_dir())?.display();
    Some(format!("app.usage-export.socket: there is no directory {directory}; create it"))
}

/// Returns the warning that any address may associate, if so.
fn open_n4(settings: &Settings) -> Option<String> {
    settings.n4.is_open().then(|| {
        "app.n4: any address may associate and establish sessions; name the SMFs in \
         app.n4.allow or app.n4.peers"
            .to_owned()
    })
}

fn missing(address: IpAddr) -> Option<String> {
    let error = UdpSocket::bind(SocketAddr::new(address, 0)).err()?;
    Some(format!(
        "app.n4.addresses: {address} is no address of this host ({error}); add it, e.g. by `ip \
         address add {address}/24 dev eth0`"
    ))
}
