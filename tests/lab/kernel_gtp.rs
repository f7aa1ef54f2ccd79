//! The UPF beside Linux's own GTP device, on veth and on cards.

use std::thread;

use fastlane_tests::upf::messages::SessionRequest;
use fastlane_tests::upf::{Driver, KernelGnb, Session, Smf, Traffic, Upf, UpfLab, octets};
use fastlane_tests::{Guest, Kernel, Nic, Page, eventually, load_modules};
use serde_json::{Value, json};

/// Size of a page in octets.
const OCTETS: usize = 1 << 18;

/// Returns the request of a session; its URR does not report.
fn request(number: u32) -> SessionRequest {
    SessionRequest::open(number, 1 << 30)
}

/// Lets the SMF be silent while packets flow.
fn without_heartbeats(mut configuration: Value) -> Value {
    configuration["app"]["n4"]["heartbeat-s"] = json!(600);
    configuration
}

/// Establishes a session of a UE behind Linux's GTP device, whose traffic crosses the UPF.
fn attach(lab: &UpfLab, smf: &mut Smf, table: &str) -> (KernelGnb, Session) {
    load_modules(&["gtp"]);
    smf.associate();
    // Linux 6.12 takes the first extension header for the packet, and drops it.
    let mut request = request(1);
    request.version.qfi = 0;
    let session = smf.establish(&request);
    let gnb = KernelGnb::new(lab, table);
    gnb.attach(&request, &session);
    eventually("a ping comes back", || gnb.ping(&session));
    (gnb, session)
}

/// Pings, and sends pages by TCP, from both ends. Linux and the UPF count the same packets.
fn crosses(lab: &UpfLab, upf: &Upf, gnb: &KernelGnb, session: &Session) {
    gnb.assert_pings(session, 50);
    gnb.exchange_pages(lab, session, &Page::new(OCTETS).0);
    let dropped = lab.dropped(upf);
    for cause in ["unknown_tunnel", "unknown_user", "no_rule", "malformed"] {
        assert_eq!(dropped.get(cause), None, "{dropped:?}");
    }
}

fn linux_is_the_gnb(driver: Driver) {
    let lab = UpfLab::new("lab-gtp", driver).expect("the guest allows everything");
    serves_linux(&lab, lab.configuration(8, &[]), "main");
}

/// Runs a UPF, whose gNB is Linux, with the routes of its N6 in a table.
pub(crate) fn serves_linux(lab: &UpfLab, configuration: Value, table: &str) {
    let upf = lab.start_supervised(without_heartbeats(configuration));
    let mut smf = lab.smf();
    let (gnb, session) = attach(lab, &mut smf, table);
    crosses(lab, &upf, &gnb, &session);
    let [received, sent] = gnb.packets();
    assert!(received.min(sent) > 50 + 2 * OCTETS as u64 / 1500, "{received}, {sent}");
    // Packets that the first ping has waited for at a neighbour may be missing.
    let forwarded = lab.packet_count("forwarded_uplink");
    assert!(forwarded <= sent && forwarded + 10 > sent, "{forwarded} of {sent}");
    assert_eq!(lab.packet_count("forwarded_downlink"), received);
    smf.delete(&session);
    assert!(!gnb.ping(&session), "the session has ended");
    upf.stop();
}

#[test]
fn linux_is_the_gnb_of_a_upf_on_af_packet() {
    Guest::new(Kernel::V6_12).run(|| linux_is_the_gnb(Driver::AfPacket));
}

#[test]
fn linux_is_the_gnb_of_a_upf_on_af_xdp() {
    Guest::new(Kernel::V6_12).run(|| linux_is_the_gnb(Driver::AfXdp));
}

/// Cards of the UPF: N3 and N6. Each has a card of the kernel's driver at the other end.
const CARDS: [(&str, &str, &str); 2] =
    [("n3", Nic::FIRST, Nic::SECOND), ("n6", Nic::THIRD, Nic::FOURTH)];

/// Returns a lab whose N3 and N6 are cards.
fn card_lab(modules: &[&str]) -> UpfLab {
    load_modules(modules);
    // N3 and N6 are not veth pairs.
    let lab = UpfLab::new("lab-cards", Driver::Tap).expect("the guest allows everything");
    CARDS.iter().for_each(|(name, _, far)| Nic::at(far).move_to(&lab.hosts.right, name));
    lab
}

/// Runs a UPF whose ports have these drivers: stamped packets of four sessions cross it while a UE
/// behind Linux's GTP device exchanges pages with a server.
fn carries(lab: &UpfLab, drivers: [Value; 2]) {
    let mut configuration = lab.configuration(8, &[]);
    for ((name, ..), driver) in CARDS.iter().zip(drivers) {
        configuration["ports"][name]["driver"] = driver;
        if configuration["ports"][name]["driver"]["dpdk"].is_null() {
            configuration["ports"][name]["kernel"] = json!("re-enter");
        }
    }
    let upf = lab.start_supervised(without_heartbeats(configuration));
    let mut smf = lab.smf();
    let (gnb, session) = attach(lab, &mut smf, "main");
    let macs = lab.macs();
    let mut traffic =
        Traffic::new(["n3", "n6"].map(|name| (&lab.hosts.right, name)), [&macs[0], &macs[1]]);
    let sessions: Vec<_> = (2..6).map(|number| smf.establish(&request(number))).collect();
    thread::scope(|scope| {
        let pages = scope.spawn(|| gnb.exchange_pages(lab, &session, &Page::new(OCTETS).0));
        traffic.send_paced(&sessions, 400, 100, || true);
        pages.join().expect("the pages come back");
    });
    let [uplink, downlink] = traffic.collect();
    assert_eq!([uplink.len() as u64, downlink.len() as u64], traffic.offered);
    for session in &sessions {
        smf.delete(session);
        let counted = [octets(&uplink, session), octets(&downlink, session)];
        assert_eq!(smf.usage(session), counted, "{session:?}");
    }
    crosses(lab, &upf, &gnb, &session);
    upf.stop();
}

#[test]
fn the_upf_carries_on_two_cards_under_dpdk() {
    Guest::new(Kernel::V6_12).nics("igb").nics("igb").huge_pages(300).run(|| {
        let lab = card_lab(&["igb", "vfio_iommu_type1", "vfio-pci"]);
        carries(
            &lab,
            CARDS.map(|(_, card, _)| {
                Nic::at(card).bind("vfio-pci");
                json!({"dpdk": {"device": card}})
            }),
        );
    });
}

#[test]
fn the_upf_carries_on_two_cards_under_af_xdp() {
    Guest::new(Kernel::V6_12).nics("igb").nics("igb").run(|| {
        let lab = card_lab(&["igb"]);
        for ((name, card, _), address) in CARDS.iter().zip(["10.30.0.1/24", "10.60.0.1/24"]) {
            Nic::at(card).move_to(&lab.hosts.left, name);
            lab.hosts.left.add_address(name, address);
        }
        carries(&lab, CARDS.map(|(name, ..)| json!({"af-xdp": {"interface": name}})));
    });
}
