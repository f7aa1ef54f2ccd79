//! Capabilities of each interface and the recommended driver settings.

use std::collections::BTreeMap;
use std::fmt;

use fastlane::kernel::Interface;
use serde::Serialize;
use serde_json::{Value, json};

use super::fact;
use super::machine::Machine;
use super::netdev::Netdev;

/// Bytes of a frame besides the IP packet: metadata and headroom by default, and an Ethernet header
/// with two VLAN tags.
const OVERHEAD: u32 = 256 + 14 + 8;
/// Largest MTU for frames of the default size, of a page, and of the largest size.
const DEFAULT_MTU: u32 = 2048 - OVERHEAD;
const PAGE_MTU: u32 = 4096 - OVERHEAD;
const LONGEST_MTU: u32 = 65536 - OVERHEAD;

/// Report of an interface.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Port {
    interface: String,
    driver: String,
    ethernet: bool,
    up: bool,
    mtu: u32,
    receive_queues: u32,
    transmit_queues: u32,
    xdp: Xdp,
    offloads: BTreeMap<&'static str, bool>,
    recommended: Advice,
}

/// XDP support of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Xdp {
    native: bool,
    zero_copy: bool,
    source: Source,
}

/// Source of the information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Source {
    /// Reported by the kernel.
    Kernel,
    /// Derived from the driver's name, because this kernel does not report it.
    Guess,
}

/// Recommended settings.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Advice {
    /// Value of `driver` in the configuration; null if no driver suits.
    driver: Option<Value>,
    /// Value of `lanes.frame-size` if the default does not suit.
    frame_size: Option<u32>,
    reason: String,
    /// Steps to do first.
    remedies: Vec<String>,
}

/// Examines each interface. Also returns the reason if the kernel could not be queried.
pub(super) fn ports(interfaces: &[Interface], machine: &Machine) -> (Vec<Port>, Option<String>) {
    let (netdev, note) = match Netdev::open() {
        Ok(netdev) => (netdev, None),
        Err(error) => (None, Some(format!("netlink cannot be asked about XDP: {error}"))),
    };
    let ports = interfaces.iter().map(|interface| {
        let told = netdev.as_ref().and_then(|netdev| netdev.features(interface.index).ok());
        let xdp = match told {
            Some(features) => Xdp {
                native: features.native(),
                zero_copy: features.zero_copy(),
                source: Source::Kernel,
            },
            None => guess(&interface.driver),
        };
        Port::new(interface, xdp, machine)
    });
    (ports.collect(), note)
}

/// Drivers with native XDP in Linux 6.1, by their names in ethtool(8).
const NATIVE: [&str; 19] = [
    "bnxt_en",
    "ena",
    "fsl_dpaa2_eth",
    "fsl_enetc",
    "hv_netvsc",
    "igb",
    "ixgbevf",
    "mlx4_en",
    "mvneta",
    "mvpp2",
    "nfp",
    "qede",
    "sfc",
    "tun",
    "veth",
    "virtio_net",
    "vif",
    "nicvf",
    "netsec",
];
/// Drivers with zero-copy AF_XDP in Linux 6.1.
const ZERO_COPY: [&str; 6] = ["i40e", "ice", "igc", "ixgbe", "mlx5_core", "st_gmac"];

/// Derives the XDP support from the driver's name, for kernels that do not report it.
fn guess(driver: &str) -> Xdp {
    let zero_copy = ZERO_COPY.contains(&driver);
    Xdp { native: zero_copy || NATIVE.contains(&driver), zero_copy, source: Source::Guess }
}

impl Port {
    fn new(interface: &Interface, xdp: Xdp, machine: &Machine) -> Self {
        Self {
            interface: interface.name.clone(),
            driver: interface.driver.clone(),
            ethernet: interface.ethernet,
            up: interface.up,
            mtu: interface.mtu,
            receive_queues: interface.receive_queues,
            transmit_queues: interface.transmit_queues,
            xdp,
            offloads: interface.offloads.iter().map(|offload| (offload.name, offload.on)).collect(),
            recommended: advise(interface, xdp, machine),
        }
    }
}

fn advise(interface: &Interface, xdp: Xdp, machine: &Machine) -> Advice {
    let none = |reason: &str| Advice {
        driver: None,
        frame_size: None,
        reason: reason.to_owned(),
        remedies: vec![],
    };
    // Only the loopback has Ethernet frames and a zero address.
    if interface.ethernet && interface.mac == [0; 6] && interface.is_virtual {
        return none("the loopback is no way out of this machine; try things on a veth pair");
    }
    if !interface.ethernet {
        return none("its frames are not Ethernet");
    }
    let mtu = interface.mtu;
    if mtu > LONGEST_MTU {
        return none(&format!("an MTU of {mtu} fits no frame; set it to at most {LONGEST_MTU}"));
    }
    let name = &interface.name;
    let mut remedies = vec![];
    let has_xdp = mtu <= PAGE_MTU || machine.kernel.has_long_frames;
    let (driver, reason) = if !has_xdp {
        remedies.push(format!("for af-xdp: Linux 6.6, or ip link set dev {name} mtu {PAGE_MTU}"));
        let reason =
            format!("an MTU of {mtu} is too long for af-xdp before Linux 6.6 ({PAGE_MTU} at most)");
        (json!({ "af-packet": { "interface": name } }), reason)
    } else {
        let driver = json!({ "af-xdp": { "interface": name, "mode": "auto" } });
        (driver, expectation(xdp).to_owned())
    };
    remedies.extend(obstacles(&driver, machine));
    if !interface.up {
        remedies.push(format!("ip link set dev {name} up"));
    }
    if has_xdp && interface.loses_frames_with_xdp() {
        remedies.push(format!(
            "for af-xdp: ethtool -K {name} gro on (or veth loses the frames in its ring, \
             uncounted, when an XDP program is detached)"
        ));
    }
    let frame_size = (mtu > DEFAULT_MTU).then(|| (mtu + OVERHEAD).next_power_of_two());
    Advice { driver: Some(driver), frame_size, reason, remedies }
}

/// Returns the mode that `auto` will probably select.
fn expectation(xdp: Xdp) -> &'static str {
    match (xdp.zero_copy, xdp.native, xdp.source) {
        (true, _, Source::Kernel) => "its driver has zero-copy",
        (false, true, Source::Kernel) => {
            "its driver has native XDP; frames are copied once each way"
        }
        (false, false, Source::Kernel) => {
            "its driver has no native XDP; generic XDP copies, and still beats af-packet"
        }
        (true, _, Source::Guess) => "its driver probably has zero-copy; `auto` finds out",
        (false, true, Source::Guess) => "its driver probably has native XDP; `auto` finds out",
        (false, false, Source::Guess) => "its driver may have no native XDP; `auto` finds out",
    }
}

/// Returns the obstacles of this process for a driver.
fn obstacles(driver: &Value, machine: &Machine) -> Vec<String> {
    let xdp = driver.get("af-xdp").is_some();
    // AF_PACKET ports load steering programs as well.
    let needed = ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON"];
    let mut remedies = vec![];
    let lacking = machine.lacks(&needed);
    if !lacking.is_empty() {
        let names = lacking.join(" ");
        remedies.push(format!("run as root, or by systemd with: AmbientCapabilities={names}"));
    }
    if xdp && !machine.can_lock_a_pool() {
        remedies.push("ulimit -l unlimited (or the capability CAP_IPC_LOCK)".to_owned());
    }
    if xdp && !machine.initial_user_namespace {
        remedies
            .push("leave the user namespace: programs are loaded by the machine's own".to_owned());
    }
    remedies
}

impl fmt::Display for Port {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.interface)?;
        let driver = if self.driver.is_empty() { "not told" } else { &self.driver };
        fact(formatter, "driver", driver)?;
        let link = if self.up { "up" } else { "down" };
        fact(formatter, "link", &format!("{link}, MTU {}", self.mtu))?;
        let (receive, transmit) = (self.receive_queues, self.transmit_queues);
        fact(formatter, "queues", &format!("{receive} receive, {transmit} transmit"))?;
        let yes = |yes| if yes { "yes" } else { "no" };
        let source = match self.xdp.source {
            Source::Kernel => "says the kernel",
            Source::Guess => "a guess from the driver's name: Linux before 6.3 does not tell",
        };
        let (native, zero_copy) = (yes(self.xdp.native), yes(self.xdp.zero_copy));
        fact(formatter, "XDP", &format!("native {native}, zero-copy {zero_copy} ({source})"))?;
        let on: Vec<&str> =
            self.offloads.iter().filter(|(_, on)| **on).map(|(name, _)| *name).collect();
        let on = if on.is_empty() { "none on".to_owned() } else { on.join(", ") };
        fact(formatter, "offloads", &on)?;
        let advice = &self.recommended;
        match &advice.driver {
            Some(driver) => {
                fact(formatter, "write", &format!("\"driver\": {driver}"))?;
                if let Some(size) = advice.frame_size {
                    fact(formatter, "", &format!("\"lanes\": {{\"frame-size\": {size}}}"))?;
                }
            }
            None => fact(formatter, "write", "nothing")?,
        }
        fact(formatter, "because", &advice.reason)?;
        advice.remedies.iter().try_for_each(|remedy| fact(formatter, "first", remedy))
    }
}

#[cfg(test)]
mod tests {
    use fastlane::kernel::Offload;

    use super::*;

    fn interface() -> Interface {
        Interface {
            name: "eth0".to_owned(),
            index: 2,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            up: true,
            carrier: true,
            ethernet: true,
            driver: "ice".to_owned(),
            receive_queues: 4,
            transmit_queues: 4,
            is_virtual: false,
            offloads: vec![],
        }
    }

    fn xdp(native: bool, zero_copy: bool) -> Xdp {
        Xdp { native, zero_copy, source: Source::Kernel }
    }

    #[test]
    fn a_good_interface_gets_af_xdp_and_nothing_to_do_first() {
        let advice = advise(&interface(), xdp(true, true), &Machine::capable());
        let driver = json!({ "af-xdp": { "interface": "eth0", "mode": "auto" } });
        assert_eq!(advice.driver, Some(driver));
        assert_eq!((advice.frame_size, &*advice.reason), (None, "its driver has zero-copy"));
        assert_eq!(advice.remedies, [""; 0]);
    }

    #[test]
    fn the_mtu_and_the_kernel_decide_about_frames_and_driver() {
        for (mtu, has_long_frames, driver, frame_size) in [
            (1280, false, Some("af-xdp"), None),
            (1770, false, Some("af-xdp"), None),
            (1771, false, Some("af-xdp"), Some(4096)),
            (PAGE_MTU, false, Some("af-xdp"), Some(4096)),
            (PAGE_MTU + 1, false, Some("af-packet"), Some(8192)),
            (PAGE_MTU + 1, true, Some("af-xdp"), Some(8192)),
            (9000, false, Some("af-packet"), Some(16384)),
            (9000, true, Some("af-xdp"), Some(16384)),
            (LONGEST_MTU, true, Some("af-xdp"), Some(65536)),
            (LONGEST_MTU + 1, true, None, None),
        ] {
            let mut machine = Machine::capable();
            machine.kernel.has_long_frames = has_long_frames;
            let advice = advise(&Interface { mtu, ..interface() }, xdp(true, false), &machine);
            let written = advice.driver.as_ref().and_then(Value::as_object);
            assert_eq!(
                written.and_then(|map| map.keys().next()).map(|key| &**key),
                driver,
                "{mtu}"
            );
            assert_eq!(advice.frame_size, frame_size, "{mtu}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        let mut machine = Machine::capable();
        machine.capabilities.iter_mut().for_each(|capability| capability.effective = false);
        machine.locked_memory = Some(8192);
        let advice = advise(&Interface { up: false, ..interface() }, xdp(false, false), &machine);
        assert_eq!(
            advice.remedies,
            [
                "run as root, or by systemd with: AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW \
                 CAP_BPF CAP_PERFMON",
                "ulimit -l unlimited (or the capability CAP_IPC_LOCK)",
                "ip link set dev eth0 up",
            ]
        );
    }

    #[test]
    fn a_veth_without_gro_gets_a_warning() {
        let remedies = |driver: &str, gro: bool| {
            let offloads = Offload::named("generic-receive-offload", gro).into_iter().collect();
            let interface = Interface { driver: driver.to_owned(), offloads, ..interface() };
            advise(&interface, xdp(true, false), &Machine::capable()).remedies.join("\n")
        };
        assert!(remedies("veth", false).contains("ethtool -K eth0 gro on"));
        assert_eq!([remedies("veth", true), remedies("ice", false)], [const { String::new() }; 2]);
    }

    #[test]
    fn what_is_no_wire_gets_nothing() {
        let tunnel = Interface { ethernet: false, ..interface() };
        assert_eq!(advise(&tunnel, xdp(false, false), &Machine::capable()).driver, None);
        let loopback = Interface { mac: [0; 6], is_virtual: true, mtu: 65536, ..interface() };
        let advice = advise(&loopback, xdp(false, false), &Machine::capable());
        assert!(advice.driver.is_none() && advice.reason.contains("loopback"), "{advice:?}");
    }

    #[test]
    fn a_guess_is_called_one() {
        let port = Port::new(&interface(), guess("ice"), &Machine::capable());
        let text = port.to_string();
        assert!(text.contains("zero-copy yes (a guess"), "{text}");
        assert!(text.contains("probably"), "{text}");
        assert_eq!(guess("e1000"), Xdp { native: false, zero_copy: false, source: Source::Guess });
        assert!(guess("veth").native && !guess("veth").zero_copy);
    }
}
