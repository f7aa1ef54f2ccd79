//! A UPF whose configuration changes: its SMF, its traffic, and the commands that reload it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fastlane_pfcp::ie::OffendingIe;
use fastlane_pfcp::{Cause, Message};
use fastlane_tests::upf::messages::{self, SessionRequest};
use fastlane_tests::upf::{Arrival, Driver, Session, Smf, Traffic, Upf, UpfLab};
use serde_json::{Value, json};

/// Packets per second and direction.
const RATE: u32 = 1500;
/// Network instance that sessions have from the start.
pub(crate) const INTERNET: &str = "internet";
/// Network instance that a reload adds. Its name has the same length, so that it can take the place
/// of the other one in a request, and comes before it in the alphabet.
pub(crate) const EXTRANET: &str = "extranet";

/// Returns true if the long form of the tests was requested.
pub(crate) fn is_soak() -> bool {
    std::env::var_os("FASTLANE_SOAK").is_some()
}

/// A running UPF with everything around it.
pub(crate) struct ReloadSite {
    pub(crate) lab: UpfLab,
    pub(crate) upf: Upf,
    pub(crate) smf: Smf,
    pub(crate) traffic: Traffic,
    /// Traffic of sessions in the network instance `extranet`, by the port `n6b`.
    extranet: Traffic,
}

impl ReloadSite {
    /// Starts a UPF for up to `sessions` sessions, with `changes` of `app`. Returns `None` after a
    /// skip.
    pub(crate) fn start(
        story: &str,
        driver: Driver,
        sessions: u32,
        changes: &[(&str, Value)],
    ) -> Option<Self> {
        Self::start_as(story, driver, |lab| lab.configuration(sessions, changes))
    }

    /// Starts a UPF with this configuration and a port more. Returns `None` after a skip.
    pub(crate) fn start_as(
        story: &str,
        driver: Driver,
        configuration: impl FnOnce(&UpfLab) -> Value,
    ) -> Option<Self> {
        let lab = UpfLab::new(story, driver)?;
        lab.hosts.wire("n6b");
        lab.hosts.left.run(&["ip", "address", "add", "10.61.0.1/24", "dev", "n6b"]);
        let mut configuration = configuration(&lab);
        // A port that no interface uses.
        let port = configuration["ports"]["n6"].to_string().replace("\"n6\"", "\"n6b\"");
        let mut port: Value = serde_json::from_str(&port).expect("JSON");
        port["steer"] = json!([{"destination": "10.99.0.0/16", "fragments": true}]);
        configuration["ports"]["n6b"] = port;
        let upf = lab.start_supervised(configuration);
        let mut smf = lab.smf();
        smf.associate();
        let traffic = lab.traffic();
        let [n3, n6b] = ["n3", "n6b"].map(|name| {
            let text = lab.hosts.left.run(&["ip", "-j", "link", "show", "dev", name]);
            let links: Value = serde_json::from_str(&text).expect("JSON from ip");
            links[0]["address"].as_str().expect("a MAC address").to_owned()
        });
        let extranet =
            Traffic::new(["n3", "n6b"].map(|name| (&lab.hosts.right, name)), [&n3, &n6b]);
        Some(Self { lab, upf, smf, traffic, extranet })
    }

    /// Asserts that packets of sessions in the network instance `extranet` pass in both directions:
    /// lanes, steering rules and pool agree.
    #[track_caller]
    pub(crate) fn assert_extranet(&mut self, sessions: &[Session], each: u64) {
        // Both receive on N3; what the other traffic has caused is over.
        let _ = self.extranet.collect();
        let before = self.extranet.offered;
        self.extranet.send_paced(sessions, each, RATE, || true);
        let arrivals = self.extranet.collect();
        let _ = self.traffic.collect();
        let offered = [0, 1].map(|it| self.extranet.offered[it] - before[it]);
        let arrived = [0, 1].map(|it: usize| arrivals[it].len() as u64);
        assert_eq!(arrived, offered, "lost; drops: {:?}", self.lab.dropped(&self.upf));
    }

    /// Establishes a session in a network instance.
    #[track_caller]
    pub(crate) fn establish(&mut self, number: u32, instance: &str) -> Session {
        establish(&mut self.smf, number, instance)
    }

    /// Sends `each` packets in each direction over the sessions, while `meanwhile` runs. Returns
    /// its result and the packets that were received.
    pub(crate) fn with_traffic<T>(
        &mut self,
        sessions: &[Session],
        each: u64,
        meanwhile: impl FnOnce(&mut Smf, &UpfLab, &Upf) -> T,
    ) -> (T, [Vec<Arrival>; 2]) {
        let Self { lab, upf, smf, traffic, .. } = self;
        let is_over = AtomicBool::new(false);
        let done = thread::scope(|scope| {
            let pace = scope.spawn(|| {
                traffic.send_paced(sessions, each, RATE, || true);
                is_over.store(true, Ordering::SeqCst);
            });
            for _ in 0..20 {
                smf.poll();
            }
            let done = meanwhile(smf, lab, upf);
            while !is_over.load(Ordering::SeqCst) {
                smf.poll();
            }
            pace.join().expect("the thread does not panic");
            done
        });
        smf.heartbeat();
        (done, traffic.collect())
    }

    /// Asserts that no packet of the sessions is lost while `meanwhile` runs. The rings hold all
    /// packets of five seconds, so a busy machine loses none by itself.
    #[track_caller]
    pub(crate) fn assert_no_loss<T>(
        &mut self,
        sessions: &[Session],
        each: u64,
        meanwhile: impl FnOnce(&mut Smf, &UpfLab, &Upf) -> T,
    ) -> T {
        self.without_loss(sessions, each, meanwhile).0
    }

    /// Asserts the same. Returns the packets that were received, too.
    #[track_caller]
    pub(crate) fn without_loss<T>(
        &mut self,
        sessions: &[Session],
        each: u64,
        meanwhile: impl FnOnce(&mut Smf, &UpfLab, &Upf) -> T,
    ) -> (T, [Vec<Arrival>; 2]) {
        let before = self.traffic.offered;
        let (done, arrivals) = self.with_traffic(sessions, each, meanwhile);
        let offered: u64 = self.traffic.offered.iter().sum::<u64>() - before.iter().sum::<u64>();
        let arrived: u64 = arrivals.iter().map(|it| it.len() as u64).sum();
        assert_eq!(arrived, offered, "lost; drops: {:?}", self.lab.dropped(&self.upf));
        (done, arrivals)
    }
}

/// Returns the request for a session in a network instance.
fn request_in(smf: &mut Smf, number: u32, instance: &str) -> (SessionRequest, Vec<u8>) {
    let request = SessionRequest::open(number, 1 << 40);
    let mut datagram = messages::establish(smf.next_sequence(), &request);
    assert_eq!(instance.len(), INTERNET.len(), "it takes the place of the other name");
    let (from, to) = (INTERNET.as_bytes(), instance.as_bytes());
    let mut at = 0;
    while let Some(found) =
        datagram.get(at..).and_then(|it| it.windows(8).position(|it| it == from))
    {
        datagram[at + found..at + found + 8].copy_from_slice(to);
        at += found + 8;
    }
    (request, datagram)
}

/// Establishes a session in a network instance.
#[track_caller]
pub(crate) fn establish(smf: &mut Smf, number: u32, instance: &str) -> Session {
    let (request, datagram) = request_in(smf, number, instance);
    let response = smf.request(&datagram);
    smf.record_establishment(&request, &response)
}

/// Tries to establish a session. Returns the cause.
#[track_caller]
pub(crate) fn refused(smf: &mut Smf, number: u32, instance: &str) -> Cause {
    let (_, datagram) = request_in(smf, number, instance);
    let response = smf.request(&datagram);
    let group = Message::parse(&response).expect("PFCP").0.group();
    let cause: Cause = group.need().expect("a cause");
    assert!(!cause.is_accepted(), "{:?}", group.find::<OffendingIe>());
    cause
}

/// Adds the network instance `extranet` on a port of its own, with its pool and steering rule.
pub(crate) fn add_extranet(configuration: &mut Value) {
    let app = &mut configuration["app"];
    app["interfaces"]["n6b"] = json!({
        "port": "n6b", "role": "n6", "network-instances": [EXTRANET],
        "next-hop": "02:00:00:00:61:02",
    });
    app["pools"] = json!([
        {"network-instance": INTERNET, "prefix": "10.45.0.0/16"},
        {"network-instance": EXTRANET, "prefix": "10.46.0.0/16"},
    ]);
    configuration["ports"]["n6b"]["steer"] =
        json!([{"destination": "10.46.0.0/16", "fragments": true}]);
}

/// Reloads the configuration after a change of the file. Returns exit status and output.
pub(crate) fn reload(
    lab: &UpfLab,
    upf: &Upf,
    change: impl FnOnce(&mut Value),
) -> (Option<i32>, String) {
    let mut configuration = upf.read_file();
    change(&mut configuration);
    upf.write_file(&configuration);
    lab.upf_command(&["reload", upf.file().to_str().expect("UTF-8")])
}

/// Reloads like [`reload`], which must succeed. Returns the output.
#[track_caller]
pub(crate) fn reloaded(lab: &UpfLab, upf: &Upf, change: impl FnOnce(&mut Value)) -> String {
    let (status, text) = reload(lab, upf, change);
    assert_eq!(status, Some(0), "{text}");
    text
}
