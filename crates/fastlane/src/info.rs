//! What an application learns of the lane that it will run in.

use fastlane_table::{
    ArrayReader, HashReader, Key, LanePending, LaneState, Lpm4Reader, Lpm6Reader, Pending,
    RecordReader, Spec, State, TableError, Value,
};
use serde::de::DeserializeOwned;

use crate::config::plan::Plan;
use crate::mirror::{self, Mirror, MirrorService};
use crate::tables::{Role, Tables};
use crate::{Error, PortId, config};

/// The lane for which an application is made.
#[derive(Clone, Copy, Debug)]
pub struct LaneInfo<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) index: usize,
    pub(crate) tables: &'a Tables,
    pub(crate) mirror: Option<&'a MirrorService>,
}

/// Who writes the lane state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One lane, the one that gets the packets of its key (`lane-by`): there is one copy.
    Owner,
    /// Any lane, each in a copy of its own. Who reads it adds them up.
    PerLane,
}

impl LaneInfo<'_> {
    /// The lane's number among those that have the application, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many lanes have the application: all, or of master-worker the workers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.plan.lane_roles.applications.len()
    }

    /// The lane's place in `lanes.cpus`, by which counters, messages and `fastlane top` call it; of
    /// run-to-completion the same as [`index`](Self::index).
    #[must_use]
    pub fn lane(&self) -> usize {
        self.plan.lane_roles.applications.get(self.index).copied().unwrap_or(self.index)
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
        config::settings(self.plan.app.as_ref())
    }

    /// What Linux knows of links, addresses, neighbours and routes, for this lane.
    ///
    /// # Errors
    /// When the configuration has no `mirror`, or there is no memory.
    pub fn mirror(&self) -> Result<Mirror, Error> {
        self.mirror.ok_or_else(mirror::not_configured)?.lane()
    }

    /// The exact-match table of this name, to read. Its capacity is configured under `tables`. The
    /// slow path writes it (see [`slow`](crate::slow)).
    ///
    /// # Errors
    /// When it is not configured, was asked for with other types before, or there is no memory; as
    /// with all that follow.
    pub fn hash<K: Key, V: Value>(&self, name: &str) -> Result<HashReader<K, V>, Error> {
        let spec = |capacity| Spec::hash::<K, V>(name, capacity);
        let memory = self.tables.part(name, Role::Table, spec)?;
        HashReader::attach(&memory).map_err(failed)
    }

    /// The array of this name, to read.
    ///
    /// # Errors
    /// As [`hash`](Self::hash).
    pub fn array<V: Value>(&self, name: &str) -> Result<ArrayReader<V>, Error> {
        let spec = |capacity| Spec::array::<V>(name, capacity);
        ArrayReader::attach(&self.tables.part(name, Role::Table, spec)?).map_err(failed)
    }

    /// The record of this name, to read: one value that is exchanged as a whole. Its configured
    /// capacity does not matter.
    ///
    /// # Errors
    /// As [`hash`](Self::hash).
    pub fn record<V: Value>(&self, name: &str) -> Result<RecordReader<V>, Error> {
        let spec = |_| Spec::record::<V>(name);
        RecordReader::attach(&self.tables.part(name, Role::Table, spec)?).map_err(failed)
    }

    /// The table of IPv4 prefixes of this name, to read.
    ///
    /// # Errors
    /// As [`hash`](Self::hash).
    pub fn lpm4(&self, name: &str) -> Result<Lpm4Reader, Error> {
        let spec = |capacity| Spec::lpm4(name, capacity);
        Lpm4Reader::attach(&self.tables.part(name, Role::Table, spec)?).map_err(failed)
    }

    /// The table of IPv6 prefixes of this name, to read.
    ///
    /// # Errors
    /// As [`hash`](Self::hash).
    pub fn lpm6(&self, name: &str) -> Result<Lpm6Reader, Error> {
        let spec = |capacity| Spec::lpm6(name, capacity);
        Lpm6Reader::attach(&self.tables.part(name, Role::Table, spec)?).map_err(failed)
    }

    /// `W` words for each entry of the table of this name, for this lane to write and the slow path
    /// to read. They are zero when an entry is new.
    ///
    /// # Errors
    /// As [`hash`](Self::hash).
    pub fn state<const W: usize>(&self, name: &str, shape: Shape) -> Result<LaneState<W>, Error> {
        let spec = |capacity| Spec::state::<W>(name, capacity, self.copies(shape));
        let memory = self.tables.part(name, Role::State, spec)?;
        Ok(State::attach(&memory).map_err(failed)?.lane(self.index))
    }

    fn copies(&self, shape: Shape) -> usize {
        match shape {
            Shape::Owner => 0,
            Shape::PerLane => self.count(),
        }
    }

    /// As [`state`](Self::state), of the routes of the mirror: `W` words under each of their
    /// numbers ([`NextHop::route`](crate::mirror::NextHop::route)), below
    /// [`route_numbers`](fastlane_mirror::Mirror::route_numbers). They are zero when a route
    /// gets a number, whatever the route was that had it before.
    ///
    /// # Errors
    /// As [`hash`](Self::hash), and when the configuration has no `mirror`.
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

    /// Events of the entries of the table of this name that must not be lost: this lane raises
    /// them, the slow path sees each until it is done with it.
    ///
    /// # Errors
    /// As [`hash`](Self::hash).
    pub fn pending(&self, name: &str) -> Result<LanePending, Error> {
        let spec = |capacity| Spec::pending(name, capacity, self.count());
        let memory = self.tables.part(name, Role::Pending, spec)?;
        Ok(Pending::attach(&memory).map_err(failed)?.lane(self.index))
    }
}

fn failed(error: TableError) -> Error {
    Error::Service { what: "tables", reason: error.to_string() }
}
