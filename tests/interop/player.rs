//! The player of a life: sends its messages and carries out its actions.

use fastlane_tests::Host;

use crate::endpoints::{Arrival, DOWNLINK, DataNetwork, Gnb, Inner, UPLINK};
use crate::life::{Action, Direction, DownlinkFlow, Life, Step, Uplink};
use crate::namespaces::Site;
use crate::recorded_smf::Smf;

/// UDP port in the data network where the flow does not matter.
const PORT: u16 = 9;

/// SMF, gNB and data network around a UPF, in the course of a life.
pub(crate) struct Player<'a> {
    smf: Smf,
    gnb: Gnb,
    data: DataNetwork<'a>,
    uplink: Uplink,
    /// Packet that the UPF holds.
    held: Option<Inner>,
    /// Fewest and most downlink data reports so far.
    reports: [usize; 2],
    /// Number of packets sent, which makes each of them different.
    sent: usize,
}

impl<'a> Player<'a> {
    pub(crate) fn new(site: &'a Site) -> Self {
        let access: &Host = site.access();
        let (smf, gnb) = (Smf::new(access), Gnb::new(access));
        let data = DataNetwork::new(site.data());
        Self { smf, gnb, data, uplink: Uplink::Pdr(1), held: None, reports: [0; 2], sent: 0 }
    }

    /// Plays a life to its end.
    #[track_caller]
    pub(crate) fn play(&mut self, life: &Life) {
        for step in &life.steps {
            match step {
                Step::Uplink(uplink) => self.uplink = *uplink,
                Step::Request(name, parts) => {
                    eprintln!("  > {name}");
                    self.smf.request(name, parts);
                }
                Step::Action(action) => {
                    eprintln!("  @ {action:x?}");
                    self.act(life, *action);
                }
            }
        }
        assert_eq!(self.gnb.rest(), [], "packets that no step asks for");
        let [fewest, most] = self.reports;
        assert!((fewest..=most).contains(&self.smf.reports), "{} reports", self.smf.reports);
    }

    fn text(&mut self, what: &str) -> String {
        self.sent += 1;
        format!("{what} {}", self.sent)
    }

    fn act(&mut self, life: &Life, action: Action) {
        match action {
            Action::Data { down, uplink_qfi, port, uplink } => {
                let port = port.unwrap_or(PORT);
                let request = Inner::uplink(life.ue, port, &self.text("request"));
                let answer = Inner::downlink(life.ue, port, &self.text("answer"));
                let teid = self.smf.teid(uplink.unwrap_or(self.uplink));
                let send = || self.gnb.send(teid, UPLINK, uplink_qfi, &request);
                self.data.exchange(&request, &answer, send);
                // What was held leaves before anything else.
                if let Some(held) = self.held.take() {
                    self.gnb.expect(DownlinkFlow { qfi: None, ..down }, &held);
                }
                self.gnb.expect(down, &answer);
            }
            Action::Held { is_optional } => {
                let held = Inner::downlink(life.ue, PORT, &self.text("held"));
                self.data.send(&held);
                self.held = Some(held);
                self.reports[0] += usize::from(!is_optional);
                self.reports[1] += 1;
                self.smf.wait_for_reports(self.reports[0]);
                self.gnb.assert_quiet();
            }
            Action::Buffered(teid) => {
                let held = self.held.take().expect("a packet is held");
                self.gnb.expect(DownlinkFlow { teid, qfi: None }, &held);
            }
            Action::EndMarker(teid) => {
                assert_eq!(self.gnb.receive(), Arrival::EndMarker(teid));
            }
            Action::Relay { into, out, direction } => {
                let text = self.text("relayed");
                let (pdu_type, inner) = match direction {
                    Direction::Uplink => (UPLINK, Inner::uplink(life.ue, PORT, &text)),
                    Direction::Downlink => (DOWNLINK, Inner::downlink(life.ue, PORT, &text)),
                };
                self.gnb.send(into, pdu_type, out.qfi.unwrap_or(1), &inner);
                self.gnb.expect(out, &inner);
            }
            Action::Indirect(teid) => {
                // A source gNB forwards what it has of the user as downlink packets (TS 38.300,
                // 9.2.3.2). Some gNBs mark them as uplink, as all others that they send to a UPF.
                for pdu_type in [DOWNLINK, UPLINK] {
                    let inner = Inner::downlink(life.ue, PORT, &self.text("forwarded"));
                    self.gnb.send(self.smf.last_teid(), pdu_type, 1, &inner);
                    self.gnb.expect(DownlinkFlow { teid, qfi: None }, &inner);
                }
            }
        }
    }
}
