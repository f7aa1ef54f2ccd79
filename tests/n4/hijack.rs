//! Requests in the name of another SMF: each is refused, no session is lost, and the SMFs go on.
//! The attacker is in another network, with and without an association of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane_pfcp::Message;
use fastlane_tests::upf::messages::{self, SessionRequest};
use fastlane_tests::upf::{Driver, Session, Smf, Upf, UpfLab, accepted};
use fastlane_tests::{DropFlag, Host, eventually};
use serde_json::{Value, json};

use crate::attempts::{self, Attempt, BY_NAME, CSID, NAME, SET, STARTED, Socket};
use crate::octets::{
    HEARTBEAT, SETUP, cause, features, fq_csid, node_id_name, node_message, recovery, set_sequence,
    smf_set, under_name, up_seid,
};
use crate::raw_node::{RawNode, next_sequence};

/// Time of each flood without sessions beside it.
const ALONE: Duration = Duration::from_millis(400);
/// Number of these floods, and of those of the long form, which runs beside more.
const FLOODS_ALONE: [u32; 2] = [3, 20];
/// Maximum number of datagrams of the flood in a second.
const FLOOD_RATE: u64 = 10_000;
/// Maximum number of bytes of the flood that wait in a socket of the UPF, as Linux counts them. A
/// socket holds several times as many; a full one would lose requests of the SMFs as well.
const FLOOD_WAITS: u64 = 50_000;
const CPU: &str = "upf_slow_half_cpu_seconds_total";
const RECEIVED: &str = "upf_pfcp_received_total";
const REFUSED: &str = "upf_pfcp_sources_refused_total";

/// A UPF with two SMFs, and an attacker in another network.
struct Site {
    lab: UpfLab,
    upf: Upf,
    by_address: Smf,
    session: Session,
    by_name: RawNode,
    seid_of_named: u64,
    attackers: Vec<(Socket, RawNode)>,
    _outside: Host,
}

impl Site {
    /// Starts everything. `n4` has settings in addition to the addresses. Returns `None` after a
    /// skip if that is not allowed.
    fn new(story: &str, n4: Value) -> Option<Self> {
        let lab = UpfLab::new(story, Driver::AfPacket)?;
        let outside = lab.hosts.another()?;
        let (upf_host, right) = (&lab.hosts.left, &lab.hosts.right);
        upf_host.run(&["ip", "address", "add", "fd40::1/64", "dev", "n4", "nodad"]);
        right.add_address("n4", "10.40.0.3/24");
        upf_host.connect(&outside, "n4x");
        upf_host.add_address("n4x", "10.41.0.1/24");
        upf_host.run(&["ip", "address", "add", "fd41::1/64", "dev", "n4x", "nodad"]);
        outside.add_address("n4x", "10.41.0.2/24");
        outside.run(&["ip", "address", "add", "fd41::2/64", "dev", "n4x", "nodad"]);
        outside.run(&["ip", "route", "add", "10.40.0.0/24", "via", "10.41.0.1"]);
        outside.run(&["ip", "route", "add", "fd40::/64", "via", "fd41::1"]);
        let mut settings = json!({
            "addresses": ["10.40.0.1", "fd40::1"], "t1-ms": 3000, "n1": 5, "heartbeat-s": 1,
            "release-s": 0,
        });
        for (key, value) in n4.as_object().expect("settings") {
            settings[key] = value.clone();
        }
        let upf = lab.start_supervised(lab.configuration(4096, &[("n4", settings)]));
        let mut by_address = lab.smf();
        let by_name = RawNode::new(right, "10.40.0.3:8805", "10.40.0.1:8805", STARTED);
        let (session, seid_of_named) = settle(&mut by_address, &by_name);
        let attackers = [
            (Socket::Ordinary, "10.41.0.2:8805", "10.40.0.1:8805"),
            (Socket::OtherPort, "10.41.0.2:40000", "10.40.0.1:8805"),
            (Socket::V6, "[fd41::2]:8805", "[fd40::1]:8805"),
        ];
        let attackers = attackers
            .map(|(socket, local, to)| (socket, RawNode::new(&outside, local, to, STARTED + 5)));
        Some(Self {
            lab,
            upf,
            by_address,
            session,
            by_name,
            seid_of_named,
            attackers: attackers.into(),
            _outside: outside,
        })
    }

    fn ways(&self) -> Vec<Attempt> {
        let seids = [self.session.up_seid, self.seid_of_named];
        attempts::all(seids, &messages::establish(0, &request(3)))
    }

    fn attacker(&self, socket: Socket) -> &RawNode {
        node_at(&self.attackers, socket)
    }

    /// Returns the associations of the SMFs as the API shows them.
    fn associations(&self) -> Value {
        let response = self.lab.get("/associations");
        let (_, body) = response.split_once("\r\n\r\n").expect("HTTP");
        let mut all: Value = serde_json::from_str(body).expect("JSON");
        // Those of an attacker are its own affair.
        let is_own = |it: &Value| it["node-id"].as_str().is_some_and(|it| it.starts_with("rogue"));
        all.as_array_mut().expect("a list").retain(|it| !is_own(it));
        all
    }

    /// Lets the SMFs use what they have. Returns an error if one is disturbed.
    fn smfs_go_on(&mut self) -> Result<(), String> {
        self.by_address.heartbeat();
        let sequence = self.by_address.next_sequence();
        let open = messages::modify(sequence, self.session.up_seid, &request(1).version);
        let response = self.by_address.request(&open);
        let (message, _) = Message::parse(&response).expect("PFCP");
        let own = message.group().need::<fastlane_pfcp::Cause>().map(|cause| cause.0);
        let modify = crate::octets::session_message(52, self.seid_of_named, 0, &[]);
        let named = cause(&self.by_name.ask(&modify));
        match (own, named) {
            (Ok(1), Some(1)) => Ok(()),
            causes => Err(format!("the SMFs get the causes {causes:?}")),
        }
    }

    /// Tries all ways. Returns those that did harm. After harm the SMFs begin anew.
    fn harmful_ways(&mut self) -> Vec<String> {
        let mut before = self.associations();
        let mut harm = Vec::new();
        for number in 0..self.ways().len() {
            let way = self.ways().swap_remove(number);
            let response = self.attacker(way.socket).ask(&way.request);
            let is_heartbeat = way.request[1] == HEARTBEAT;
            let is_refused = matches!(cause(&response), Some(64 | 65 | 72));
            let now = self.associations();
            let reason = if is_refused == is_heartbeat {
                Some(format!("cause {:?}", cause(&response)))
            } else if now != before {
                Some(format!("{before} is now {now}"))
            } else {
                self.smfs_go_on().err()
            };
            if let Some(reason) = reason {
                harm.push(format!("{}: {reason}", way.name));
                (self.session, self.seid_of_named) = settle(&mut self.by_address, &self.by_name);
                before = self.associations();
            }
        }
        harm
    }

    /// Asserts that users' packets pass both ways.
    #[track_caller]
    fn packets_pass(&mut self) {
        let mut traffic = self.lab.traffic();
        for _ in 0..10 {
            traffic.send_uplink(&self.session);
            traffic.send_downlink(&self.session);
        }
        assert_eq!(traffic.collect().map(|arrivals| arrivals.len()), [10, 10]);
    }

    /// Returns the CPU times of the control plane in seconds for a datagram of a flood and for a
    /// heartbeat of an SMF. Both are measured in turns, and the least of each counts: whatever else
    /// runs on the machine adds to them.
    fn cpu_of_flood_and_heartbeat(&self) -> [f64; 2] {
        let each = (0..FLOODS_ALONE[usize::from(is_soak())])
            .map(|_| [self.cpu_of_flood(), self.cpu_of_heartbeat()]);
        each.reduce(|one, other| [one[0].min(other[0]), one[1].min(other[1])]).expect("floods")
    }

    /// Returns the CPU time of the control plane for a datagram of a flood, in seconds.
    fn cpu_of_flood(&self) -> f64 {
        let (over, ways, host) = (AtomicBool::new(false), self.ways(), &self.lab.hosts.left);
        let before = [CPU, RECEIVED].map(|name| self.metric(name));
        let sent = std::thread::scope(|scope| {
            let flood = scope.spawn(|| flood(host, &self.attackers, ways, &over));
            let end = DropFlag(&over);
            let begin = Instant::now();
            while begin.elapsed() < ALONE {
                self.by_name.poll();
                std::thread::sleep(Duration::from_millis(20));
            }
            drop(end);
            flood.join().expect("the thread does not panic")
        });
        eventually("no datagram of the flood waits", || waiting(host) == 0);
        eventually("all are counted", || self.metric(RECEIVED) - before[1] >= sent as f64);
        let [cpu, received] = [CPU, RECEIVED].map(|name| self.metric(name));
        (cpu - before[0]) / (received - before[1])
    }

    /// Returns the CPU time of the control plane for a heartbeat of an SMF, in seconds.
    fn cpu_of_heartbeat(&self) -> f64 {
        const COUNT: u32 = 1000;
        let before = self.metric(CPU);
        for _ in 0..COUNT {
            let heartbeat = node_message(HEARTBEAT, 0, &[recovery(STARTED)]);
            assert!(!self.by_name.ask(&heartbeat).is_empty());
        }
        (self.metric(CPU) - before) / f64::from(COUNT)
    }

    fn metric(&self, name: &str) -> f64 {
        metric(&self.lab, name)
    }
}

fn is_soak() -> bool {
    std::env::var_os("FASTLANE_SOAK").is_some()
}

/// Returns the value of a metric, summed up over its labels.
fn metric(lab: &UpfLab, name: &str) -> f64 {
    let page = lab.get("/metrics");
    let lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let values = lines.filter(|rest| rest.starts_with(['{', ' ']));
    values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Sets up the associations of both SMFs with a session each. Returns the session of the first, and
/// the UPF's SEID of the other.
fn settle(by_address: &mut Smf, by_name: &RawNode) -> (Session, u64) {
    by_address.associate();
    let session = by_address.establish(&request(1));
    let name = node_id_name(NAME, &[]);
    let setup = [name.clone(), recovery(STARTED), features(0x28), smf_set(SET)];
    by_name.accepted(&node_message(SETUP, 0, &setup));
    let set = fq_csid(BY_NAME, CSID);
    let establishment = under_name(&messages::establish(0, &request(2)), &name, BY_NAME, &set);
    let response = by_name.accepted(&establishment);
    (session, up_seid(&response).expect("a SEID of the UPF"))
}

fn node_at(nodes: &[(Socket, RawNode)], socket: Socket) -> &RawNode {
    &nodes.iter().find(|(other, _)| *other == socket).expect("each socket is open").1
}

fn request(number: u32) -> SessionRequest {
    SessionRequest::open(number, 1 << 30)
}

#[test]
fn no_stranger_takes_over_an_smf() {
    let Some(mut site) = Site::new("n4-strangers", json!({})) else { return };
    assert_eq!(site.ways().len(), 27);
    assert_eq!(site.harmful_ways(), Vec::<String>::new());
    site.packets_pass();
    assert_eq!(site.metric("upf_n4_open"), 1.0);
    assert!(site.metric(REFUSED) >= 26.0);
    let log = site.upf.log();
    let lines = log.lines().filter(|line| line.contains("is refused")).count();
    // Two addresses, each pinned out, and without an association.
    assert!((1..=4).contains(&lines), "{lines} lines for two addresses:\n{log}");
    site.upf.stop();
}

#[test]
fn no_smf_takes_over_another_one() {
    let Some(mut site) = Site::new("n4-others", json!({})) else { return };
    let own = [
        node_id_name("rogue.example", &[]),
        recovery(STARTED + 5),
        // It claims to be of the same set, and so do its sessions.
        features(0x28),
        smf_set(SET),
    ];
    for (socket, name) in [(Socket::Ordinary, "rogue.example"), (Socket::V6, "rogue6.example")] {
        let mut own = own.clone();
        own[0] = node_id_name(name, &[]);
        site.attacker(socket).accepted(&node_message(SETUP, 0, &own));
    }
    assert_eq!(site.harmful_ways(), Vec::<String>::new());
    site.packets_pass();
    site.upf.stop();
}

#[test]
fn nobody_else_associates_if_the_smfs_are_configured() {
    let n4 = json!({ "allow": ["10.40.0.0/24", "fd40::/64"] });
    let Some(mut site) = Site::new("n4-allow", n4) else { return };
    assert_eq!(site.metric("upf_n4_open"), 0.0);
    let own = [node_id_name("rogue.example", &[]), recovery(STARTED + 5)];
    for (_, attacker) in &site.attackers {
        assert_eq!(cause(&attacker.ask(&node_message(SETUP, 0, &own))), Some(64));
    }
    assert_eq!(site.harmful_ways(), Vec::<String>::new());
    site.packets_pass();
    site.upf.stop();
}

/// Sends all ways in turn to a UPF until `over` is true, at [`FLOOD_RATE`] if it can take that.
/// Returns the number of datagrams.
fn flood(
    upf: &Host,
    attackers: &[(Socket, RawNode)],
    mut ways: Vec<Attempt>,
    over: &AtomicBool,
) -> u64 {
    let (mut sent, mut next) = (0, Instant::now());
    while !over.load(Ordering::Relaxed) {
        for _ in 0..FLOOD_RATE / 1000 {
            let count = ways.len() as u64;
            let way = &mut ways[(sent % count) as usize];
            set_sequence(&mut way.request, next_sequence());
            node_at(attackers, way.socket).send(&way.request);
            sent += 1;
        }
        next = Instant::now().max(next + Duration::from_millis(1));
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        while waiting(upf) > FLOOD_WAITS && !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    sent
}

/// Returns the bytes in that socket of a UPF's N4 where most wait (`/proc/net/udp`, proc_net(5)).
fn waiting(upf: &Host) -> u64 {
    let sockets = upf.enter(|| {
        ["udp", "udp6"].map(|name| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{name}"))
                .expect("it is readable")
        })
    });
    let mut waiting = 0;
    for line in sockets.iter().flat_map(|text| text.lines()) {
        let mut fields = line.split_whitespace().skip(1);
        if fields.next().is_some_and(|local| local.ends_with(":2265")) {
            let queues = fields.nth(2).expect("a socket has queues");
            let (_, received) = queues.split_once(':').expect("two queues");
            waiting = waiting.max(u64::from_str_radix(received, 16).expect("hexadecimal digits"));
        }
    }
    waiting
}

#[test]
fn a_flood_of_strangers_costs_no_session_and_little_cpu() {
    let length = Duration::from_secs(if is_soak() { 60 } else { 2 });
    let Some(mut site) = Site::new("n4-flood", json!({})) else { return };
    let (before, ways, mut traffic) = (site.associations(), site.ways(), site.lab.traffic());
    let [each, heartbeat] = site.cpu_of_flood_and_heartbeat();
    let counted = [RECEIVED, REFUSED].map(|name| site.metric(name));
    let (over, begin) = (AtomicBool::new(false), Instant::now());
    let Site { lab, by_address: smf, by_name, attackers, session: user, .. } = &mut site;
    // As SMFs have it: a machine that stands still for a moment loses no request.
    smf.t1 = Duration::from_secs(3);
    let retransmissions = smf.inbox.retransmissions;
    let (sent, requests) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&lab.hosts.left, attackers, ways, &over));
        let end = DropFlag(&over);
        let mut requests = 0;
        while begin.elapsed() < length {
            requests += 1;
            let session = smf.establish(&request(10 + requests));
            let datagram =
                messages::modify(smf.next_sequence(), session.up_seid, &request(7).version);
            accepted(&smf.request(&datagram));
            smf.delete(&session);
            smf.heartbeat();
            by_name.poll();
            traffic.send_uplink(user);
            traffic.send_downlink(user);
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(end);
        (flood.join().expect("the thread does not panic"), requests)
    });
    let elapsed = begin.elapsed();
    let repeated = site.by_address.inbox.retransmissions - retransmissions;
    // Those received and not refused are of ways that are refused under other names.
    let received = site.metric(RECEIVED) - counted[0];
    let refused = site.metric(REFUSED) - counted[1];
    eprintln!(
        "{sent} datagrams in {} ms, {received} received, {refused} refused, {:.1} us of CPU each, \
         {:.1} us for a heartbeat, {requests} sessions meanwhile",
        elapsed.as_millis(),
        each * 1e6,
        heartbeat * 1e6,
    );
    assert!(received >= sent as f64, "{received} received of {sent}");
    assert!(refused * 2.0 > received, "{refused} of {received} are counted");
    assert_eq!(repeated, 0, "requests of the SMF that had to be repeated");
    let arrived = traffic.collect().map(|arrivals| arrivals.len() as u64);
    assert_eq!((arrived, arrived[0]), (traffic.offered, u64::from(requests)), "users' packets");
    // Both depend on the machine in the same way.
    assert!(each < heartbeat, "{each} s of CPU each, {heartbeat} s for a heartbeat of an SMF");
    eventually("the API shows what it showed before", || site.associations() == before);
    site.smfs_go_on().expect("the SMFs go on");
    site.packets_pass();
    assert_eq!(site.by_address.inbox.stamps.len(), 1, "one UPF");
    let lines = site.upf.log().lines().filter(|line| line.contains("is refused")).count();
    assert!(lines <= 4, "{lines} lines in the log");
    site.upf.stop();
}
