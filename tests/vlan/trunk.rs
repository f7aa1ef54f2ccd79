//! A link that carries VLANs: Fastlane at one end, by any mechanism, and Linux at the other.

use std::process::Output;

use fastlane_tests::{Application, Host, Lab, Vlan, binary};
use serde_json::{Value, json};

/// VLAN of the port `a`, and of the port `b`.
pub(crate) const VLANS: [u16; 2] = [100, 200];
/// Addresses of Linux at the far end: on VLAN 100, on VLAN 200.
pub(crate) const NEAR: &str = "10.100.0.2";
pub(crate) const FAR: &str = "10.100.0.3";

/// Mechanism of the port that carries the VLANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    XdpNative,
    XdpGeneric,
    Packet,
    Memif,
    Dpdk,
}

impl Mechanism {
    pub(crate) const ALL: [Self; 5] =
        [Self::XdpNative, Self::XdpGeneric, Self::Packet, Self::Memif, Self::Dpdk];
    /// Those that share the interface with Linux.
    pub(crate) const SHARED: [Self; 3] = [Self::XdpNative, Self::XdpGeneric, Self::Packet];

    pub(crate) fn is_shared(self) -> bool {
        Self::SHARED.contains(&self)
    }
}

/// A link called `trunk` on both hosts. The right one has VLAN 100 as `v100`, another one VLAN 200
/// as `v200`.
pub(crate) struct Trunk {
    vlans: Vec<Vlan>,
    pub(crate) lab: Lab,
    pub(crate) far: Host,
    mechanism: Mechanism,
    /// Program that joins the link with a memif.
    relay: Option<Application>,
}

impl Trunk {
    /// Creates the hosts. Returns `None` after a skip if that is not allowed.
    pub(crate) fn new(story: &str, mechanism: Mechanism) -> Option<Self> {
        let lab = Lab::new(&format!("vlan-{story}-{mechanism:?}"), 1)?;
        let far = lab.another()?;
        let mut trunk = Self { vlans: Vec::new(), lab, far, mechanism, relay: None };
        trunk.lab.wire("trunk");
        trunk.join();
        Some(trunk)
    }

    /// Creates the VLANs at the far end of the link.
    pub(crate) fn join(&mut self) {
        self.vlans.clear();
        let (right, far) = (&self.lab.right, &self.far);
        // AF_XDP sees tags in the frames only. A frame that is several ones is Linux's.
        right.run(&["ethtool", "-K", "trunk", "tso", "off", "gso", "off", "gro", "off"]);
        if matches!(self.mechanism, Mechanism::XdpNative | Mechanism::XdpGeneric) {
            right.run(&["ethtool", "-K", "trunk", "txvlan", "off"]);
        }
        self.vlans.push(Vlan::add(right, "trunk", VLANS[0], "v100", right));
        self.vlans.push(Vlan::add(right, "trunk", VLANS[1], "v200", far));
        for (host, name, address) in [(right, "v100", NEAR), (far, "v200", FAR)] {
            host.run(&["ip", "address", "add", &format!("{address}/24"), "dev", name]);
            host.run(&["ip", "link", "set", name, "up"]);
            host.run(&["ethtool", "-K", name, "tso", "off", "gso", "off", "gro", "off"]);
        }
    }

    /// Returns true if the kernel has VLAN interfaces.
    pub(crate) fn has_vlans_of_linux(&self) -> bool {
        self.vlans.iter().all(Vlan::is_of_linux)
    }

    /// Returns the configuration of the port that carries the VLANs, called `wire`, and of the
    /// ports `a` and `b` on it.
    pub(crate) fn ports(&self) -> Value {
        let socket = self.lab.file("trunk.memif");
        let driver = match self.mechanism {
            Mechanism::XdpNative => {
                json!({"af-xdp": {"interface": "trunk", "mode": "native-copy"}})
            }
            Mechanism::XdpGeneric => {
                json!({"af-xdp": {"interface": "trunk", "mode": "generic-copy"}})
            }
            Mechanism::Packet => json!({"af-packet": {"interface": "trunk"}}),
            Mechanism::Memif => json!({"memif": {"socket": socket, "role": "server"}}),
            Mechanism::Dpdk => json!({"dpdk": {"vdev": "net_af_packet0,iface=trunk"}}),
        };
        let mut wire = json!({"driver": driver});
        if !self.mechanism.is_shared() {
            wire["kernel"] = json!({"tap": {"name": "twin"}});
        }
        let vlan = |id: u16| json!({"driver": {"vlan": {"port": "wire", "id": id}}});
        json!({"wire": wire, "a": vlan(VLANS[0]), "b": vlan(VLANS[1])})
    }

    /// Returns the interface that Linux has of the port `wire`.
    pub(crate) fn linux_interface(&self) -> &'static str {
        if self.mechanism.is_shared() { "trunk" } else { "twin" }
    }

    /// Starts an application with these ports on the left host, and what joins it with the link.
    pub(crate) fn start(&mut self, program: &str, ports: &Value) -> Application {
        self.start_with(program, ports, &json!({}))
    }

    /// Starts an application with these ports and other keys of the configuration.
    pub(crate) fn start_with(&mut self, program: &str, ports: &Value, more: &Value) -> Application {
        let mut configuration = json!({"ports": ports, "dpdk": {"huge-pages": "none"}});
        for (key, value) in more.as_object().into_iter().flatten() {
            configuration[key] = value.clone();
        }
        let program = binary(program);
        let application = Application::start(&self.lab, &self.lab.left, &program, configuration);
        if self.mechanism == Mechanism::Memif && self.relay.is_none() {
            let memif = json!({"socket": self.lab.file("trunk.memif"), "role": "client"});
            let ports = json!({
                "a": {"driver": {"memif": memif}, "kernel": "none"},
                "b": {"driver": {"af-packet": {"interface": "trunk"}}, "kernel": "none"},
            });
            let relay = json!({"ports": ports});
            let relay = Application::start(&self.lab, &self.lab.left, &binary("cross"), relay);
            application.process.wait_for("port `wire`: link up");
            self.relay = Some(relay);
        }
        application
    }

    /// Stops the application, and what joins it with the link after it.
    pub(crate) fn stop(&mut self, application: Application) {
        application.stop();
        if let Some(relay) = self.relay.take() {
            relay.stop();
        }
    }

    /// Sends pings of two lengths from the host on VLAN 100 to an address. None may be lost.
    #[track_caller]
    pub(crate) fn ping(&self, address: &str) {
        for length in ["56", "1472"] {
            self.lab.right.assert_pings(5, &["-M", "do", "-s", length, address]);
        }
    }
}

/// Sends one ping. Returns the output of a program that may fail.
pub(crate) fn try_ping(host: &Host, address: &str) -> Output {
    host.attempt(&["ping", "-q", "-c", "1", "-W", "1", address])
}
