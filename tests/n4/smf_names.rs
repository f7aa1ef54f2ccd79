//! An SMF that is configured by name: a name server (dnsmasq) answers as this host asks it, the SMF
//! moves, and the UPF follows the name.

use std::path::{Path, PathBuf};

use fastlane_tests::upf::messages::{self, RuleVersion, SessionRequest};
use fastlane_tests::upf::{Driver, Session, Upf, UpfLab};
use fastlane_tests::{Host, Process};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::octets::{
    MODIFY, SETUP, cause, cause_of, fq_csid, node_id_name, node_message, recovery, retention,
    sequence, session_message, under_name,
};
use crate::raw_node::RawNode;

const NAME: &str = "smf.core.example";
const STARTED: u32 = 3_900_000_000;

/// A name server on the host of the SMF, and what the UPF's host knows of it.
struct NameServer {
    process: Process,
    names: PathBuf,
}

impl NameServer {
    fn start(host: &Host, directory: &Path) -> Self {
        let names = directory.join("names");
        std::fs::write(&names, "").expect("a file");
        let addresses = format!("--addn-hosts={}", names.display());
        let process = host.start(&[
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--bind-interfaces",
            "--listen-address=10.40.0.2",
            "--user=root",
            "--pid-file=",
            "--log-facility=-",
            &addresses,
        ]);
        process.wait_for("started, version");
        Self { process, names }
    }

    /// Gives the name this address, and none else.
    fn serve(&self, address: &str) {
        std::fs::write(&self.names, format!("{address} {NAME}\n")).expect("a file");
        self.process.signal(Signal::HUP);
    }

    /// Returns the command that executes the one behind it on a host that asks this name server.
    fn wrapper(directory: &Path) -> Vec<String> {
        let resolver = directory.join("resolv.conf");
        let text = "nameserver 10.40.0.2\noptions timeout:1 attempts:1\n";
        std::fs::write(&resolver, text).expect("a file");
        let order = directory.join("nsswitch.conf");
        std::fs::write(&order, "hosts: files dns\n").expect("a file");
        let mount =
            |file: &Path, name: &str| format!("mount --bind {} /etc/{name}", file.display());
        let script = format!(
            "{} && {} && exec \"$@\"",
            mount(&resolver, "resolv.conf"),
            mount(&order, "nsswitch.conf")
        );
        let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, "sh"];
        words.map(str::to_owned).into()
    }
}

struct NameLab {
    lab: UpfLab,
    upf: Upf,
    names: NameServer,
}

impl NameLab {
    fn new() -> Option<Self> {
        let lab = UpfLab::new("n4-names", Driver::AfPacket)?;
        let (left, right) = (&lab.hosts.left, &lab.hosts.right);
        left.run(&["ip", "address", "add", "fd40::1/64", "dev", "n4", "nodad"]);
        for address in ["10.40.0.3/24", "10.40.0.4/24"] {
            right.add_address("n4", address);
        }
        right.run(&["ip", "address", "add", "fd40::3/64", "dev", "n4", "nodad"]);
        let names = NameServer::start(right, lab.hosts.directory());
        let n4 = json!({
            "addresses": ["10.40.0.1", "fd40::1"], "peers": [NAME], "t1-ms": 200, "n1": 3,
            "heartbeat-s": 1, "release-s": 0, "keep-sessions-s": 60,
        });
        let wrapper = NameServer::wrapper(lab.hosts.directory());
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let upf = lab.start_behind(&wrapper, lab.configuration(64, &[("n4", n4)]));
        Some(Self { lab, upf, names })
    }

    fn smf(&self, local: &str, upf: &str) -> RawNode {
        RawNode::new(&self.lab.hosts.right, local, upf, STARTED)
    }

    fn association(&self) -> Option<Value> {
        let response = self.lab.get("/associations");
        let (_, body) = response.split_once("\r\n\r\n").expect("HTTP");
        let all: Vec<Value> = serde_json::from_str(body).expect("JSON");
        assert!(all.len() <= 1, "{all:?}");
        all.into_iter().next()
    }

    /// Accepts the associations that the UPF asks for until it has one at this address. The first
    /// ones may be in vain: the SMF's address before may not count as silent yet.
    #[track_caller]
    fn accept_at(&self, smf: &RawNode, address: &str) {
        let mut accepted = 0;
        while self.association().is_none_or(|it| it["address"] != address) {
            let request = smf.wait_for(SETUP);
            let ies = [node_id_name(NAME, &[]), cause_of(1), recovery(STARTED)];
            smf.send(&node_message(SETUP + 1, sequence(&request), &ies));
            accepted += 1;
            assert!(accepted < 20, "{:?}", self.association());
            for _ in 0..10 {
                smf.poll();
            }
        }
        smf.serve_until("the SMF responds", || {
            self.association().is_some_and(|it| it["is-up"] == true)
        });
    }

    fn establish(&self, smf: &RawNode) -> Session {
        let version = RuleVersion {
            peer: [10, 30, 0, 2].into(),
            teid: 0x1001,
            tos: 4,
            qfi: 1,
            is_open: true,
            is_buffering: false,
        };
        let request = SessionRequest {
            cp_seid: 7,
            version,
            threshold: 1 << 30,
            is_complex: false,
            slice: None,
        };
        let set = fq_csid([10, 40, 0, 3], 1);
        let datagram = messages::establish(0, &request);
        let datagram = under_name(&datagram, &node_id_name(NAME, &[]), [10, 40, 0, 3], &set);
        self.lab.smf().record_establishment(&request, &smf.accepted(&datagram))
    }
}

#[test]
fn the_upf_follows_the_name_of_an_smf_to_other_addresses() {
    let Some(site) = NameLab::new() else { return };
    site.upf.wait_for(&format!("{NAME} cannot be resolved"));
    let first = site.smf("10.40.0.3:8805", "10.40.0.1:8805");
    let setup = node_message(SETUP, 0, &[node_id_name(NAME, &[]), recovery(STARTED)]);
    assert_eq!(cause(&first.ask(&setup)), Some(64), "the name has no address yet");
    site.names.serve("10.40.0.3");
    site.accept_at(&first, "10.40.0.3:8805");
    let session = site.establish(&first);
    // The SMF moves, with its sessions.
    drop(first);
    let second = site.smf("10.40.0.4:8805", "10.40.0.1:8805");
    site.names.serve("10.40.0.4");
    site.accept_at(&second, "10.40.0.4:8805");
    second.accepted(&session_message(MODIFY, session.up_seid, 0, &[]));
    // There it may associate by itself.
    let again = [node_id_name(NAME, &[]), recovery(STARTED), retention(None)];
    second.accepted(&node_message(SETUP, 0, &again));
    second.accepted(&session_message(MODIFY, session.up_seid, 0, &[]));
    let first = site.smf("10.40.0.3:8805", "10.40.0.1:8805");
    assert_eq!(cause(&first.ask(&setup)), Some(64), "it is no address of the name any more");
    // The next address is of the other family.
    drop(second);
    let third = site.smf("[fd40::3]:8805", "[fd40::1]:8805");
    site.names.serve("fd40::3");
    site.accept_at(&third, "[fd40::3]:8805");
    third.accepted(&session_message(MODIFY, session.up_seid, 0, &[]));
    // Without a name server, the name keeps its address.
    let NameLab { lab: _lab, upf, names } = site;
    let before = upf.log().matches("cannot be resolved").count();
    names.process.kill();
    let log = || upf.log().matches("cannot be resolved").count();
    third.serve_until("the name cannot be resolved", || log() > before);
    third.accepted(&session_message(MODIFY, session.up_seid, 0, &[]));
    upf.stop();
}
