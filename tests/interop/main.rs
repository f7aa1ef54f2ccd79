//! The UPF and the SMFs of others: recorded lives of sessions (`messages/`, with their origin in
//! `messages/README.md`) played against the real program with its shipped configurations. Users'
//! packets flow at each point as the SMF expects it, and before and after each of its requests as
//! its rules demand.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fastlane_tests::{Application, DropFlag};
use rustix::process::Signal;

mod corpus;
mod endpoints;
mod life;
mod namespaces;
mod player;
mod recorded_smf;
mod router_solicitation;
mod rule_model;
mod side_by_side;
mod user_packet;
mod volumes;

use life::{Life, Step};
use namespaces::{Links, Site};
use player::Player;
use recorded_smf::RecordedSmf;
use side_by_side::Placement;

/// Network instances that N6 has besides those of the shipped configuration.
const DATA_NETWORKS: [&str; 1] = ["core.oai"];

/// Reads a recorded life.
fn read(name: &str) -> Life {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/messages");
    let text = std::fs::read_to_string(folder.join(format!("{name}.hex"))).expect("a life");
    Life::parse(&text).unwrap_or_else(|error| panic!("{name}.hex: {error}"))
}

/// Plays lives one after another against one UPF.
fn play(shipped: &str, names: &[&str]) {
    let Some(site) = Site::new(Links::Separate) else { return };
    let upf = site.start(shipped, &DATA_NETWORKS);
    let mut last = None;
    for name in names {
        eprintln!("{name}:");
        // The next SMF has the same address.
        drop(last.take());
        let placement = Placement::new(read(name), 0);
        last = Some(Player::new(&site, &placement).play(&placement.life));
    }
    stop(upf, last.into_iter().collect());
}

/// Stops the UPF, while SMFs respond to its release requests.
fn stop(upf: Application, smfs: Vec<RecordedSmf>) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut smf in smfs {
            let over = &over;
            scope.spawn(move || smf.serve(over));
        }
        let _end = DropFlag(&over);
        upf.stop();
    });
}

/// Plays lives at the same time against one UPF. Each has an SMF, a gNB and a user of its own.
fn play_at_once(shipped: &str, links: Links, names: &[&str]) {
    let Some(site) = Site::new(links) else { return };
    let place = |(index, name): (usize, &&str)| Placement::new(read(name), index as u8 + 1);
    let lives: Vec<Placement> = names.iter().enumerate().map(place).collect();
    lives.iter().for_each(|placement| site.add_addresses(placement));
    let upf = site.start(shipped, &DATA_NETWORKS);
    let smfs = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (placement, name) in lives.iter().zip(names) {
            let play = || Player::new(&site, placement).play(&placement.life);
            let thread = std::thread::Builder::new().name((*name).to_owned());
            threads.push(thread.spawn_scoped(scope, play).expect("a thread"));
        }
        threads.into_iter().map(|thread| thread.join().expect("see above")).collect()
    });
    stop(upf, smfs);
}

/// The UPF gets SIGTERM in the middle of a life. It serves the session to its end, and then ends,
/// whether the SMF responds to the release request or not. The log says what the SMF did.
fn play_across_the_end(name: &str, responds: bool) {
    let Some(site) = Site::new(Links::Separate) else { return };
    let upf = site.start("af-packet", &DATA_NETWORKS);
    let placement = Placement::new(read(name), 0);
    let life = &placement.life;
    let middle = life.steps.iter().rposition(|step| matches!(step, Step::Action(_)));
    let middle = middle.expect("users' packets flow");
    let mut player = Player::new(&site, &placement);
    player.smf.responds_to_release = responds;
    player.play_steps(life, 0..middle);
    upf.process.signal(Signal::TERM);
    player.smf.wait_for_release_request();
    player.play_steps(life, middle..life.steps.len());
    let ended = upf.process.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let log = ended.stderr;
    let what = if responds { "refuses (" } else { "does not respond" };
    let told = log.lines().find(|line| line.contains("when asked to release its association"));
    assert!(told.is_some_and(|told| told.contains(what)), "{log}");
    assert!(log.contains("ending with 0 sessions of 1 associations"), "{log}");
}

#[test]
fn a_life_goes_on_to_its_end_when_the_upf_is_asked_to_end() {
    for name in ["open5gs-ipv4", "free5gc-default", "sdcore-default"] {
        play_across_the_end(name, true);
    }
}

#[test]
fn a_life_goes_on_to_its_end_when_the_smf_does_not_respond_to_the_release_request() {
    play_across_the_end("open5gs-ipv4", false);
}

macro_rules! lives {
    ($($test:ident = $life:literal,)*) => {
        const LIVES: &[&str] = &[$($life,)*];

        mod af_packet {
            $(
                #[test]
                fn $test() {
                    super::play("af-packet", &[$life]);
                }
            )*
        }

        mod af_xdp {
            $(
                #[test]
                fn $test() {
                    super::play("af-xdp", &[$life]);
                }
            )*
        }
    };
}

lives! {
    open5gs_ipv4_session_lives = "open5gs-ipv4",
    open5gs_second_flow_lives = "open5gs-dedicated",
    open5gs_second_flow_in_its_own_tunnel_lives = "open5gs-dedicated-ownteid",
    open5gs_n2_handover_lives = "open5gs-n2-handover",
    free5gc_session_lives = "free5gc-default",
    free5gc_session_without_policy_lives = "free5gc-nopcc",
    free5gc_session_behind_an_intermediate_upf_lives = "free5gc-psa",
    sdcore_session_lives = "sdcore-default",
    pfcpsim_session_lives = "pfcpsim-default",
    oai_session_lives = "oai-default",
    derived_ipv6_session_lives = "derived-ipv6",
    derived_session_of_both_families_lives = "derived-ipv4v6",
    derived_session_with_teids_of_the_smf_at_n4_lives = "derived-open5gs-without-ftup",
}

/// One setting serves all SMFs, and nothing of a life stays behind.
#[test]
fn all_lives_pass_one_after_another_on_one_upf() {
    play("af-packet", LIVES);
}

/// One setting serves all SMFs at the same time.
#[test]
fn all_lives_pass_at_once_on_one_upf_on_af_packet() {
    play_at_once("af-packet", Links::Separate, LIVES);
}

#[test]
fn all_lives_pass_at_once_on_one_upf_on_af_xdp() {
    play_at_once("af-xdp", Links::Separate, LIVES);
}

/// N3 and N6 are VLANs of one link.
#[test]
fn all_lives_pass_on_vlans_on_af_packet() {
    play_at_once("af-packet", Links::Vlans, LIVES);
}

#[test]
fn all_lives_pass_on_vlans_on_af_xdp() {
    play_at_once("af-xdp", Links::Vlans, LIVES);
}

/// The fuzzer of the codec starts from what SMFs send.
#[test]
fn recorded_messages_and_mutants_of_them_are_in_the_fuzz_corpus() {
    for name in LIVES {
        fastlane_testing::corpus::seeds("pfcp", corpus::inputs(name, &read(name)));
    }
}

/// Each recorded life has a test.
#[test]
fn each_recorded_life_is_played() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/messages");
    let files = std::fs::read_dir(folder).expect("the folder").flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let mut lives: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".hex").map(str::to_owned)).collect();
    lives.sort_unstable();
    let mut played = LIVES.to_vec();
    played.sort_unstable();
    assert_eq!(lives, played);
}
