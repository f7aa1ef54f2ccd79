//! Lane information for the factory of an application: ports, settings, tables and the mirror.

use std::sync::Arc;

use fastlane_table::{
    ArrayReader, ClassifierReader, EntryId, HashReader, Key, LanePending, LaneState, Lpm4Reader,
    Lpm6Reader, Pending, RecordReader, Spec, State, TableError, Value,
};
use serde::de::DeserializeOwned;

use crate::config::plan::Plan;
use crate::metrics::{ApplicationMetric, MetricSource, OutcomeCounts, OutcomeSource, Outcomes};
use crate::mirror::{self, Mirror, MirrorService};
use crate::tables::{Role, Tables};
use crate::{Error, PortId, config};

/// Lane for which an instance of the application is created.
///
/// # Examples
/// A factory that requests a table and lane state by name:
/// ```no_run
/// use fastlane::table::{HashReader, LaneState};
/// use fastlane::{App, Packet, Shape, Turn, Verdict};
///
/// struct Limiter {
///     users: HashReader<[u8; 4], u64>,
///     counts: LaneState<2>,
/// }
///
/// impl App for Limiter {
///     fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
///         packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Kernel));
///     }
/// }
///
/// fn main() -> std::process::ExitCode {
///     fastlane::main(|lane| {
///         let users = lane.hash("users")?; // configured as `tables.users.capacity`
///         let counts = lane.state("users", Shape::PerLane)?;
///         Ok(Limiter { users, counts })
///     })
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LaneInfo<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) index: usize,
    pub(crate) tables: &'a Tables,
    pub(crate) mirror: Option<&'a MirrorService>,
}

/// Number of copies of the lane state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One copy, written by the lane that receives the packets of the key (`lane-by`).
    Owner,
    /// One copy per lane. Readers add them up.
    PerLane,
}

/// Creates the application of each lane that has one. `--check` creates those of a run.
pub(crate) fn create_applications<A>(
    plan: &Plan,
    tables: &Tables,
    mirror: Option<&MirrorService>,
    mut factory: impl FnMut(&LaneInfo<'_>) -> Result<A, Error>,
) -> Result<Vec<A>, Error> {
    let lane = |index| LaneInfo { plan, index, tables, mirror };
    (0..plan.lane_roles.applications.len()).map(|index| factory(&lane(index))).collect()
}

impl LaneInfo<'_> {
    /// Returns the lane's number among those with the application, counted from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the number of lanes with the application: all, or the workers in master-worker.
    #[must_use]
    pub fn count(&self) -> usize {
        self.plan.lane_roles.applications.len()
    }

    /// Returns the lane's index in `lanes.cpus`, as used by counters, messages and `fastlane top`.
    /// In run-to-completion it equals [`index`](Self::index).
    #[must_use]
    pub fn lane(&self) -> usize {
        self.plan.lane_roles.applications.get(self.index).copied().unwrap_or(self.index)
    }

    /// Returns the port of this name.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<PortId> {
        self.plan.ports.iter().find(|port| port.name == name).map(|port| port.id)
    }

    /// Returns the port of this name.
    ///
    /// # Errors
    /// Fails if it does not exist, with the names of all ports.
    pub fn require_port(&self, name: &str) -> Result<PortId, Error> {
        self.port(name).ok_or_else(|| {
            let names: Vec<&str> = self.port_names().collect();
            let names = names.join(", ");
            let what = format!("the application needs a port `{name}`; there are {names}");
            Error::Value { path: "ports".to_owned(), what, meant: None }
        })
    }

    /// Returns the names of the ports, in the order of their numbers.
    pub fn port_names(&self) -> impl Iterator<Item = &str> {
        self.plan.ports.iter().map(|port| port.name.as_str())
    }

    /// Parses the object `app` of the configuration; an absent one is read as `{}`.
    ///
    /// # Errors
    /// Fails if it does not have the form of `T`, with the path to the error.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<T, Error> {
        config::settings(self.plan.app.as_ref())
    }

    /// Returns this lane's view of Linux's links, addresses, neighbours and routes.
    ///
    /// # Errors
    /// Fails if the configuration has no `mirror`, or no memory is available.
    pub fn mirror(&self) -> Result<Mirror, Error> {
        self.mirror.ok_or_else(mirror::not_configured)?.lane()
    }

    /// Returns a reader of the exact-match table of this name. Its capacity is configured under
    /// `tables`. The slow path writes it (see [`slow`](crate::slow)).
    ///
    /// # Errors
    /// Fails if the table is not configured, was requested with other types before, or no memory is
    /// available.
    pub fn hash<K: Key, V: Value>(&self, name: &str) -> Result<HashReader<K, V>, Error> {
        let spec = |capacity| Spec::hash::<K, V>(name, capacity);
        let memory = self.tables.part(name, Role::Table, spec)?;
        HashReader::attach(&memory).map_err(failed)
    }

    /// Returns a reader of the array of this name.
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn array<V: Value>(&self, name: &str) -> Result<ArrayReader<V>, Error> {
        let spec = |capacity| Spec::array::<V>(name, capacity);
        ArrayReader::attach(&self.tables.part(name, Role::Table, spec)?).map_err(failed)
    }

    /// Returns a reader of the record of this name: one value that is replaced as a whole. Its
    /// configured capacity is ignored.
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn record<V: Value>(&self, name: &str) -> Result<RecordReader<V>, Error> {
        let spec = |_| Spec::record::<V>(name);
        RecordReader::attach(&self.tables.part(name, Role::Table, spec)?).map_err(failed)
    }

    /// Returns a reader of the classifier of this name: lists of rules, of which the first that
    /// matches a packet decides. `rules` returns the maximum number of rules of each address family
    /// for the configured capacity.
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn classifier<V: Value>(
        &self,
        name: &str,
        rules: impl FnOnce(usize) -> usize,
    ) -> Result<ClassifierReader<V>, Error> {
        let spec = |capacity| Spec::classifier::<V>(name, rules(capacity));
        ClassifierReader::attach(&self.tables.part(name, Role::Table, spec)?).map_err(failed)
    }

    /// Returns a reader of the table of IPv4 prefixes of this name.
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn lpm4(&self, name: &str) -> Result<Lpm4Reader, Error> {
        let spec = |capacity| Spec::lpm4(name, capacity);
        Lpm4Reader::attach(&self.tables.part(name, Role::Table, spec)?).map_err(failed)
    }

    /// Returns a reader of the table of IPv6 prefixes of this name.
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn lpm6(&self, name: &str) -> Result<Lpm6Reader, Error> {
        let spec = |capacity| Spec::lpm6(name, capacity);
        Lpm6Reader::attach(&self.tables.part(name, Role::Table, spec)?).map_err(failed)
    }

    /// Returns lane state of the table of this name: `W` words per entry that this lane writes and
    /// the slow path reads. The words of a new entry are zero.
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn state<const W: usize>(&self, name: &str, shape: Shape) -> Result<LaneState<W>, Error> {
        let spec = |capacity| Spec::state::<W>(name, capacity, self.copies(shape));
        let memory = self.tables.part(name, Role::State, spec)?;
        Ok(State::attach(&memory).map_err(failed)?.lane(self.index))
    }

    /// Returns lane state of the table of this name that counts packets and bytes by outcome, one
    /// copy per lane. `names` are the entries in use; `GET /metrics` has them as
    /// `fastlane_outcome_packets_total` and `fastlane_outcome_bytes_total`.
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn outcomes(
        &self,
        name: &str,
        names: impl IntoIterator<Item = (u32, String)>,
    ) -> Result<LaneState<2>, Error> {
        let spec = |capacity| Spec::state::<2>(name, capacity, self.count());
        let memory = self.tables.part(name, Role::State, spec)?;
        let state = State::attach(&memory).map_err(failed)?;
        let names = names.into_iter().map(|(entry, name)| (EntryId(entry), name)).collect();
        self.tables.set_outcomes(name, Outcomes { state: state.clone(), names });
        Ok(state.lane(self.index))
    }

    /// Adds packets by outcome that no lane has seen, to those of [`outcomes`](Self::outcomes) with
    /// the name of a table, in `GET /metrics`. `read` is called at each scrape.
    pub fn add_outcomes(
        &self,
        name: &str,
        read: impl Fn() -> Vec<OutcomeCounts> + Send + Sync + 'static,
    ) {
        self.tables.set_outcome_source(name, OutcomeSource(Arc::new(read)));
    }

    /// Adds metrics of the application to `GET /metrics`, in the name of a table. `read` is called
    /// at each scrape.
    pub fn add_metrics(
        &self,
        name: &str,
        read: impl Fn() -> Vec<ApplicationMetric> + Send + Sync + 'static,
    ) {
        self.tables.set_metric_source(name, MetricSource(Arc::new(read)));
    }

    fn copies(&self, shape: Shape) -> usize {
        match shape {
            Shape::Owner => 0,
            Shape::PerLane => self.count(),
        }
    }

    /// Returns lane state of the mirror's routes: `W` words per route number
    /// ([`NextHop::route`](crate::mirror::NextHop::route)), below
    /// [`route_numbers`](fastlane_mirror::Mirror::route_numbers). The words are zeroed before a
    /// number is reused for another route.
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash), or if the configuration has no `mirror`.
    pub fn route_state<const W: usize>(
        &self,
        name: &str,
        shape: Shape,
    ) -> Result<LaneState<W>, Error> {
        let state = self.state(name, shape)?;
        let mirror = self.mirror.ok_or_else(mirror::not_configured)?;
        let spec = |capacity| Spec::state::<W>(name, capacity, self.copies(shape));
        let memory = self.tables.part(name, Role::State, spec)?;
        mirror.count_in(name, &memory).map_err(failed)?;
        Ok(state)
    }

    /// Returns pending events of the entries of the table of this name. This lane raises them; each
    /// stays visible to the slow path until it is acknowledged.
    ///
    /// # Errors
    /// Fails like [`hash`](Self::hash).
    pub fn pending(&self, name: &str) -> Result<LanePending, Error> {
        let spec = |capacity| Spec::pending(name, capacity, self.count());
        let memory = self.tables.part(name, Role::Pending, spec)?;
        Ok(Pending::attach(&memory).map_err(failed)?.lane(self.index))
    }
}

fn failed(error: TableError) -> Error {
    Error::Service { what: "tables", reason: error.to_string() }
}
