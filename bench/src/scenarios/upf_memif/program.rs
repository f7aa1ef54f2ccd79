//! The cost of the user plane over memif. The program `upf` runs as it is shipped, with sessions
//! published as its control plane does, and the common memif client is its peer.

use std::time::Duration;

use fastlane::slow::attach_wait;
use fastlane_table::State;
use serde_json::{Value, json};
use upf::config::Settings;
use upf::datapath::DROP_REASON_WORDS;
use upf::rules::Tables;
use upf::rules::layout::table;

use crate::Result;
use crate::device::application::{Application, ApplicationKind};
use crate::device::memif_server::{Client, Device, Frames, Socket};
use crate::device::veth_pair::in_namespace;
use crate::loops::user_plane::frames::Template;
use crate::loops::user_plane::sessions::{Users, settings};
use crate::loops::user_plane::{Direction, STATION, Shape, counts, ip};
use crate::slices::{Contender, Effort, Pairs, Slice, pair};

/// Number of frames in the list, which is sent cyclically.
const LIST: usize = 1 << 18;
/// Offset of the frame number in the inner packet: behind the UDP header, so that its offset in the
/// frame is a multiple of 4 with and without the tunnel headers.
const NUMBER: usize = 30;
/// Number of returned frames whose content is checked.
const LOOKED_AT: usize = 1000;
/// Timeout of the program's responses.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for routes to settle: Linux reports carriers once per second.
const SETTLE: Duration = Duration::from_millis(1500);
/// Number of pairs of slices after which the programs are restarted.
const RESTART: usize = 8;
/// Ethernet address of a next hop.
const HOP: &str = "02:00:00:00:aa:03";

/// Memif ports of a user plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// One port for N3 and N6.
    One,
    /// One port each for N3 and N6, as in the example configuration.
    Two,
}

impl Ports {
    /// Returns the name used in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one port",
            Self::Two => "two ports",
        }
    }

    /// Returns the names of the ports of N3 and of N6.
    const fn names(self) -> [&'static str; 2] {
        match self {
            Self::One => ["wire"; 2],
            Self::Two => ["n3", "n6"],
        }
    }
}

/// Configuration of a user plane.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Memif ports.
    pub ports: Ports,
    /// Steering of the ports, as in the example configuration: the lane evaluates the rules before
    /// the user plane receives a packet. Without steering the user plane receives all packets and
    /// labels those that it does not claim.
    pub steers: bool,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steering = if self.steers { ", steering" } else { "" };
        write!(formatter, "{}{steering}", self.ports.name())
    }
}

/// Compares the CPU time per packet of the user plane in one direction, with `sessions` sessions,
/// with that of macswap over one port on the same frames.
///
/// # Errors
/// Returns an error if a program does not start, ends, or loses a frame, or if a returned packet is
/// wrong.
pub fn compare(
    sessions: u32,
    direction: Direction,
    setting: Setting,
    effort: Effort,
    progress: impl Fn(usize) + Sync,
) -> Result<Pairs> {
    let users = Users::new(Shape::Simple, sessions);
    let mut pairs = Pairs::default();
    while pairs.ours.len() < effort.pairs {
        let done = pairs.ours.len();
        let some = RESTART.min(effort.pairs - done);
        let more = in_namespace(|| {
            // The first one to start may get the better memory, so the order alternates.
            let swapped = done / RESTART % 2 == 1;
            let early = swapped.then(|| macswap(users, direction)).transpose()?;
            let mut ours = user_plane(users, direction, setting)?;
            let mut rival = early.map_or_else(|| macswap(users, direction), Ok)?;
            ours.run(effort.slice / 10)?;
            rival.run(effort.slice / 10)?;
            let mut pairs = Pairs::default();
            for number in 0..some {
                progress(done + number);
                pair(&mut pairs, effort.slice, &mut ours, &mut rival)?;
            }
            Ok(pairs)
        })?;
        pairs.ours.extend(more.ours);
        pairs.rival.extend(more.rival);
    }
    Ok(pairs)
}

/// Returns the frames of a direction. Returned frames have the tunnel headers added or removed,
/// unless the program only echoes.
fn frames(users: Users, direction: Direction, is_echo: bool) -> (Template, Frames) {
    let template = Template::of(users, direction, LIST, |_| true);
    let other = match direction {
        Direction::Uplink => Direction::Downlink,
        Direction::Downlink => Direction::Uplink,
    };
    let frames = match is_echo {
        true => Frames::of(&template, &template),
        false => Frames::of(&template, &Template::of(users, other, 1, |_| true)),
    };
    (template, frames)
}

impl Frames {
    /// Creates the frames of `template`, which come back as those of `returned`.
    fn of(template: &Template, returned: &Template) -> Self {
        let ((length, start), (back, inner)) = (template.shape(), returned.shape());
        let mut sent = vec![0; length];
        let differing = template.differing();
        let (place, end) = (differing.start & !3, differing.end.next_multiple_of(4));
        let mut list = Vec::with_capacity(template.count() * (end - place) / 4);
        for number in 0..template.count() {
            template.fill(&mut sent, number);
            let words = sent[place..end].as_chunks().0.iter();
            list.extend(words.map(|word| u32::from_ne_bytes(*word)));
        }
        let (number, words) = ([start + NUMBER, inner + NUMBER], (end - place) / 4);
        Self { sent, back, number, place, words, list }
    }
}

/// Starts the program `macswap`.
fn macswap(users: Users, direction: Direction) -> Result<Device> {
    let socket = Socket::new();
    let driver = json!({ "memif": { "socket": socket.0, "role": "server" } });
    let application = Application::start(&ApplicationKind::Macswap, &driver, &Value::Null)?;
    let (_, frames) = frames(users, direction, true);
    Device::attach(application.into(), vec![socket], frames)
}

/// Program `upf` and its packet counts by outcome.
struct UserPlane {
    device: Device,
    causes: State<DROP_REASON_WORDS>,
}

impl UserPlane {
    /// Runs `work` while the program runs. An error includes the packet counts by outcome.
    fn during<T>(&mut self, work: impl FnOnce(&mut Device) -> Result<T>) -> Result<T> {
        work(&mut self.device).map_err(|error| {
            let counts = counts(&self.causes);
            let counts: Vec<String> =
                counts.map(|(cause, packets)| format!("{packets} {}", cause.name())).collect();
            format!("{error}; the user plane has counted {}", counts.join(", ")).into()
        })
    }
}

impl Contender for UserPlane {
    fn run(&mut self, length: Duration) -> Result<Slice> {
        self.during(|device| device.run(length))
    }
}

/// Starts the program `upf` with these sessions, in the network namespace of the calling thread.
fn user_plane(users: Users, direction: Direction, setting: Setting) -> Result<UserPlane> {
    let Setting { ports, steers } = setting;
    let names = ports.names();
    let app = settings(users, names);
    let mut sockets = vec![Socket::new()];
    if ports == Ports::Two {
        sockets.push(Socket::new());
    }
    // Linux must not send packets of its own, so that only sent frames come back.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    let configured = configured(names, &sockets, steers);
    let application =
        Application::configured(&ApplicationKind::Upf, &configured, &Value::Null, &app)?;
    ways(names)?;
    let settings: Settings = serde_json::from_value(app)?;
    let slow = attach_wait(&application.session().to_string_lossy(), PATIENCE)?;
    users.publish(Tables::attach(&slow)?, &settings)?;
    let causes = slow.state(table::CAUSES)?;
    let (template, frames) = frames(users, direction, false);
    if direction == Direction::Downlink {
        sockets.reverse();
    }
    let device = Device::attach(application.into(), sockets, frames)?;
    let mut user_plane = UserPlane { device, causes };
    let looks = |client: &mut Client| {
        (0..LOOKED_AT).try_for_each(|_| {
            let (number, bytes) = client.look(PATIENCE).ok_or("a frame does not come back")?;
            template.check(direction, number as usize, &bytes)
        })
    };
    // The carrier of the TAP devices is new: routes change until Linux and its mirror have settled.
    user_plane.device.during(|_| {
        std::thread::sleep(SETTLE);
        Ok(())
    })?;
    user_plane.during(|device| device.during(looks))?;
    Ok(user_plane)
}

/// Returns the ports of a configuration, as in `apps/upf/config/memif.json`.
fn configured([access, core]: [&str; 2], sockets: &[Socket], steers: bool) -> Value {
    let mut ports = json!({});
    for (place, (name, socket)) in [access, core].into_iter().zip(sockets).enumerate() {
        let [n3, n6] = [json!({ "udp-port": 2152 }), json!({ "destination": "11.0.0.0/8" })];
        let steer = match (access == core, place) {
            (true, _) => json!([n3, n6]),
            (false, 0) => json!([n3]),
            (false, _) => json!([n6]),
        };
        let mac = STATION.map(|byte| format!("{byte:02x}")).join(":");
        let addresses = if place == 0 { "10.255.0.1/24" } else { "10.254.0.1/24" };
        ports[name] = json!({
            "driver": { "memif": { "socket": socket.0, "role": "server" } },
            "kernel": { "tap": { "name": name, "mac": mac, "addresses": [addresses] } },
        });
        if steers {
            ports[name]["steer"] = steer;
        }
    }
    ports
}

/// Configures the Linux routes to the gNB and to the data network.
fn ways([access, core]: [&str; 2]) -> Result<()> {
    let hop = if access == core { "10.255.0.2" } else { "10.254.0.2" };
    ip(&format!(
        "neigh replace 10.255.0.3 lladdr {HOP} dev {access} nud permanent\n\
         neigh replace {hop} lladdr {HOP} dev {core} nud permanent\n\
         route replace default via {hop} dev {core}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_a_frame_of_the_list() {
        for (direction, back) in [(Direction::Uplink, 78), (Direction::Downlink, 122)] {
            let (template, frames) = frames(Users::new(Shape::Simple, 100), direction, false);
            assert_eq!(frames.back, back);
            for number in [0, 1, 77, LIST - 1] {
                let mut sent = frames.sent.clone();
                let words = &frames.list[number * frames.words..][..frames.words];
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                sent[frames.place..][..bytes.len()].copy_from_slice(&bytes);
                let mut expected = vec![0; sent.len()];
                template.fill(&mut expected, number);
                assert_eq!(sent, expected, "{direction:?}, frame {number}");
                assert!(template.check(direction, number, &sent).is_err(), "it was not forwarded");
            }
        }
    }
}
