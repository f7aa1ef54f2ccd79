//! Network map: what a lane knows of interfaces, network instances and UE address pools. It is
//! replaced as a whole when the configuration is reloaded.
//!
//! A thread beside each lane builds the new map, because that parses and allocates. The lane
//! exchanges it between two turns, by moves. It neither waits nor frees memory: the old map goes
//! back to the thread in the place of the new one.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Thread, park};
use std::time::{Duration, Instant};

use fastlane::table::RecordReader;
use fastlane::{Error, PortId};

use super::port_map::{PortMap, UePools};
use crate::config::running::{ConfigurationRecord, RunningConfig};
use crate::config::{Role, Settings};
use crate::session::InstanceId;

/// Interfaces, network instances and UE address pools.
#[derive(Debug)]
pub(crate) struct NetworkMap {
    /// Interfaces on each port.
    pub(crate) ports: PortMap,
    /// UE address pools.
    pub(crate) pools: UePools,
    /// Network instances of N6.
    pub(crate) instances: Vec<InstanceId>,
    /// Network instance of N6 if there is exactly one.
    pub(crate) only_instance: Option<InstanceId>,
}

impl NetworkMap {
    /// Creates the map of a configuration; `port` finds a port by its name.
    ///
    /// # Errors
    /// Errors of `port`, and invalid settings.
    pub(crate) fn new(
        settings: &Settings,
        ports: usize,
        port: impl Fn(&str) -> Result<PortId, Error>,
    ) -> Result<Self, Error> {
        let wrong = |what: String| Error::Value { path: "app".to_owned(), what, meant: None };
        let mut ports = PortMap::new(settings, ports, &port)?;
        if let Some(name) = &settings.hairpin {
            ports.set_hairpin(port(name)?);
        }
        let mut instances: Vec<InstanceId> = ports
            .interfaces
            .iter()
            .filter(|interface| interface.role == Role::N6)
            .map(|interface| interface.instance)
            .collect();
        instances.dedup();
        let only_instance = instances.first().copied().filter(|_| instances.len() == 1);
        let pools = UePools::new(settings).map_err(wrong)?;
        Ok(Self { ports, pools, instances, only_instance })
    }
}

/// No exchange is due.
const FREE: u8 = 0;
/// A new map waits for the lane.
const OFFERED: u8 = 1;
/// The old map waits for the thread.
const EXCHANGED: u8 = 2;

/// Interval at which the thread looks whether the lane has exchanged the maps.
const STEP: Duration = Duration::from_millis(1);
/// Longest wait for a lane.
const PATIENCE: Duration = Duration::from_secs(10);

/// Place where a lane and its thread exchange maps.
#[derive(Debug, Default)]
struct Exchange {
    /// Side that may take the content.
    state: AtomicU8,
    /// A map with its generation. The state says who uses it, so nobody waits for the lock.
    content: Mutex<Option<(u64, Box<NetworkMap>)>>,
    /// Generation that the control plane has announced.
    announced: AtomicU64,
    /// True once the lane has ended.
    is_over: AtomicBool,
}

/// Lane's end of the exchange. The thread ends with it.
#[derive(Debug)]
pub(crate) struct MapUpdates {
    exchange: Arc<Exchange>,
    thread: Thread,
}

impl Drop for MapUpdates {
    fn drop(&mut self) {
        self.exchange.is_over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl MapUpdates {
    /// Starts the thread of a lane. It reads configurations from `record`; `ports` are the names of
    /// the ports by number, and `generation` the configuration that the lane starts with.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        record: RecordReader<ConfigurationRecord>,
        ports: Vec<String>,
        generation: u64,
    ) -> std::io::Result<Self> {
        let exchange = Arc::<Exchange>::default();
        exchange.announced.store(generation, Ordering::Relaxed);
        let builder = MapBuilder { exchange: Arc::clone(&exchange), record, ports, generation };
        let thread = std::thread::Builder::new().name("configuration".to_owned());
        let thread = thread.spawn(move || builder.run())?.thread().clone();
        Ok(Self { exchange, thread })
    }

    /// Asks the thread for the map of a generation, unless it was asked before. Does not wait.
    pub(crate) fn announce(&self, generation: u64) {
        if self.exchange.announced.swap(generation, Ordering::Release) != generation {
            self.thread.unpark();
        }
    }

    /// Exchanges the map if a new one is offered, by `exchange`, and returns its generation.
    #[inline]
    pub(crate) fn take(&self, exchange: impl FnOnce(&mut NetworkMap)) -> Option<u64> {
        if self.exchange.state.load(Ordering::Relaxed) != OFFERED {
            return None;
        }
        self.take_now(exchange)
    }

    #[cold]
    fn take_now(&self, exchange: impl FnOnce(&mut NetworkMap)) -> Option<u64> {
        let mut content = self.exchange.content.try_lock().ok()?;
        let (generation, map) = content.as_mut()?;
        exchange(map);
        self.exchange.state.store(EXCHANGED, Ordering::Release);
        Some(*generation)
    }
}

/// Logs a configuration that cannot be used. The control plane has checked it.
fn log(reason: &str) {
    #[cfg(feature = "control-plane")]
    tracing::error!("the configuration cannot be used: {reason}");
    #[cfg(not(feature = "control-plane"))]
    let _ = reason;
}

/// Thread that builds the maps of a lane.
struct MapBuilder {
    exchange: Arc<Exchange>,
    record: RecordReader<ConfigurationRecord>,
    ports: Vec<String>,
    /// Generation of the last map that was offered.
    generation: u64,
}

impl MapBuilder {
    fn run(mut self) {
        loop {
            while self.exchange.announced.load(Ordering::Acquire) == self.generation
                && !self.is_over()
            {
                park();
            }
            if self.is_over() {
                return;
            }
            self.generation = self.exchange.announced.load(Ordering::Acquire);
            match self.build() {
                Ok((generation, map)) => self.offer(generation, map),
                Err(reason) => log(&reason),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.exchange.is_over.load(Ordering::Acquire)
    }

    /// Builds the map of the configuration in the record, with its generation.
    fn build(&self) -> Result<(u64, Box<NetworkMap>), String> {
        let record = self.record.copy().ok_or("there is none")?;
        let RunningConfig { settings, generation, .. } = RunningConfig::read(&record)?;
        let port = |name: &str| {
            let number = self.ports.iter().position(|port| port == name);
            let number = number.and_then(|number| u16::try_from(number).ok());
            number.map(PortId).ok_or_else(|| Error::Value {
                path: "app.interfaces".to_owned(),
                what: format!("there is no port `{name}`"),
                meant: None,
            })
        };
        let map = NetworkMap::new(&settings, self.ports.len(), port);
        Ok((generation, Box::new(map.map_err(|error| error.to_string())?)))
    }

    /// Offers a map to the lane and frees the one that it had. An older offer that the lane has not
    /// taken is replaced.
    fn offer(&self, generation: u64, map: Box<NetworkMap>) {
        let Exchange { state, content, .. } = &*self.exchange;
        let put = |new, next| {
            let mut content = content.lock().unwrap_or_else(PoisonError::into_inner);
            *content = new;
            state.store(next, Ordering::Release);
        };
        put(Some((generation, map)), OFFERED);
        let end = Instant::now() + PATIENCE;
        while state.load(Ordering::Acquire) == OFFERED && !self.is_over() && Instant::now() < end {
            std::thread::sleep(STEP);
        }
        // A lane that has not taken it does so later.
        if state.load(Ordering::Acquire) == EXCHANGED {
            put(None, FREE);
        }
    }
}

#[cfg(test)]
mod tests {
    use fastlane::table::{RecordWriter, Spec};
    use fastlane_testing::sleeping_lane;
    use serde_json::json;

    use super::*;

    fn running(instances: &[&str], before: Option<&RunningConfig>) -> RunningConfig {
        let configuration = json!({
            "ports": { "n3": { "driver": { "memory": {} } }, "n6": { "driver": { "memory": {} } } },
            "app": {
                "node-id": "192.0.2.1",
                "n4": { "addresses": ["192.0.2.1"] },
                "interfaces": {
                    "n3": { "port": "n3", "role": "n3", "addresses": ["10.3.0.1"] },
                    "n6": { "port": "n6", "role": "n6", "network-instances": instances },
                },
            },
        });
        let configuration: fastlane::config::raw::Configuration =
            serde_json::from_value(configuration).unwrap();
        let settings = serde_json::from_value(configuration.app.clone().unwrap()).unwrap();
        let running = RunningConfig::new(&configuration, settings);
        before.map_or(running.clone(), |before| running.following(before).unwrap())
    }

    /// Calls `take` until a map is there, as a lane does each turn.
    fn taken(updates: &MapUpdates, map: &mut NetworkMap) -> u64 {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let exchange = |new: &mut NetworkMap| std::mem::swap(map, new);
            if let Some(generation) = updates.take(exchange) {
                return generation;
            }
            assert!(Instant::now() < end, "no map is offered");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_lane_exchanges_the_map_of_each_generation_once() {
        let memory = Spec::record::<ConfigurationRecord>("configuration").create().unwrap();
        let mut writer =
            RecordWriter::<ConfigurationRecord>::attach(&memory, &sleeping_lane()).unwrap();
        let reader = RecordReader::attach(&memory).unwrap();
        let mut current = running(&["internet"], None);
        let port = |name: &str| Ok(PortId(u16::from(name == "n6")));
        let mut map = NetworkMap::new(&current.settings, 2, port).unwrap();
        let ports = ["n3", "n6"].map(str::to_owned).to_vec();
        let updates = MapUpdates::start(reader, ports, 1).unwrap();
        let mut names = vec!["internet"];
        for name in ["a", "b", "c"] {
            names = vec![name];
            current = running(&names, Some(&current));
            writer.set(&current.record().unwrap()).unwrap();
            updates.announce(current.generation);
            updates.announce(current.generation); // a reminder
            assert_eq!(taken(&updates, &mut map), current.generation);
            let number = current.settings.instance(name).unwrap();
            assert_eq!(map.instances, [number], "network instances keep their numbers");
        }
        assert_eq!((names, current.generation), (vec!["c"], 4));
        std::thread::sleep(STEP * 5);
        assert_eq!(updates.take(|_| ()), None, "each map is offered once");
    }
}
