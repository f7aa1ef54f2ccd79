//! The namespaces of SMF, gNB, data network and UPF, with the addresses of the recorded messages,
//! and the UPF with its shipped configuration.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Mutex;

use fastlane_tests::{Application, Host, Lab, Vlan, binary, eventually};
use serde_json::{Value, json};

use crate::side_by_side::Placement;

/// The SMF on N4.
pub(crate) const SMF: Ipv4Addr = Ipv4Addr::new(10, 4, 0, 2);
/// The UPF on N4.
pub(crate) const UPF: Ipv4Addr = Ipv4Addr::new(10, 4, 0, 1);
/// The UPF on N3.
pub(crate) const N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
/// The gNB, or another UPF on N9.
pub(crate) const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);
/// A host in the data network.
pub(crate) const DATA_NETWORK: Ipv4Addr = Ipv4Addr::new(10, 6, 0, 2);
/// The same host.
pub(crate) const DATA_NETWORK_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 2);
/// The UPF in the data network.
const N6_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 1);

/// Links of the UPF: name, the UPF's address and the other end's. Those of N3 and N6 are named in
/// the shipped configurations.
const LINKS: [(&str, Ipv4Addr, Ipv4Addr); 3] =
    [("n4", UPF, SMF), ("eth1", N3, GNB), ("eth2", Ipv4Addr::new(10, 6, 0, 1), DATA_NETWORK)];

/// Link that carries N3 and N6 as VLANs, and their identifiers.
const TRUNK: &str = "trunk";
const TAGS: [(&str, u16); 2] = [("eth1", 100), ("eth2", 200)];

/// Links of N3 and N6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// A link each.
    Separate,
    /// One link with a VLAN each.
    Vlans,
}

/// Hosts around a UPF.
pub(crate) struct Site {
    /// The UPF is its left host, SMF and gNB are on the right one.
    lab: Lab,
    data: Host,
    vlans: Vec<Vlan>,
    /// Neighbors of the UPF: link and address.
    neighbors: Mutex<Vec<(String, String)>>,
}

impl Site {
    /// Creates the hosts and their links. Returns `None` after a skip if that is not allowed.
    pub(crate) fn new(links: Links) -> Option<Self> {
        let lab = Lab::new("interop", 1)?;
        let data = lab.another()?;
        let mut site = Self { vlans: Vec::new(), lab, data, neighbors: Mutex::default() };
        if links == Links::Vlans {
            site.add_vlans();
        }
        for (name, own, other) in LINKS {
            if links == Links::Separate || name == "n4" {
                site.lab.left.connect(site.far(name), name);
                site.lab.left.add_address(name, &format!("{own}/24"));
            }
            site.far(name).add_address(name, &format!("{other}/24"));
        }
        LINKS.iter().for_each(|(name, _, other)| site.add_neighbor(name, &other.to_string()));
        site.add_v6_address(&site.data, DATA_NETWORK_V6);
        site.add_neighbor("eth2", &DATA_NETWORK_V6.to_string());
        let routes = [("10.45.0.0/16", "10.6.0.1"), ("2001:db8:cafe::/48", &N6_V6.to_string())];
        for (users, hop) in routes {
            site.data.run(&["ip", "route", "add", users, "via", hop]);
        }
        if links == Links::Separate {
            site.complete_upf();
        }
        Some(site)
    }

    fn add_v6_address(&self, host: &Host, address: Ipv6Addr) {
        let address = format!("{address}/64");
        host.run(&["ip", "address", "add", &address, "dev", "eth2", "nodad"]);
    }

    /// Gives Linux of the UPF what needs its interfaces: an address, and the neighbors so far.
    fn complete_upf(&self) {
        self.add_v6_address(&self.lab.left, N6_V6);
        self.add_neighbors();
    }

    fn add_neighbors(&self) {
        let neighbors = std::mem::take(&mut *self.neighbors.lock().expect("no panic"));
        for (link, address) in neighbors {
            let far = self.far(&link).mac(&link);
            let words = ["ip", "neigh", "replace", &address, "lladdr", &far, "dev", &link];
            self.lab.left.run(&[&words[..], &["nud", "permanent"]].concat());
        }
    }

    /// Creates one link with the VLANs of N3 and N6. Those of the UPF are ports, with a TAP each.
    fn add_vlans(&mut self) {
        let (upf, far) = (&self.lab.left, &self.lab.right);
        upf.connect(far, TRUNK);
        far.run(&["ethtool", "-K", TRUNK, "txvlan", "off"]); // AF_XDP sees tags in the frames only
        for (name, id) in TAGS {
            let host = if name == "eth2" { &self.data } else { far };
            self.vlans.push(Vlan::add(far, TRUNK, id, name, host));
            host.run(&["ip", "link", "set", name, "addrgenmode", "none", "up"]);
        }
    }

    /// Replaces the ports of N3 and N6 by VLANs of one port, with the same driver.
    fn tag(&self, configuration: &mut Value) {
        let ports = configuration["ports"].as_object_mut().expect("ports");
        let mut wire = Value::Null;
        for (name, id) in TAGS {
            let is_on = |port: &Value| port["driver"].to_string().contains(name);
            let port = ports.values_mut().find(|port| is_on(port)).expect("a port of the link");
            wire = port["driver"].clone();
            port["driver"] = json!({"vlan": {"port": "wire", "id": id}});
            let (_, own, _) = LINKS.iter().find(|link| link.0 == name).expect("its addresses");
            port["kernel"] = json!({"tap": {"name": name, "addresses": [format!("{own}/24")]}});
        }
        let settings = wire.as_object_mut().and_then(|it| it.values_mut().next());
        settings.expect("settings of the driver")["interface"] = json!(TRUNK);
        ports.insert("wire".to_owned(), json!({"driver": wire, "steer": [{"udp-port": 9}]}));
    }

    /// Gives the hosts the addresses of the SMF and gNB of a life, besides the recorded ones.
    pub(crate) fn add_addresses(&self, placement: &Placement) {
        for (name, address) in [("n4", placement.smf), ("eth1", placement.gnb)] {
            let address = format!("{address}/24");
            self.far(name).run(&["ip", "address", "add", &address, "dev", name]);
        }
        self.add_neighbor("eth1", &placement.gnb.to_string());
        if self.vlans.is_empty() {
            self.add_neighbors();
        }
    }

    /// Makes a neighbor of the UPF known to it, once it has the interface.
    fn add_neighbor(&self, link: &str, address: &str) {
        self.neighbors.lock().expect("no panic").push((link.to_owned(), address.to_owned()));
    }

    fn far(&self, link: &str) -> &Host {
        if link == "eth2" { &self.data } else { &self.lab.right }
    }

    /// Returns the host of SMF and gNB.
    pub(crate) const fn access(&self) -> &Host {
        &self.lab.right
    }

    /// Creates another host.
    pub(crate) fn another(&self) -> Host {
        self.lab.another().expect("this site was allowed, too")
    }

    /// Returns the host of the UPF.
    pub(crate) const fn upf(&self) -> &Host {
        &self.lab.left
    }

    /// Returns the host in the data network.
    pub(crate) const fn data(&self) -> &Host {
        &self.data
    }

    /// Starts the UPF with a shipped configuration, of which only the addresses of N4 and the
    /// number of sessions are changed, and where `data_networks` are added to N6.
    pub(crate) fn start(&self, shipped: &str, data_networks: &[&str]) -> Application {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apps/upf/config");
        let path = folder.join(format!("{shipped}.json"));
        let text = std::fs::read_to_string(path).expect("the shipped configuration");
        let mut configuration: Value = serde_json::from_str(&text).expect("JSON");
        let app = &mut configuration["app"];
        app["node-id"] = json!(UPF);
        app["n4"]["addresses"] = json!([UPF]);
        app["sessions"] = json!(1000); // many stories run at a time
        let names = app["interfaces"]["n6"]["network-instances"].as_array_mut();
        names.expect("N6 is named").extend(data_networks.iter().map(|name| json!(name)));
        if !self.vlans.is_empty() {
            self.tag(&mut configuration);
        }
        let upf = &self.lab.left;
        let started = Application::start(&self.lab, upf, &binary("upf"), configuration);
        eventually("both processes run", || {
            let words = ["curl", "--silent", "--fail", "http://127.0.0.1:8805/healthz"];
            upf.attempt(&words).status.success()
        });
        if !self.vlans.is_empty() {
            self.complete_upf();
        }
        started
    }
}
