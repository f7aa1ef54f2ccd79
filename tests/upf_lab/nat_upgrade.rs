//! An upgrade in place with NAT: both planes are replaced by processes of another build, while
//! flows of a user go on.

use std::time::Duration;

use fastlane_tests::eventually;

use crate::live_flows::{Flows, Observed};
use crate::nat::{lead, prepared};
use crate::planes::Planes;
use crate::site::{Links, SERVER, Site};
use crate::{count, sessions};

/// Size of the receive rings in frames.
const RING: u32 = 4096;
/// Packets that an upgrade may lose beyond those that are lost without one, on a loaded machine.
/// A mechanism whose sockets are not handed over loses some hundred.
const MAX_LOST: u64 = 20;

/// Runs the flows while `event` happens. No mapping is made but that of the ping.
fn keeps_mappings(site: &Site, flows: &mut Flows<'_>, event: impl FnOnce()) -> Observed {
    let made = || count(&site.ask("/metrics"), "nat_mapping_made");
    let before = made();
    let observed = flows.during(event);
    assert_eq!(made() - before, 1, "mappings were made anew");
    assert!(observed.exchanges > 0, "nothing crossed the connection");
    observed
}

/// Upgrades the control plane, then the user plane. Returns the packets lost without an event,
/// and with each of them.
fn upgrades_in_place(links: Links, example: &'static str) -> Option<[u64; 3]> {
    let mut site = prepared(links, example)?;
    if example == "af-xdp" {
        site.set_receive_ring(RING);
    }
    let mut planes = Planes::start(&site);
    let (smf, lines) = sessions(&site, 1, &[]);
    let gnb = site.gnb(&lines);
    lead(&site);
    let user = lines[0].split(' ').nth(1).expect("an address");
    eventually("the data network answers", || {
        let words = ["ping", "-c", "1", "-W", "1", "-I", user, SERVER];
        site.access().attempt(&words).status.success()
    });
    let mut flows = Flows::open(&site, user);
    let mut lost = [0; 3];
    for (lost, what) in lost.iter_mut().zip(["nothing", "slow", "fast"]) {
        let observed = keeps_mappings(&site, &mut flows, || {
            match what {
                "slow" => planes.upgrade_slow(),
                "fast" => planes.upgrade_fast(),
                _ => {}
            }
            // The flows go on after it.
            std::thread::sleep(Duration::from_secs(2));
        });
        eprintln!("{links:?} {example}, {what}: {observed:?}");
        *lost = observed.datagrams.lost() + observed.pings.lost();
        flows.reach_silent(what);
    }
    let metrics = site.ask("/metrics");
    assert!(metrics.contains("\nupf_nat_blocks{state=\"used\"} 1\n"), "{metrics}");
    let log = std::fs::read_to_string(site.file("nat.log")).expect("the log");
    assert_eq!(log.lines().count(), 1, "the user has the block that it had: {log}");
    drop(flows);
    assert!(smf.stop().status.success());
    assert!(gnb.stop().status.success());
    planes.stop();
    site.end();
    Some(lost)
}

/// Asserts that an upgrade has lost hardly more than is lost without one.
fn assert_lossless(lost: Option<[u64; 3]>) {
    let Some([usual, slow, fast]) = lost else { return };
    assert!(slow <= usual + MAX_LOST, "control plane: {slow} lost, {usual} without an upgrade");
    assert!(fast <= usual + MAX_LOST, "user plane: {fast} lost, {usual} without an upgrade");
}

#[test]
fn an_upgrade_in_place_keeps_mappings_on_af_xdp() {
    assert_lossless(upgrades_in_place(Links::Separate, "af-xdp"));
}

#[test]
fn an_upgrade_in_place_keeps_mappings_on_vlans_over_af_xdp() {
    assert_lossless(upgrades_in_place(Links::Vlans, "af-xdp"));
}

/// Sockets of AF_PACKET are not handed over: packets are lost until the next user plane has its
/// own, and no mapping is.
#[test]
fn an_upgrade_in_place_keeps_mappings_on_af_packet() {
    let lost = upgrades_in_place(Links::Separate, "af-packet");
    let Some([usual, slow, _]) = lost else { return };
    assert!(slow <= usual + MAX_LOST, "control plane: {slow} lost, {usual} without an upgrade");
}
