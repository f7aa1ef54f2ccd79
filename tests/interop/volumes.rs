//! Octets that usage reports must state: those of the packets whose PDRs have the URR.

use std::collections::BTreeMap;

use fastlane_pfcp::ie::{SourceInterface, UrrId};
use fastlane_pfcp::{Group, IeType, Message, MessageType};

/// Octets, uplink and downlink.
pub(crate) type Octets = [u64; 2];

/// Flow of a user's packets, as far as URRs tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Flow that is there from the establishment.
    Default,
    /// Flow that a modification has added. SMFs give it URRs of its own.
    Added,
}

/// Octets of a URR, with the packets that it counts.
struct UrrCount {
    flow: Flow,
    /// True if a PDR of the direction has the URR.
    directions: [bool; 2],
    octets: Octets,
}

/// URRs of a session with the octets that they have to report.
#[derive(Default)]
pub(crate) struct Volumes {
    urrs: BTreeMap<u32, UrrCount>,
}

impl Volumes {
    /// Learns the URRs of a request, and the directions of the PDRs that have them.
    pub(crate) fn learn(&mut self, request: &Message<'_>) {
        let is_first = request.header.message_type == MessageType::SESSION_ESTABLISHMENT_REQUEST;
        let flow = if is_first { Flow::Default } else { Flow::Added };
        for urr in request.group().groups(IeType::CREATE_URR) {
            let id = urr.need::<UrrId>().expect("a URR ID").0;
            self.urrs.insert(id, UrrCount { flow, directions: [false; 2], octets: [0; 2] });
        }
        for pdr in request.group().groups(IeType::CREATE_PDR) {
            self.learn_pdr(pdr);
        }
    }

    fn learn_pdr(&mut self, pdr: Group<'_>) {
        let pdi = pdr.group(IeType::PDI).expect("a PDI");
        let direction = match pdi.need::<SourceInterface>().expect("a source interface") {
            SourceInterface::ACCESS => 0,
            SourceInterface::CORE | SourceInterface::SGI_LAN => 1,
            _ => return,
        };
        for id in pdr.all::<UrrId>() {
            let urr = self.urrs.get_mut(&id.expect("a URR ID").0).expect("the URR was created");
            urr.directions[direction] = true;
        }
    }

    /// Counts a packet that was forwarded.
    pub(crate) fn count(&mut self, flow: Flow, packet: Octets) {
        for urr in self.urrs.values_mut().filter(|urr| urr.flow == flow) {
            for direction in [0, 1].into_iter().filter(|index| urr.directions[*index]) {
                urr.octets[direction] += packet[direction];
            }
        }
    }

    /// Returns the octets that the URRs have to report in all.
    pub(crate) fn expected(&self) -> BTreeMap<u32, Octets> {
        self.urrs.iter().map(|(id, urr)| (*id, urr.octets)).collect()
    }
}
