//! Mutated PFCP messages and GTP-U packets to a running UPF: 20,000 inputs, ten million in the long
//! form. Neither process may end or leak sessions, table entries, memory or frames. All inputs
//! follow from a seed and from the responses of the UPF.

mod element;
mod health_check;
mod live_sessions;
mod nodes;
mod packets;
#[allow(dead_code, reason = "shared with the stories of survival")]
mod random;
mod requests;
mod rules;
mod state;
mod user_plane;

use std::time::Instant;

use fastlane_tests::eventually;
use fastlane_tests::upf::{Driver, Upf, UpfLab};
use health_check::HealthCheck;
use nodes::Nodes;
use random::Random;
use serde_json::json;
use state::State;
use user_plane::UserPlane;

/// Seed of all inputs.
const SEED: u64 = 0x0fa5_71a4_e5ee_d001;
/// Number of messages, and of frames, in flight at once: fewer than any buffer holds.
const BATCH: usize = 64;
/// Allowed growth of both processes' memory between an early and a later part of a run, in KiB.
const GROWTH_KIB: u64 = 16 * 1024;

/// Size of a run: mutants, parts they are sent in, and the limit of sessions.
#[derive(Clone, Copy)]
struct Size {
    mutants: u64,
    parts: u64,
    sessions: u32,
}

/// Returns the size of this run.
fn size() -> Size {
    if std::env::var_os("FASTLANE_SOAK").is_some() {
        Size { mutants: 10_000_000, parts: 40, sessions: 16_384 }
    } else {
        Size { mutants: 20_000, parts: 4, sessions: 1024 }
    }
}

/// Starts a UPF with IPv6 and a second pool. Its associations end soon, because mutants rarely
/// respond to it.
fn start(lab: &UpfLab, sessions: u32) -> Upf {
    let left = &lab.hosts.left;
    for (name, network) in [("n3", "fd30::"), ("n6", "fd60::")] {
        let address = format!("{network}1/64");
        left.run(&["ip", "address", "add", &address, "dev", name, "nodad"]);
    }
    for number in 0..nodes::CP_FUNCTIONS {
        let address = format!("{}/24", requests::function(number).address);
        lab.hosts.right.run(&["ip", "address", "add", &address, "dev", "n4"]);
    }
    // Mutants of an address that is not allowed would take all its associations.
    let n4 = json!({"addresses": ["10.40.0.1"], "allow": ["10.40.0.0/24"], "t1-ms": 1000, "n1": 3,
                    "heartbeat-s": 1, "release-s": 0});
    let interfaces = json!({
        "n3": {"port": "n3", "role": "n3", "network-instances": ["access"],
               "addresses": ["10.30.0.1", "fd30::1"]},
        "n6": {"port": "n6", "role": "n6", "network-instances": ["internet"]},
    });
    let ours = ["10.45.0.0/16", "fd45::/44"];
    let theirs = ["10.47.0.0/16", "fd47::/32"];
    let pool = |prefix: &&str| {
        let is_ours = ours.contains(prefix);
        json!({"network-instance": "internet", "prefix": prefix, "allocate": is_ours})
    };
    let users = [ours, theirs].concat();
    let pools: Vec<_> = users.iter().map(pool).collect();
    let gtp = json!({"probe-s": 1, "errors-per-s": 1000, "icmp-per-s": 1000, "quiet-s": 0,
                     "echoes-per-s": 1_000_000});
    let changes = [("n4", n4), ("interfaces", interfaces), ("pools", json!(pools)), ("gtp", gtp)];
    let mut configuration = lab.configuration(sessions, &changes);
    let steer: Vec<_> =
        users.iter().map(|it| json!({"destination": it, "fragments": true})).collect();
    configuration["ports"]["n6"]["steer"] = json!(steer);
    let upf = lab.start_supervised(configuration);
    for (name, address) in [("n3", "fd30::2"), ("n6", "fd60::2")] {
        let hop = ["ip", "neigh", "replace", address, "lladdr", "02:00:00:00:30:02", "dev", name];
        left.run(&[&hop[..], &["nud", "permanent"]].concat());
    }
    upf
}

/// Returns the corpus of the PFCP fuzzer, from which IEs are taken.
fn samples() -> Vec<Vec<u8>> {
    fastlane_testing::corpus::inputs("pfcp").into_iter().map(|(_, bytes)| bytes).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Everything that sends to the UPF.
struct Senders {
    random: Random,
    nodes: Nodes,
    user_plane: UserPlane,
    health_check: HealthCheck,
}

impl Senders {
    fn mutants(&self) -> u64 {
        self.nodes.mutants + self.user_plane.mutants
    }

    /// Sends mutants until `until` messages and frames were sent in all.
    #[track_caller]
    fn send_mutants(&mut self, upf: &Upf, until: u64) {
        while self.mutants() < until {
            let messages = self.nodes.send(&mut self.random, BATCH);
            let frames = self.user_plane.send(&mut self.random, self.nodes.live(), BATCH);
            if !(self.nodes.wait() && self.user_plane.wait()) {
                messages.iter().for_each(|it| eprintln!("message {}", hex(it)));
                frames.iter().for_each(|it| eprintln!("frame {}", hex(it)));
                panic!("the UPF does not respond after these inputs; its log:\n{}", upf.log());
            }
            self.nodes.drain();
            self.health_check.turn();
        }
    }
}

/// Asserts that no process has ended, no input is missing and memory has not grown.
#[track_caller]
fn check(lab: &UpfLab, upf: &Upf, senders: &Senders, before: &State, settled: u64) -> State {
    let state = State::of(lab, upf);
    assert_eq!(state.processes, before.processes, "a process has ended:\n{}", upf.log());
    let memory = state.memory();
    assert!(memory < settled + GROWTH_KIB, "memory has grown from {settled} to {memory} KiB");
    let [read, lost] = state::datagrams(lab);
    assert_eq!(lost, 0, "messages were lost before the UPF read them");
    assert!(read >= senders.nodes.sent, "{read} messages were read of {}", senders.nodes.sent);
    // Each frame to the UPF was received and has one outcome; buffered packets and packets from UE
    // to UE have two.
    let received = ["n3", "n6"].map(|port| upf.totals().port(port, "received_packets"));
    let drops = ["n3", "n6"].map(|port| upf.totals().drops(port));
    let sent = senders.user_plane.sent + senders.health_check.offered;
    let all: u64 = received.iter().sum();
    assert!((sent..=sent + senders.user_plane.strays).contains(&all), "{received:?} of {sent}");
    let again = state.packets["held"] + state.packets["user_to_user"];
    let outcomes = state.outcomes();
    assert!(
        (all..=all + again).contains(&outcomes),
        "{outcomes} outcomes of {all} packets, {:?}",
        state.packets
    );
    let took = senders.nodes.accepted();
    eprintln!(
        "{} mutants: {read} messages ({took:?}) and {received:?} packets received, {} sessions, \
         {memory} KiB, lost on ports: {drops:?}",
        senders.mutants(),
        state.sessions,
    );
    state
}

#[test]
fn mutated_input_leaves_nothing_behind() {
    let Some(lab) = UpfLab::new("mutants", Driver::AfPacket) else { return };
    let Size { mutants, parts, sessions } = size();
    let upf = start(&lab, sessions);
    let mut health_check = HealthCheck::new(&lab);
    health_check.check(&lab);
    let before = State::of(&lab, &upf);
    let macs = lab.macs().map(|it| fastlane_tests::mac(&it));
    let mut senders = Senders {
        random: Random::new(SEED),
        nodes: Nodes::new(&lab.hosts.right, &samples()),
        user_plane: UserPlane::new(&lab.hosts.right, macs),
        health_check,
    };
    let begin = Instant::now();
    let mut settled = u64::MAX - GROWTH_KIB;
    for part in 1..=parts {
        senders.send_mutants(&upf, mutants * part / parts);
        let state = check(&lab, &upf, &senders, &before, settled);
        senders.health_check.check(&lab);
        if part == parts / 4 {
            settled = state.memory();
        }
    }
    let (messages, frames) = (senders.nodes.mutants, senders.user_plane.mutants);
    eprintln!("{messages} messages and {frames} frames in {:.0} s", begin.elapsed().as_secs_f64());
    let accepted = senders.nodes.accepted();
    assert!(
        accepted.iter().all(|count| *count > mutants / 1000),
        "the UPF accepts too little: {:?}",
        senders.nodes.inbox
    );
    assert_nothing_left(&lab, &upf, senders, &before, sessions);
    let text = upf.log();
    assert!(!text.contains("panicked"), "{text}");
    upf.stop(); // its exit status reports lost frames
}

/// Asserts that the associations of mutants expire with their sessions, and that the maximum number
/// of sessions can then be established and used.
fn assert_nothing_left(lab: &UpfLab, upf: &Upf, senders: Senders, before: &State, sessions: u32) {
    let Senders { mut nodes, mut health_check, .. } = senders;
    let is_as_before = |health_check: &mut HealthCheck, nodes: &mut Nodes| {
        nodes.drain();
        (0..20).for_each(|_| health_check.smf.poll());
        let now = State::of(lab, upf);
        (now.sessions, now.associations, &now.tables) == (0, 1, &before.tables)
    };
    health_check.smf.associate();
    eventually("sessions of mutants are deleted", || is_as_before(&mut health_check, &mut nodes));
    let all: Vec<_> = (0..sessions).map(|_| health_check.establish()).collect();
    for session in [all.first(), all.last()].into_iter().flatten() {
        health_check.assert_forwards(lab, session);
    }
    all.iter().for_each(|session| health_check.smf.delete(session));
    eventually("sessions of the health check are deleted", || {
        is_as_before(&mut health_check, &mut nodes)
    });
}
