//! Roles of the lanes (threading model), and the selection of a packet's lane (`lane-by`).

use fastlane_steer::{KeyField, LaneKey};

use super::checks::{refuse, twice};
use super::raw::{self, Driver};
use crate::Error;

/// Default capacity of a ring between two lanes in run-to-completion, in packets.
const RING: usize = 1024;
/// Minimum capacity of a ring between two lanes, in packets.
const SMALLEST_RING: usize = 64;

/// Lanes by role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneRoles {
    /// Lanes that may have ports.
    pub ports: Vec<usize>,
    /// Lanes that have the application.
    pub applications: Vec<usize>,
    /// Configured capacity of the rings; `None` in run-to-completion.
    ring: Option<usize>,
}

/// Selection of the lane for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneBy {
    Rss,
    Key(LaneKey),
    Application,
}

impl LaneBy {
    /// Returns the name, as in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rss => "rss",
            Self::Key(LaneKey::Flow) => "flow",
            Self::Key(LaneKey::Field { .. }) => "key",
            Self::Application => "application",
        }
    }
}

impl LaneRoles {
    /// Resolves the threading model for `lanes` lanes.
    pub(crate) fn new(model: &raw::Model, lanes: usize) -> Result<Self, Error> {
        let all: Vec<usize> = (0..lanes).collect();
        let raw::Model::MasterWorker(raw) = model else {
            return Ok(Self { ports: all.clone(), applications: all, ring: None });
        };
        let at = |key: &str| format!("lanes.model.master-worker.{key}");
        if lanes < 2 {
            let what = "master-worker needs at least two lanes; name at least two CPUs";
            return Err(refuse("lanes.cpus", what));
        }
        if raw.io.is_empty() || raw.io.iter().any(|lane| *lane >= lanes) {
            let what = format!("write numbers from 0 to {}, at least one", lanes - 1);
            return Err(refuse(at("io"), what));
        }
        if let Some(lane) = twice(&raw.io) {
            return Err(refuse(at("io"), format!("lane {lane} is named twice; name it once")));
        }
        let applications: Vec<usize> =
            all.into_iter().filter(|lane| !raw.io.contains(lane)).collect();
        if applications.is_empty() {
            let what = "no lane is left for the application; name fewer, or more CPUs";
            return Err(refuse(at("io"), what));
        }
        let ring = raw.ring;
        if !ring.is_power_of_two() || !(SMALLEST_RING..=32768).contains(&ring) {
            let what = format!("{ring} is not allowed; write a power of two from 64 to 32768");
            return Err(refuse(at("ring"), what));
        }
        Ok(Self { ports: raw.io.clone(), applications, ring: Some(ring) })
    }

    /// Returns true in master-worker, where some lanes have the ports and others the application.
    pub(crate) fn is_split(&self) -> bool {
        self.ring.is_some()
    }

    /// Resolves the lanes of a port. Default: all that may have ports.
    pub(crate) fn lanes_of(
        &self,
        path: &str,
        raw: Option<Vec<usize>>,
        lanes: usize,
    ) -> Result<Vec<usize>, Error> {
        let chosen = raw.unwrap_or_else(|| self.ports.clone());
        if chosen.is_empty() || chosen.iter().any(|lane| *lane >= lanes) {
            let what = format!("write numbers from 0 to {}, at least one", lanes - 1);
            return Err(refuse(path, what));
        }
        if let Some(lane) = twice(&chosen) {
            return Err(refuse(path, format!("lane {lane} is named twice; name it once")));
        }
        if let Some(lane) = chosen.iter().find(|lane| !self.ports.contains(lane)) {
            let ports: Vec<String> = self.ports.iter().map(ToString::to_string).collect();
            let what = format!(
                "lane {lane} is a worker and has no ports; write those of \
                 `lanes.model.master-worker.io`: {}",
                ports.join(", ")
            );
            return Err(refuse(path, what));
        }
        Ok(chosen)
    }

    /// Resolves `lane-by` of a port.
    pub(crate) fn lane_by(&self, path: &str, raw: Option<&raw::LaneBy>) -> Result<LaneBy, Error> {
        match raw {
            None if self.is_split() => Ok(LaneBy::Key(LaneKey::Flow)),
            None => Ok(LaneBy::Rss),
            Some(raw::LaneBy::Rss) if self.is_split() => {
                let what = "with master-worker the lane that receives a packet has no application; \
                            write `flow` or a `key`";
                Err(refuse(path, what))
            }
            Some(raw::LaneBy::Application) if self.is_split() => {
                let what = "with master-worker the lane that receives a packet has no application; \
                            write `flow` or a `key`";
                Err(refuse(path, what))
            }
            Some(raw::LaneBy::Rss) => Ok(LaneBy::Rss),
            Some(raw::LaneBy::Application) => Ok(LaneBy::Application),
            Some(raw::LaneBy::Flow) => Ok(LaneBy::Key(LaneKey::Flow)),
            Some(raw::LaneBy::Key(key)) => self::key(path, key).map(LaneBy::Key),
        }
    }

    /// Returns the number of other lanes to which a lane passes packets.
    pub(crate) fn peers(&self, lane: usize) -> usize {
        match (self.is_split(), self.ports.contains(&lane)) {
            (false, _) => self.applications.len() - 1,
            (true, true) => self.applications.len(),
            (true, false) => self.ports.len(),
        }
    }

    /// Returns the capacity of each ring between two lanes. All rings of a lane together must leave
    /// enough of its `frames` for its ports.
    ///
    /// # Errors
    /// Fails if the frames are too few, with the number needed.
    pub(crate) fn ring(
        &self,
        frames: usize,
        burst: usize,
        ports: &[(Vec<usize>, &Driver)],
    ) -> Result<usize, Error> {
        let kept = |lane: usize| {
            let of = |(lanes, driver): &(Vec<usize>, &Driver)| match driver {
                Driver::AfXdp(xdp) if lanes.contains(&lane) => xdp.receive_ring as usize,
                _ => 0,
            };
            ports.iter().map(of).sum::<usize>() + 8 * burst
        };
        let lanes = self.ports.iter().chain(&self.applications);
        let spare = |lane: &usize| frames.saturating_sub(kept(*lane)) / self.peers(*lane).max(1);
        let most = lanes.clone().map(spare).min().unwrap_or(0);
        let ring = self.ring.unwrap_or(match most {
            0 => 0,
            most => RING.min(1 << most.ilog2()),
        });
        if ring <= most && ring >= SMALLEST_RING {
            return Ok(ring);
        }
        let wanted = ring.max(SMALLEST_RING);
        let need = lanes.map(|lane| wanted * self.peers(*lane) + kept(*lane)).max().unwrap_or(0);
        let what = format!(
            "{frames} are too few: a lane lends up to {wanted} to each other lane and needs more \
             for its ports; write at least {need}"
        );
        Err(refuse("lanes.frames", what))
    }
}

/// Resolves a key.
fn key(path: &str, key: &raw::Key) -> Result<LaneKey, Error> {
    let at = |key: &str| format!("{path}.key.{key}");
    let field = match key.field {
        raw::KeyField::GtpTeid => KeyField::GtpTeid,
        raw::KeyField::SourceAddress => KeyField::SourceAddress,
        raw::KeyField::DestinationAddress => KeyField::DestinationAddress,
        raw::KeyField::Bytes(raw::KeyBytes { offset, length }) => {
            if !(1..=16).contains(&length) {
                let what = format!("{length} is not allowed; write 1 to 16");
                return Err(refuse(at("field.bytes.length"), what));
            }
            KeyField::Bytes { offset, length }
        }
    };
    let most = field.bits() - 8;
    if let Some(bit) = key.shard_at.filter(|bit| *bit > most) {
        let what = format!("{bit} is not allowed: the shard has eight bits; write 0 to {most}");
        return Err(refuse(at("shard-at"), what));
    }
    Ok(LaneKey::Field { field, shard_at: key.shard_at })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::plan::Plan;

    fn plan(lanes: Value, port: Value) -> Result<Plan, String> {
        let raw = json!({ "lanes": lanes, "ports": { "wire": port } });
        Plan::new(serde_json::from_value(raw).unwrap(), "test").map_err(|it| it.to_string())
    }

    fn split(io: &[usize], port: Value) -> Result<Plan, String> {
        let model = json!({ "master-worker": { "io": io } });
        plan(json!({ "cpus": [0, 1, 2, 3], "model": model }), port)
    }

    #[test]
    fn the_lanes_of_master_worker_have_one_thing_each() {
        let memory = json!({ "driver": { "memory": {} } });
        let plan = split(&[2, 0], memory).unwrap();
        assert_eq!((plan.lane_roles.ports, plan.lane_roles.applications), (vec![2, 0], vec![1, 3]));
        assert_eq!(plan.ports[0].lanes, [2, 0]);
        assert_eq!(plan.ports[0].lane_by, LaneBy::Key(LaneKey::Flow));
        assert_eq!(plan.ring, Some(1024));
    }

    #[test]
    fn where_packets_do_not_change_lanes_there_is_no_ring() {
        let lane_by = |lanes: Value, lane_by: Value| {
            let port = json!({ "driver": { "memory": {} }, "lane-by": lane_by });
            plan(lanes, port).unwrap().ring
        };
        assert_eq!(lane_by(json!({ "cpus": [0, 1] }), json!("rss")), None);
        assert_eq!(lane_by(json!({ "cpus": [0] }), json!("flow")), None);
        assert_eq!(lane_by(json!({ "cpus": [0, 1] }), json!("flow")), Some(1024));
        let few = json!({ "cpus": [0, 1], "frames": 512 });
        assert_eq!(lane_by(few, json!("application")), Some(256), "as many as there are frames");
    }

    #[test]
    fn a_shard_lies_inside_its_field() {
        let port = |field: Value, shard_at: u32| {
            let key = json!({ "field": field, "shard-at": shard_at });
            json!({ "driver": { "memory": {} }, "lane-by": { "key": key } })
        };
        let lanes = || json!({ "cpus": [0, 1] });
        assert!(plan(lanes(), port(json!("gtp-teid"), 24)).is_ok());
        let refused = plan(lanes(), port(json!("gtp-teid"), 25)).unwrap_err();
        assert!(refused.starts_with("ports.wire.lane-by.key.shard-at: 25 is not"), "{refused}");
        let bytes = json!({ "bytes": { "offset": 3, "length": 17 } });
        let refused = plan(lanes(), port(bytes, 0)).unwrap_err();
        assert!(refused.starts_with("ports.wire.lane-by.key.field.bytes.length: 17"), "{refused}");
    }
}
