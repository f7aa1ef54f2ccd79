//! Benchmarks without a description: macswap on a mechanism, with the generator `traffic`.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::description::{Description, Device, Generator, Rival};
use super::rig::beside;
use crate::Result;

/// Mechanism that can be measured without a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mechanism {
    /// Shared memory between the two processes; needs no privilege
    Memif,
    /// AF_XDP sockets on a veth pair in a new network namespace (as root)
    AfXdp,
    /// AF_PACKET rings on a veth pair in a new network namespace (as root)
    AfPacket,
}

impl Mechanism {
    /// Returns true if the mechanism needs the veth pairs.
    pub(super) fn needs_veth(self) -> bool {
        self != Self::Memif
    }

    fn name(self) -> &'static str {
        match self {
            Self::Memif => "memif",
            Self::AfXdp => "af-xdp",
            Self::AfPacket => "af-packet",
        }
    }

    /// Returns the driver configuration of pair `number`, for the device's or the generator's end.
    fn driver(self, number: usize, of_device: bool, folder: &Path) -> Value {
        let end = if of_device { "device" } else { "generator" };
        let interface = format!("{end}{number}");
        match self {
            Self::Memif => {
                let socket = folder.join(format!("memif{number}.sock"));
                let role = if of_device { "server" } else { "client" };
                json!({ "memif": { "socket": socket, "role": role } })
            }
            Self::AfXdp => json!({ "af-xdp": { "interface": interface } }),
            Self::AfPacket => json!({ "af-packet": { "interface": interface } }),
        }
    }
}

/// Creates the description of macswap on `mechanism`, compared with macswap on `against`.
pub(super) fn description(
    mechanism: Mechanism,
    against: Option<Mechanism>,
    folder: &Path,
) -> Result<Description> {
    let (device, generator) = pair(mechanism, 0, folder)?;
    let mut title = format!("macswap on {}", mechanism.name());
    let mut all = json!({ "device": device, "generator": generator });
    if let Some(against) = against {
        let (device, generator) = pair(against, 1, folder)?;
        all["rival"] = serde_json::to_value(Rival { device, generator })?;
        title = format!("{title}, against {}", against.name());
    }
    all["title"] = title.into();
    Ok(serde_json::from_value(all)?)
}

/// Creates a device and its generator. Writes the device's configuration to `folder`.
fn pair(mechanism: Mechanism, number: usize, folder: &Path) -> Result<(Device, Generator)> {
    let port = |of_device| {
        let mut port = json!({ "driver": mechanism.driver(number, of_device, folder) });
        if mechanism.needs_veth() {
            port["steer"] = json!([{ "udp-port": 2152 }]);
        }
        json!({ "wire": port })
    };
    let [ours, theirs] = cpus();
    let device = json!({
        "session": folder.join(format!("macswap{number}.sock")),
        "lanes": { "cpus": ours },
        "ports": port(true),
    });
    let file = folder.join(format!("macswap{number}.json"));
    std::fs::write(&file, serde_json::to_string_pretty(&device)?)?;
    let generator = json!({
        "lanes": { "idle": "busy", "cpus": theirs },
        "ports": port(false),
        "app": { "port": "wire", "burst-packets": 256, "flows": { "count": 16 } },
    });
    let words = [beside("macswap"), file].map(|path| path.display().to_string());
    let device = serde_json::from_value(json!({ "command": words }))?;
    let configuration: Map<String, Value> = serde_json::from_value(generator)?;
    Ok((device, Generator { program: None, configuration }))
}

/// Returns a CPU for the device and another for the generator, or no choice if only one is allowed.
fn cpus() -> [Option<[usize; 1]>; 2] {
    let allowed = rustix::thread::sched_getaffinity(None);
    let allowed = allowed.map(|set| {
        let all = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
        all.take(2).collect::<Vec<_>>()
    });
    match allowed.as_deref() {
        Ok([first, second]) => [Some([*first]), Some([*second])],
        _ => [None, None],
    }
}
