//! The player of a life: sends its messages and carries out its actions.

use std::net::IpAddr;
use std::ops::Range;

use fastlane_tests::Host;

use crate::endpoints::{DOWNLINK, DataNetwork, Gnb, UPLINK};
use crate::life::{Action, Direction, DownlinkFlow, Life, PORT, Step, Uplink};
use crate::namespaces::Site;
use crate::recorded_smf::RecordedSmf;
use crate::rule_model::Fate;
use crate::side_by_side::Placement;
use crate::user_packet::UserPacket;
use crate::volumes::Flow;

/// SMF, gNB and data network around a UPF, in the course of a life.
pub(crate) struct Player<'a> {
    pub(crate) smf: RecordedSmf,
    gnb: Gnb,
    data: DataNetwork<'a>,
    uplink: Uplink,
    /// TEID of the UPF in which the last uplink packet was sent.
    last_teid: Option<u32>,
    /// Packets that the UPF holds, in their order.
    held: Vec<UserPacket>,
    /// Tunnel in which held packets have left, before the life asks for it.
    released: Option<u32>,
    /// The packets that are held have caused a report.
    is_reported: bool,
    /// Fewest and most downlink data reports so far.
    reports: [usize; 2],
    /// Number of packets sent, which makes each of them different.
    sent: usize,
}

impl<'a> Player<'a> {
    pub(crate) fn new(site: &'a Site, placement: &Placement) -> Self {
        let access: &Host = site.access();
        let smf = RecordedSmf::new(access, placement.smf);
        let gnb = Gnb::new(access, placement.gnb);
        let data = DataNetwork::new(site.data());
        Self {
            smf,
            gnb,
            data,
            uplink: Uplink::Pdr(1),
            last_teid: None,
            held: Vec::new(),
            released: None,
            is_reported: false,
            reports: [0; 2],
            sent: 0,
        }
    }

    /// Returns the gNB.
    pub(crate) const fn gnb(&self) -> &Gnb {
        &self.gnb
    }

    /// Plays a life to its end. Returns the SMF, which still has its association.
    #[track_caller]
    pub(crate) fn play(mut self, life: &Life) -> RecordedSmf {
        self.play_steps(life, 0..life.steps.len());
        assert_eq!(self.gnb.rest(), [], "packets that no step asks for");
        let [fewest, most] = self.reports;
        assert!((fewest..=most).contains(&self.smf.reports), "{} reports", self.smf.reports);
        self.smf
    }

    /// Plays steps of a life.
    #[track_caller]
    pub(crate) fn play_steps(&mut self, life: &Life, steps: Range<usize>) {
        for step in &life.steps[steps] {
            match step {
                Step::Uplink(uplink) => self.uplink = *uplink,
                Step::Request(name, parts) => {
                    self.probe(life);
                    eprintln!("  > {name}");
                    self.smf.request(name, parts);
                    self.probe(life);
                }
                Step::Action(action) => {
                    eprintln!("  @ {action:x?}");
                    self.act(life, *action);
                }
            }
        }
    }

    fn text(&mut self, what: &str) -> String {
        self.sent += 1;
        format!("{what} {}", self.sent)
    }

    fn act(&mut self, life: &Life, action: Action) {
        match action {
            Action::Data { down, uplink_qfi, port, uplink } => {
                let teid = self.smf.teid(uplink.unwrap_or(self.uplink));
                for ue in &life.ue {
                    self.exchange(*ue, teid, uplink_qfi, port, down);
                }
            }
            Action::Held { is_optional } => {
                let held = self.downlink_packet(life.ue[0], "held");
                self.hold(held, !is_optional);
            }
            Action::Buffered(teid) => {
                self.expect_held(teid);
                assert_eq!(self.released.take(), Some(teid), "tunnel of held packets");
            }
            Action::EndMarker(teid) => self.gnb.expect_end(teid),
            Action::Relay { into, out, direction } => {
                for ue in &life.ue {
                    let (pdu_type, inner, octets) = match direction {
                        Direction::Uplink => {
                            let inner = self.uplink_packet(*ue, PORT, "relayed");
                            let octets = [inner.length() as u64, 0];
                            (UPLINK, inner, octets)
                        }
                        Direction::Downlink => {
                            let inner = self.downlink_packet(*ue, "relayed");
                            let octets = [0, inner.length() as u64];
                            (DOWNLINK, inner, octets)
                        }
                    };
                    self.gnb.send(into, pdu_type, out.qfi.unwrap_or(1), &inner);
                    self.gnb.expect(out, &inner);
                    self.smf.volumes.count(Flow::Default, octets);
                }
            }
            Action::Indirect(teid) => {
                // A source gNB forwards what it has of the user as downlink packets (TS 38.300,
                // 9.2.3.2). Some gNBs mark them as uplink, as all others that they send to a UPF.
                for pdu_type in [DOWNLINK, UPLINK] {
                    let inner = self.downlink_packet(life.ue[0], "forwarded");
                    self.gnb.send(self.smf.last_teid(), pdu_type, 1, &inner);
                    self.gnb.expect(DownlinkFlow { teid, qfi: None }, &inner);
                }
            }
        }
    }

    fn uplink_packet(&mut self, ue: IpAddr, port: u16, what: &str) -> UserPacket {
        UserPacket::uplink(ue, DataNetwork::endpoint(ue, port), &self.text(what))
    }

    fn downlink_packet(&mut self, ue: IpAddr, what: &str) -> UserPacket {
        UserPacket::downlink(ue, DataNetwork::endpoint(ue, PORT), &self.text(what))
    }

    /// Sends a packet that is held, and waits for its report if there must be one.
    fn hold(&mut self, packet: UserPacket, is_reported: bool) {
        self.data.send(&packet);
        self.held.push(packet);
        if !std::mem::replace(&mut self.is_reported, true) {
            self.reports[0] += usize::from(is_reported);
            self.reports[1] += 1;
        }
        self.smf.wait_for_reports(self.reports[0]);
        self.gnb.assert_no_packet();
    }

    /// Sends packets of each user and flow of a life in both directions, as between any two
    /// requests, and expects what the rules say.
    fn probe(&mut self, life: &Life) {
        for ue in life.ue.clone() {
            for port in life.ports() {
                self.probe_downlink(life, ue, port);
                self.probe_uplink(ue, port);
            }
        }
    }

    fn probe_uplink(&mut self, ue: IpAddr, port: u16) {
        let known = self.smf.known_teid(self.uplink);
        // The tunnel of the past must be of no use any more.
        let Some(teid) = known.or(self.last_teid) else { return };
        let packet = self.uplink_packet(ue, port, "probe");
        match self.smf.rules.fate(Direction::Uplink, teid, &packet) {
            Fate::Core(flow) => {
                self.last_teid = Some(teid);
                self.data.expect(&packet, || self.gnb.send(teid, UPLINK, 1, &packet));
                self.smf.volumes.count(flow, [packet.length() as u64, 0]);
            }
            Fate::Dropped => {
                self.data.assert_dropped(&packet, || self.gnb.send_in_vain(teid, &packet));
            }
            fate => panic!("no recorded SMF has such rules: {fate:?}"),
        }
    }

    fn probe_downlink(&mut self, life: &Life, ue: IpAddr, port: u16) {
        let from = DataNetwork::endpoint(ue, port);
        let packet = UserPacket::downlink(ue, from, &self.text("probe"));
        match self.smf.rules.fate(Direction::Downlink, 0, &packet) {
            Fate::Tunnel(teid, flow) => {
                self.expect_held(teid);
                self.data.send(&packet);
                self.gnb.expect(DownlinkFlow { teid, qfi: None }, &packet);
                self.smf.volumes.count(flow, [0, packet.length() as u64]);
            }
            // Each PDR reports, so one flow is enough.
            Fate::Held(is_reported) if (ue, port) == (life.ue[0], PORT) => {
                self.hold(packet, is_reported);
            }
            Fate::Held(_) => {}
            Fate::Dropped => {
                self.held.clear();
                self.is_reported = false;
                self.data.send(&packet);
                self.gnb.assert_no_packet();
            }
            Fate::Core(_) => unreachable!("a downlink packet"),
        }
    }

    /// Sends an uplink packet and expects it, what was held, and the answer.
    fn exchange(
        &mut self,
        ue: IpAddr,
        teid: u32,
        uplink_qfi: u8,
        port: Option<u16>,
        down: DownlinkFlow,
    ) {
        let flow = if port.is_some() { Flow::Added } else { Flow::Default };
        let request = self.uplink_packet(ue, port.unwrap_or(PORT), "request");
        let answer = UserPacket::downlink(ue, request.to, &self.text("answer"));
        self.last_teid = Some(teid);
        let send = || self.gnb.send(teid, UPLINK, uplink_qfi, &request);
        self.data.exchange(&request, &answer, send);
        self.expect_held(down.teid);
        self.gnb.expect(down, &answer);
        self.smf.volumes.count(flow, [request.length() as u64, answer.length() as u64]);
    }

    /// Expects the packets that the UPF holds, if there are any: they leave before anything else.
    fn expect_held(&mut self, teid: u32) {
        self.is_reported = false;
        for held in std::mem::take(&mut self.held) {
            self.gnb.expect(DownlinkFlow { teid, qfi: None }, &held);
            self.smf.volumes.count(Flow::Default, [0, held.length() as u64]);
            self.released = Some(teid);
        }
    }
}
