//! An SMF that is gone: its set, or another address of it, goes on with its sessions.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fastlane_tests::capture;
use fastlane_tests::upf::messages::{self, RuleVersion, SessionRequest};
use fastlane_tests::upf::{Driver, Session, Upf, UpfLab};
use serde_json::{Value, json};

use crate::octets::{
    DELETE, MODIFY, REPORT, SETUP, alternative, cause, cause_of, f_seid, f_seid_value, features,
    fq_csid, header_seid, inactivity, node_id_name, node_message, recovery, sequence,
    session_message, smf_set, under_name, up_features,
};
use crate::raw_node::RawNode;

const ONE: [u8; 4] = [10, 40, 0, 3];
const OTHER: [u8; 4] = [10, 40, 0, 4];
const STARTED: u32 = 3_900_000_000;
const SET: &str = "set1.smfset.example";
/// CP Function Features SSET and MPAS (octet 5, bits 4 and 6).
const SETS: u8 = 0x28;

/// A UPF, and a host with the addresses of two SMFs.
struct SetLab {
    lab: UpfLab,
    upf: Upf,
}

impl SetLab {
    fn new(story: &str) -> Option<Self> {
        let lab = UpfLab::new(story, Driver::AfPacket)?;
        for address in ["10.40.0.3/24", "10.40.0.4/24"] {
            lab.hosts.right.add_address("n4", address);
        }
        let n4 = json!({
            "addresses": ["10.40.0.1"], "allow": ["10.40.0.0/24"], "t1-ms": 300, "n1": 3,
            "heartbeat-s": 1, "release-s": 0,
        });
        let upf = lab.start_supervised(lab.configuration(64, &[("n4", n4)]));
        Some(Self { lab, upf })
    }

    fn smf(&self, address: [u8; 4], started: u32) -> RawNode {
        let local = format!("{}:8805", std::net::Ipv4Addr::from(address));
        RawNode::new(&self.lab.hosts.right, &local, "10.40.0.1:8805", started)
    }

    /// Establishes a session of an SMF that is known by a name.
    fn establish(&self, smf: &RawNode, name: &str, address: [u8; 4]) -> Session {
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
        let datagram = messages::establish(0, &request);
        let set = fq_csid(address, 1);
        let datagram = under_name(&datagram, &node_id_name(name, &[]), address, &set);
        let response = smf.accepted(&datagram);
        self.lab.smf().record_establishment(&request, &response)
    }

    /// Returns the association of an SMF as the API shows it.
    fn association(&self, name: &str) -> Option<Value> {
        let response = self.lab.get("/associations");
        let (_, body) = response.split_once("\r\n\r\n").expect("HTTP");
        let all: Vec<Value> = serde_json::from_str(body).expect("JSON");
        all.into_iter().find(|it| it["node-id"] == name)
    }

    /// Asserts that users' packets pass both ways while an SMF answers heartbeats.
    #[track_caller]
    fn packets_pass(&self, smf: &RawNode, session: &Session) {
        smf.serve_while(|| self.packets_pass_both_ways(session));
    }

    fn packets_pass_both_ways(&self, session: &Session) {
        let mut traffic = self.lab.traffic();
        for _ in 0..10 {
            traffic.send_uplink(session);
            traffic.send_downlink(session);
        }
        assert_eq!(traffic.collect().map(|arrivals| arrivals.len()), [10, 10]);
    }
}

/// Returns fields of a message as tshark reads them.
fn dissected(directory: &Path, datagram: &[u8], fields: &[&str]) -> Vec<String> {
    let length = datagram.len() as u16;
    let ip = [&[0x45, 0][..], &(length + 28).to_be_bytes(), &[0, 0, 0, 0, 64, 17, 0, 0]].concat();
    let udp = [&[0x22, 0x65, 0x22, 0x65][..], &(length + 8).to_be_bytes(), &[0, 0]].concat();
    let addresses = [10, 40, 0, 1, 10, 40, 0, 4];
    let frame = [&[2; 12][..], &[8, 0], &ip, &addresses, &udp, datagram].concat();
    let path = directory.join("message.pcap");
    std::fs::write(&path, capture(&[frame])).expect("a file");
    let mut command = Command::new("tshark");
    command.arg("-nr").arg(path).args(["-T", "fields", "-e", "_ws.malformed"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output().expect("tshark can be started: make install-packages");
    let text = String::from_utf8(output.stdout).expect("text");
    text.trim_end_matches('\n').split('\t').map(str::to_owned).collect()
}

#[test]
fn another_smf_of_the_set_gets_the_reports_and_takes_the_session_over() {
    let Some(mut site) = SetLab::new("n4-set") else { return };
    let [one, other] = [ONE, OTHER].map(|address| site.smf(address, STARTED));
    for (smf, name) in [(&one, "smf-1.example"), (&other, "smf-2.example")] {
        let ies = [node_id_name(name, &[]), recovery(STARTED), features(SETS), smf_set(SET)];
        let response = smf.accepted(&node_message(SETUP, 0, &ies));
        // SSET is octet 7, bit 4, and MPAS octet 8, bit 1 (TS 29.244, 8.2.25).
        let features = up_features(&response).expect("features");
        assert_eq!((features[2] & 8, features[3] & 1), (8, 1), "{features:x?}");
        let [malformed, sset, mpas] = &dissected(
            site.lab.hosts.directory(),
            &response,
            &["pfcp.up_function_features.sset", "pfcp.up_function_features.mpas"],
        )[..] else {
            panic!("three fields")
        };
        assert_eq!([malformed.as_str(), sset, mpas], ["", "1", "1"]);
    }
    let session = site.establish(&one, "smf-1.example", ONE);
    other.serve_while(|| site.packets_pass(&one, &session));
    one.accepted(&session_message(MODIFY, session.up_seid, 0, &[inactivity(1)]));
    drop(one);
    // The first SMF does not answer: the other one is asked, about a session of another SEID.
    let report = other.wait_for(REPORT);
    assert_eq!(header_seid(&report), 0);
    assert_eq!(f_seid_value(&report), Some(&f_seid(7, ONE)[4..]));
    let names = ["pfcp.seid", "pfcp.f_seid.ipv4", "pfcp.report_type.upir"];
    let read = other.serve_while(|| dissected(site.lab.hosts.directory(), &report, &names));
    assert_eq!(read, ["", "0x0000000000000000,0x0000000000000007", "10.40.0.3", "1"]);
    // Its association is down, and its sessions stay: nothing is configured to keep them.
    let is_down = || site.association("smf-1.example").is_some_and(|it| it["is-up"] == false);
    other.serve_until("the silent SMF is down", is_down);
    site.packets_pass(&other, &session);
    site.lab.kill_slow_path(&mut site.upf);
    // The successor asks the first SMF again, and then the other one, which takes over.
    let ies = [cause_of(1), f_seid(99, OTHER), node_id_name("smf-2.example", &[])];
    let count = |name| site.association(name).map(|it| it["sessions"].clone());
    other.serve_until("the session is of the other SMF", || {
        while let Some(report) = other.take(REPORT) {
            let number = sequence(&report);
            other.send(&session_message(REPORT + 1, session.up_seid, number, &ies));
        }
        count("smf-2.example") == Some(json!(1))
    });
    assert_eq!(count("smf-1.example"), Some(json!(0)));
    site.packets_pass(&other, &session);
    let response = other.ask(&session_message(DELETE, session.up_seid, 0, &[]));
    assert_eq!((cause(&response), header_seid(&response)), (Some(1), 99));
    site.upf.stop();
}

#[test]
fn an_smf_goes_on_at_its_alternative_address() {
    let Some(site) = SetLab::new("n4-alternative") else { return };
    let name = "smf.example";
    let [one, other] =
        [(ONE, STARTED), (OTHER, STARTED + 77)].map(|(address, at)| site.smf(address, at));
    let ies = [node_id_name(name, &[]), recovery(STARTED), features(8), alternative(OTHER)];
    one.accepted(&node_message(SETUP, 0, &ies));
    let session = site.establish(&one, name, ONE);
    drop(one);
    let address = || site.association(name).map(|it| it["address"].clone());
    other.serve_until("the association is at the other address", || {
        address() == Some(json!("10.40.0.4:8805"))
    });
    let association = site.association(name).expect("the association");
    assert_eq!((&association["is-up"], &association["sessions"]), (&json!(true), &json!(1)));
    assert_eq!(association["alternatives"], json!(["10.40.0.3"]));
    site.packets_pass(&other, &session);
    other.accepted(&session_message(MODIFY, session.up_seid, 0, &[]));
    // The address before is not forgotten.
    drop(other);
    let one = site.smf(ONE, STARTED);
    one.serve_until("the association is back", || address() == Some(json!("10.40.0.3:8805")));
    one.accepted(&session_message(MODIFY, session.up_seid, 0, &[]));
    // Both are silent: the association ends, with its session.
    drop(one);
    fastlane_tests::eventually("the association has ended", || {
        std::thread::sleep(Duration::from_millis(50));
        site.association(name).is_none()
    });
    site.upf.stop();
}
