//! A gNB that is Linux's own GTP device, and a server in the data network.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};

use fastlane_netlink::{Request, ask_generic, generic_family};
use serde_json::Value;

use super::frames::N3;
use super::messages::SessionRequest;
use super::smf::Session;
use super::upf_lab::{NEIGHBOURS, UpfLab};
use crate::{Host, PATIENCE};

/// Address of the server, behind the data network's host.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Command `GTP_CMD_NEWPDP` of the family `gtp`, and its attributes `GTPA_*` (linux/gtp.h).
const NEW_TUNNEL: u8 = 0;
const LINK: u16 = 1;
const VERSION: u16 = 2;
const PEER: u16 = 4;
const UE: u16 = 5;
const TEID_HERE: u16 = 8;
const TEID_THERE: u16 = 9;

/// Linux's GTP device as the gNB of a UPF. Its socket is on the right host of the lab; the UEs are
/// a host of their own, with the device `gtp0`. The right host is also the server's: it has the
/// server's address, but none of N6, so that stamped packets to N6 find no listener.
#[derive(Debug)]
pub struct KernelGnb {
    ue: Host,
    index: u32,
}

impl KernelGnb {
    /// Creates the device beside a running UPF. The right host has the interfaces `n3` and `n6`.
    /// The route to the server is added to a `table` of the UPF's Linux.
    ///
    /// # Panics
    /// When the kernel refuses: the module `gtp` must be loaded.
    #[track_caller]
    #[must_use]
    pub fn new(lab: &UpfLab, table: &str) -> Self {
        let (upf, host) = (&lab.hosts.left, &lab.hosts.right);
        for (interface, _, mac) in [NEIGHBOURS[0], NEIGHBOURS[2]] {
            host.run(&["ip", "link", "set", interface, "address", mac]);
            // A packet crosses the link at a time, with its checksum. Not each driver has them all.
            let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            let _ = host.attempt(&[&["ethtool", "-K", interface], &off[..]].concat());
        }
        host.add_address("n3", "10.30.0.2/24");
        let server = SERVER.to_string();
        host.add_address("lo", &format!("{server}/32"));
        host.run(&["ip", "link", "set", "lo", "up"]);
        let route = ["ip", "route", "add", "table", table, &server, "via", NEIGHBOURS[2].1];
        upf.run(&[&route[..], &["dev", "n6"]].concat());
        let gateway = ["10.60.0.1", "dev", "n6"];
        let known = ["ip", "neighbour", "add", "lladdr", &lab.macs()[1], "nud", "permanent"];
        host.run(&[&known[..], &gateway].concat());
        let route = ["ip", "route", "add", "10.45.0.0/16", "src", &server, "onlink", "via"];
        host.run(&[&route[..], &gateway].concat());

        let ue = lab.hosts.another().expect("it is allowed, as for the hosts of the lab");
        let words = ["ip", "link", "add", "gtp0", "netns", &ue.path(), "type", "gtp"];
        host.run(&[&words[..], &["role", "sgsn"]].concat());
        ue.run(&["ip", "link", "set", "gtp0", "up"]);
        ue.run(&["ip", "route", "add", "default", "dev", "gtp0"]);
        let links: Value = serde_json::from_str(&ue.run(&["ip", "-j", "link", "show", "gtp0"]))
            .expect("JSON from ip");
        let index = links[0]["ifindex"].as_u64().and_then(|index| index.try_into().ok());
        Self { ue, index: index.expect("an index") }
    }

    /// Adds the tunnel of a session and the address of its UE.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn attach(&self, request: &SessionRequest, session: &Session) {
        self.ue.add_address("gtp0", &format!("{}/32", session.ue));
        let index = self.index.to_ne_bytes();
        let tunnel = || {
            let kind = generic_family("gtp")?;
            ask_generic(
                Request::new(kind, 0, &[NEW_TUNNEL, 0, 0, 0])
                    .attribute(LINK, &index)
                    .attribute(VERSION, &1_u32.to_ne_bytes())
                    .attribute(PEER, &N3.octets())
                    .attribute(UE, &session.ue.octets())
                    .attribute(TEID_HERE, &request.version.teid.to_ne_bytes())
                    .attribute(TEID_THERE, &session.uplink_teid.to_ne_bytes()),
            )
        };
        self.ue.enter(tunnel).expect("the kernel takes the tunnel");
    }

    /// Sends one ping to the server from a UE. Returns true if it has a response.
    #[must_use]
    pub fn ping(&self, session: &Session) -> bool {
        self.ue.ping(&["-I", &session.ue.to_string(), &SERVER.to_string()])
    }

    /// Sends pings to the server from a UE and asserts that each has a response.
    ///
    /// # Panics
    /// When one has none.
    #[track_caller]
    pub fn assert_pings(&self, session: &Session, count: u32) {
        self.ue.assert_pings(count, &["-I", &session.ue.to_string(), &SERVER.to_string()]);
    }

    /// Sends a page by TCP from a UE to the server and from the server to the UE. Each returns it.
    ///
    /// # Panics
    /// When it does not come back as it was.
    #[track_caller]
    pub fn exchange_pages(&self, lab: &UpfLab, session: &Session, page: &[u8]) {
        let server = Endpoint { host: &lab.hosts.right, address: SERVER };
        let ue = Endpoint { host: &self.ue, address: session.ue };
        exchange_page(&ue, &server, page);
        exchange_page(&server, &ue, page);
    }

    /// Returns the packets that the device has received and sent.
    ///
    /// # Panics
    /// When it does not exist.
    #[must_use]
    pub fn packets(&self) -> [u64; 2] {
        let statistics = self.ue.statistics("gtp0");
        ["rx", "tx"].map(|way| statistics[way]["packets"].as_u64().expect("a counter"))
    }
}

/// An address of a host.
struct Endpoint<'a> {
    host: &'a Host,
    address: Ipv4Addr,
}

/// Sends a page from one host to a server on another one, which returns it.
#[track_caller]
fn exchange_page(client: &Endpoint<'_>, server: &Endpoint<'_>, page: &[u8]) {
    let bound = server.host.enter(|| TcpListener::bind((server.address, 0)));
    let listener = bound.expect("a TCP port");
    let address = listener.local_addr().expect("an address");
    let returned = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the whole page");
        stream.write_all(&all).expect("it is returned");
    });
    let mut received = Vec::new();
    client.host.enter(|| {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("a server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(page).expect("the page is sent");
        stream.shutdown(Shutdown::Write).expect("its end");
        stream.read_to_end(&mut received).expect("the whole page");
    });
    let [from, to] = [client.address, server.address];
    assert!(received == page, "the page from {from} to {to} has changed");
    returned.join().expect("it does not panic");
}
