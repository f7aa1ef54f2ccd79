//! Shared memory of a mirror's tables, which is passed to other processes as descriptors.

use std::sync::Arc;

use fastlane_table::{SharedMemory, Spec, TableError};

use super::MirrorSettings;
use super::records::{
    AddressKey, FIRST_GROUP, GroupRecord, HopRecord, LinkRecord, NeighbourKey, NeighbourRecord,
    StatusRecord,
};

/// Version of the record layouts; writer and readers must agree.
const VERSION: u64 = 0x6d69_7272_6f72_0003; // "mirror", 3

/// Shared memory of all tables of a mirror. [`named`](Self::named) lists the names.
#[derive(Clone, Debug)]
pub struct Memories {
    pub(super) status: Arc<SharedMemory>,
    pub(super) generation: Arc<SharedMemory>,
    pub(super) links: Arc<SharedMemory>,
    pub(super) addresses: Arc<SharedMemory>,
    pub(super) neighbours: Arc<SharedMemory>,
    pub(super) hops: Arc<SharedMemory>,
    pub(super) groups: Arc<SharedMemory>,
    /// The IPv4 and the IPv6 prefix table of each routing table.
    pub(super) routes: Vec<[Arc<SharedMemory>; 2]>,
}

/// Names of the tables before the prefix tables.
const NAMES: [&str; 7] =
    ["status", "generation", "links", "addresses", "neighbours", "hops", "groups"];

impl Memories {
    /// Creates empty tables.
    ///
    /// # Errors
    /// Returns an error if a size is not possible, or if the kernel refuses the memory.
    pub(super) fn create(settings: &MirrorSettings) -> Result<Self, TableError> {
        let name = |table: &str| format!("{}:{table}", settings.name);
        let make = |spec: Spec| spec.typed(VERSION).create();
        let groups = settings.groups + FIRST_GROUP as usize;
        let tables = settings.tables.len().max(1);
        let routes = |table: &u32| {
            let names = [name(&format!("routes4-{table}")), name(&format!("routes6-{table}"))];
            let four = make(Spec::lpm4(&names[0], settings.routes4))?;
            Ok([four, make(Spec::lpm6(&names[1], settings.routes6))?])
        };
        Ok(Self {
            status: make(Spec::array::<StatusRecord>(&name("status"), tables))?,
            generation: make(Spec::state::<1>(&name("generation"), 1, 0))?,
            links: make(Spec::hash::<u32, LinkRecord>(&name("links"), settings.links))?,
            addresses: make(Spec::hash::<AddressKey, u32>(&name("addresses"), settings.addresses))?,
            neighbours: make(Spec::hash::<NeighbourKey, NeighbourRecord>(
                &name("neighbours"),
                settings.neighbours,
            ))?,
            hops: make(Spec::array::<HopRecord>(&name("hops"), settings.hops))?,
            groups: make(Spec::array::<GroupRecord>(&name("groups"), groups))?,
            routes: settings.tables.iter().map(routes).collect::<Result<_, TableError>>()?,
        })
    }

    /// Returns every memory with its name, in the order that [`from_named`](Self::from_named)
    /// expects.
    #[must_use]
    pub fn named(&self) -> Vec<(String, Arc<SharedMemory>)> {
        let first = [
            &self.status,
            &self.generation,
            &self.links,
            &self.addresses,
            &self.neighbours,
            &self.hops,
            &self.groups,
        ];
        let first =
            NAMES.iter().zip(first).map(|(name, memory)| ((*name).to_owned(), Arc::clone(memory)));
        let routes = self.routes.iter().enumerate().flat_map(|(index, families)| {
            let names = ["routes4", "routes6"].into_iter().zip(families);
            names.map(move |(name, memory)| (format!("{name}-{index}"), Arc::clone(memory)))
        });
        first.chain(routes).collect()
    }

    /// Assembles the memories that another process created, by their names.
    ///
    /// # Errors
    /// The name of one that is missing.
    pub fn from_named(named: &[(String, Arc<SharedMemory>)]) -> Result<Self, String> {
        let find = |name: &str| named.iter().find(|(is, _)| is == name);
        let get = |name: &str| {
            find(name).map(|(_, memory)| Arc::clone(memory)).ok_or_else(|| name.to_owned())
        };
        let mut routes = Vec::new();
        while find(&format!("routes4-{}", routes.len())).is_some() {
            let index = routes.len();
            routes.push([get(&format!("routes4-{index}"))?, get(&format!("routes6-{index}"))?]);
        }
        Ok(Self {
            status: get("status")?,
            generation: get("generation")?,
            links: get("links")?,
            addresses: get("addresses")?,
            neighbours: get("neighbours")?,
            hops: get("hops")?,
            groups: get("groups")?,
            routes,
        })
    }
}
