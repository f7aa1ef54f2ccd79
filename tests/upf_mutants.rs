//! Mutated input, PFCP and GTP-U, to the UPF as it runs: 20,000 inputs, in the long form ten
//! million. Neither half ends, and nothing is left: sessions, table entries, memory and frames are
//! what they were before. All inputs follow from a seed and from what the UPF answers.

#[allow(dead_code, reason = "shared with the stories of survival")]
#[path = "survival/frames.rs"]
mod frames;
#[allow(dead_code, reason = "shared with the stories of survival")]
#[path = "survival/messages.rs"]
mod messages;
#[allow(dead_code, reason = "shared with the stories of survival")]
#[path = "survival/place.rs"]
mod place;
#[allow(dead_code, reason = "shared with the stories of survival")]
#[path = "survival/smf.rs"]
mod smf;
#[allow(dead_code, reason = "shared with the stories of survival")]
#[path = "survival/traffic.rs"]
mod traffic;

#[path = "mutants/chance.rs"]
mod chance;
#[path = "mutants/control.rs"]
mod control;
#[path = "mutants/element.rs"]
mod element;
#[path = "mutants/live.rs"]
mod live;
#[path = "mutants/nodes.rs"]
mod nodes;
#[path = "mutants/packets.rs"]
mod packets;
#[path = "mutants/requests.rs"]
mod requests;
#[path = "mutants/rules.rs"]
mod rules;
#[path = "mutants/state.rs"]
mod state;
#[path = "mutants/wires.rs"]
mod wires;

use std::time::Instant;

use chance::Chance;
use control::Control;
use fastlane_tests::eventually;
use nodes::Nodes;
use place::{Carrier, Place, Upf};
use serde_json::json;
use state::State;
use wires::Wires;

/// What the inputs follow from.
const SEED: u64 = 0x0fa5_71a4_e5ee_d001;
/// Messages, and as many frames, that are under way at once: fewer than any buffer holds.
const BATCH: usize = 64;
/// KiB by which the memory of both halves may differ between an early part of a run and a later
/// one.
const GROWTH_KIB: u64 = 16 * 1024;

/// How much is sent, in how many parts, and how many sessions there may be.
#[derive(Clone, Copy)]
struct Size {
    mutants: u64,
    parts: u64,
    sessions: u32,
}

fn size() -> Size {
    if std::env::var_os("FASTLANE_SOAK").is_some() {
        Size { mutants: 10_000_000, parts: 40, sessions: 16_384 }
    } else {
        Size { mutants: 20_000, parts: 4, sessions: 1024 }
    }
}

/// Networks that the UPF knows besides those of other stories, and associations that end soon: the
/// functions of the mutants answer little.
fn start(place: &Place, sessions: u32) -> Upf {
    let left = &place.lab.left;
    for (name, network) in [("n3", "fd30::"), ("n6", "fd60::")] {
        let address = format!("{network}1/64");
        left.run(&["ip", "address", "add", &address, "dev", name, "nodad"]);
    }
    for number in 0..nodes::COUNT {
        let address = format!("{}/24", requests::function(number).address);
        place.lab.right.run(&["ip", "address", "add", &address, "dev", "n4"]);
    }
    let n4 = json!({"addresses": ["10.40.0.1"], "t1-ms": 1000, "n1": 3, "heartbeat-s": 1});
    let interfaces = json!({
        "n3": {"port": "n3", "role": "n3", "network-instance": "access",
               "addresses": ["10.30.0.1", "fd30::1"]},
        "n6": {"port": "n6", "role": "n6", "network-instance": "internet"},
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
    let mut configuration = place.configuration(sessions, &changes);
    let steer: Vec<_> = users.iter().map(|it| json!({"destination": it})).collect();
    configuration["ports"]["n6"]["steer"] = json!(steer);
    let upf = place.supervised(configuration);
    for (name, address) in [("n3", "fd30::2"), ("n6", "fd60::2")] {
        let hop = ["ip", "neigh", "replace", address, "lladdr", "02:00:00:00:30:02", "dev", name];
        left.run(&[&hop[..], &["nud", "permanent"]].concat());
    }
    upf
}

/// All messages of which elements are taken: those of the fuzzer.
fn samples() -> Vec<Vec<u8>> {
    fastlane_testing::corpus::inputs("pfcp").into_iter().map(|(_, bytes)| bytes).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Those who send.
struct Senders {
    chance: Chance,
    nodes: Nodes,
    wires: Wires,
    control: Control,
}

impl Senders {
    fn mutants(&self) -> u64 {
        self.nodes.mutants + self.wires.mutants
    }

    /// Sends until so many mutants were sent, messages and frames alike.
    #[track_caller]
    fn hammer(&mut self, upf: &Upf, until: u64) {
        while self.mutants() < until {
            let messages = self.nodes.send(&mut self.chance, BATCH);
            let frames = self.wires.send(&mut self.chance, self.nodes.live(), BATCH);
            if !(self.nodes.wait() && self.wires.wait()) {
                messages.iter().for_each(|it| eprintln!("message {}", hex(it)));
                frames.iter().for_each(|it| eprintln!("frame {}", hex(it)));
                panic!("after these inputs there is no answer; the UPF:\n{}", upf.said());
            }
            self.nodes.drain();
            self.control.turn();
        }
    }
}

/// Nothing has ended, nothing that was sent is missing, and memory is what it was.
#[track_caller]
fn check(place: &Place, upf: &Upf, senders: &Senders, before: &State, settled: u64) -> State {
    let state = State::of(place, upf);
    assert_eq!(state.halves, before.halves, "a half has ended:\n{}", upf.said());
    let memory = state.memory();
    assert!(memory < settled + GROWTH_KIB, "{settled} KiB of memory have become {memory}");
    let [read, lost] = state::datagrams(place);
    assert_eq!(lost, 0, "messages were lost before the UPF read them");
    assert!(read >= senders.nodes.sent, "{read} messages were read of {}", senders.nodes.sent);
    // Each frame that is for the UPF was received, and has one fate; what was held has two, and so
    // has what goes from user to user.
    let received = ["n3", "n6"].map(|port| upf.totals().port(port, "received_packets"));
    let drops = ["n3", "n6"].map(|port| upf.totals().drops(port));
    let sent = senders.wires.sent + senders.control.offered;
    let all: u64 = received.iter().sum();
    assert!((sent..=sent + senders.wires.strays).contains(&all), "{received:?} of {sent}");
    let again = state.packets["held"] + state.packets["user_to_user"];
    let fates = state.fates();
    assert!((all..=all + again).contains(&fates), "{fates} fates of {all}, {:?}", state.packets);
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
    let Some(place) = Place::new("mutants", Carrier::AfPacket) else { return };
    let Size { mutants, parts, sessions } = size();
    let upf = start(&place, sessions);
    let mut control = Control::new(&place);
    control.check(&place);
    let before = State::of(&place, &upf);
    let macs = place.macs().map(|it| fastlane_tests::mac(&it));
    let mut senders = Senders {
        chance: Chance::new(SEED),
        nodes: Nodes::new(&place.lab.right, &samples()),
        wires: Wires::new(&place.lab.right, macs),
        control,
    };
    let begin = Instant::now();
    let mut settled = u64::MAX - GROWTH_KIB;
    for part in 1..=parts {
        senders.hammer(&upf, mutants * part / parts);
        let state = check(&place, &upf, &senders, &before, settled);
        senders.control.check(&place);
        if part == parts / 4 {
            settled = state.memory();
        }
    }
    let Senders { nodes, control, wires, .. } = senders;
    let (messages, frames) = (nodes.mutants, wires.mutants);
    eprintln!("{messages} messages and {frames} frames in {:.0} s", begin.elapsed().as_secs_f64());
    let accepted = nodes.accepted();
    assert!(accepted.iter().all(|count| *count > mutants / 1000), "too wild: {:?}", nodes.heard);
    nothing_is_left(&place, &upf, nodes, control, &before, sessions);
    let said = upf.said();
    assert!(!said.contains("panicked"), "{said}");
    upf.stop(); // says by its status that all frames came back
}

/// Associations that are not heard end, with their sessions; then there is room for as many
/// sessions as may be, and each can be used.
fn nothing_is_left(
    place: &Place,
    upf: &Upf,
    mut nodes: Nodes,
    mut control: Control,
    before: &State,
    sessions: u32,
) {
    let is_as_before = |control: &mut Control, nodes: &mut Nodes| {
        nodes.drain();
        (0..20).for_each(|_| control.smf.turn());
        let now = State::of(place, upf);
        (now.sessions, now.associations, &now.tables) == (0, 1, &before.tables)
    };
    control.smf.associate();
    eventually("what mutants have made is gone", || is_as_before(&mut control, &mut nodes));
    let all: Vec<_> = (0..sessions).map(|_| control.establish()).collect();
    for session in [all.first(), all.last()].into_iter().flatten() {
        control.goes(place, session);
    }
    all.iter().for_each(|session| control.smf.delete(session));
    eventually("what the control has made is gone", || is_as_before(&mut control, &mut nodes));
}
