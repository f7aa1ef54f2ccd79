//! Rules of a session as its SMF has asked for them, and the fate of a user's packet by them: a
//! small reading of TS 29.244 of its own, which shares nothing with the UPF but the codec.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fastlane_pfcp::ie::{
    ApplyAction, FTeid, FarId, OuterHeaderCreation, PdrId, Precedence, SdfFilter, SourceInterface,
};
use fastlane_pfcp::{Group, IeType, Message, MessageType};

use crate::life::Direction;
use crate::user_packet::UserPacket;
use crate::volumes::Flow;

/// Fate of a packet by the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It reaches the data network.
    Core(Flow),
    /// It reaches the access network in this tunnel.
    Tunnel(u32, Flow),
    /// It is held. The flag says whether the SMF wants to know of the first one.
    Held(bool),
    /// It is dropped.
    Dropped,
}

/// Flow description of an SDF filter, as far as the recorded ones go: UDP and any protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FlowDescription {
    is_udp: bool,
    from: Option<IpAddr>,
    ports: Option<(u16, u16)>,
}

impl FlowDescription {
    /// Parses `permit out PROTOCOL from ADDRESS [PORTS] to assigned`. The remote end is behind
    /// "from", in both directions.
    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let ["permit", "out", protocol, "from", from, rest @ ..] = &words[..] else {
            panic!("a recorded flow description: {text}")
        };
        let ports = match rest {
            ["to", "assigned"] => None,
            [ports, "to", "assigned"] => {
                let (first, last) = ports.split_once('-').unwrap_or((*ports, *ports));
                Some((first.parse().expect("a port"), last.parse().expect("a port")))
            }
            _ => panic!("a recorded flow description: {text}"),
        };
        let from = from.split('/').next().filter(|from| *from != "any");
        let from = from.map(|from| from.parse().expect("an address"));
        Self { is_udp: ["ip", "17", "udp"].contains(protocol), from, ports }
    }

    fn matches(&self, remote: IpAddr, port: u16) -> bool {
        self.is_udp
            && self.from.is_none_or(|from| from == remote)
            && self.ports.is_none_or(|(first, last)| (first..=last).contains(&port))
    }
}

#[derive(Clone, Debug)]
struct Pdr {
    flow: Flow,
    precedence: u32,
    source: SourceInterface,
    teid: Option<u32>,
    filters: Vec<FlowDescription>,
    far: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Far {
    action: ApplyAction,
    tunnel: Option<u32>,
}

/// Rules of a session.
#[derive(Debug, Default)]
pub(crate) struct RuleModel {
    pdrs: BTreeMap<u16, Pdr>,
    fars: BTreeMap<u32, Far>,
    /// Flow descriptions by SDF Filter ID.
    filters: BTreeMap<u32, FlowDescription>,
}

impl RuleModel {
    /// Applies a request that was accepted. `teids` are those that the UPF gave, by PDR.
    pub(crate) fn apply(&mut self, request: &Message<'_>, teids: &BTreeMap<u16, u32>) {
        let group = request.group();
        let flow = match request.header.message_type {
            MessageType::SESSION_ESTABLISHMENT_REQUEST => Flow::Default,
            MessageType::SESSION_MODIFICATION_REQUEST => Flow::Added,
            MessageType::SESSION_DELETION_REQUEST => return *self = Self::default(),
            _ => return,
        };
        for it in group.groups(IeType::REMOVE_PDR) {
            self.pdrs.remove(&id::<PdrId>(it).0);
        }
        for it in group.groups(IeType::REMOVE_FAR) {
            self.fars.remove(&id::<FarId>(it).0);
        }
        for (kind, parameters) in [
            (IeType::CREATE_FAR, IeType::FORWARDING_PARAMETERS),
            (IeType::UPDATE_FAR, IeType::UPDATE_FORWARDING_PARAMETERS),
        ] {
            for it in group.groups(kind) {
                // SD-Core has the type of a creation in an update.
                let parameters = it.group(parameters).or(it.group(IeType::FORWARDING_PARAMETERS));
                let far = self.fars.entry(id::<FarId>(it).0).or_default();
                far.action = it.find().expect("an action").unwrap_or(far.action);
                let outer = parameters.and_then(|it| it.find::<OuterHeaderCreation>().ok()?);
                far.tunnel = outer.map_or(far.tunnel, |outer| outer.teid);
            }
        }
        let pdis = [IeType::CREATE_PDR, IeType::UPDATE_PDR].map(|kind| group.groups(kind));
        for pdi in pdis.into_iter().flatten().filter_map(|it| it.group(IeType::PDI)) {
            self.learn_filters(pdi);
        }
        for it in group.groups(IeType::CREATE_PDR) {
            let pdr = Pdr {
                flow,
                precedence: it.find::<Precedence>().expect("a precedence").map_or(0, |it| it.0),
                source: SourceInterface::CORE,
                teid: None,
                filters: Vec::new(),
                far: 0,
            };
            self.pdrs.insert(id::<PdrId>(it).0, pdr);
            self.change_pdr(it, teids);
        }
        group.groups(IeType::UPDATE_PDR).for_each(|it| self.change_pdr(it, teids));
    }

    fn learn_filters(&mut self, pdi: Group<'_>) {
        for filter in pdi.all::<SdfFilter<'_>>() {
            let SdfFilter { flow_description, filter_id, .. } = filter.expect("a filter");
            if let (Some(text), Some(id)) = (flow_description, filter_id) {
                self.filters.insert(id, description(text));
            }
        }
    }

    /// Applies the elements of a Create or Update PDR.
    fn change_pdr(&mut self, it: Group<'_>, teids: &BTreeMap<u16, u32>) {
        let number = id::<PdrId>(it).0;
        let pdr = self.pdrs.get_mut(&number).expect("the PDR was created");
        pdr.far = it.find::<FarId>().expect("a FAR ID").map_or(pdr.far, |far| far.0);
        let Some(pdi) = it.group(IeType::PDI) else { return };
        pdr.source = pdi.find().expect("a source").unwrap_or(pdr.source);
        // The F-TEID stays where a PDI of an update leaves it out.
        if let Some(tunnel) = pdi.find::<FTeid>().expect("an F-TEID") {
            let chosen = || *teids.get(&number).expect("the UPF gave a TEID");
            pdr.teid = Some(if tunnel.is_choose() { chosen() } else { tunnel.teid });
        }
        let known = |filter: SdfFilter<'_>| match (filter.flow_description, filter.filter_id) {
            (Some(text), _) => description(text),
            (None, id) => self.filters[&id.expect("a filter has a text or an ID")].clone(),
        };
        pdr.filters = pdi.all().map(|filter| known(filter.expect("a filter"))).collect();
    }

    /// Returns what must become of a packet; an uplink one comes in a tunnel.
    pub(crate) fn fate(&self, direction: Direction, teid: u32, packet: &UserPacket) -> Fate {
        let (remote, is_here): (_, &dyn Fn(&Pdr) -> bool) = match direction {
            Direction::Uplink => (packet.to, &|pdr| pdr.teid == Some(teid)),
            Direction::Downlink => (packet.from, &|pdr| {
                [SourceInterface::CORE, SourceInterface::SGI_LAN].contains(&pdr.source)
                    && pdr.teid.is_none()
            }),
        };
        let is_its = |pdr: &&Pdr| {
            let mut filters = pdr.filters.iter();
            let is_any = pdr.filters.is_empty();
            is_here(pdr) && (is_any || filters.any(|it| it.matches(remote.ip(), remote.port())))
        };
        let found = self.pdrs.values().filter(is_its).min_by_key(|pdr| pdr.precedence);
        let Some((pdr, far)) = found.and_then(|pdr| Some((pdr, self.fars.get(&pdr.far)?))) else {
            return Fate::Dropped;
        };
        match (direction, far.tunnel) {
            _ if far.action.has(ApplyAction::BUFF) => Fate::Held(far.action.has(ApplyAction::NOCP)),
            _ if !far.action.has(ApplyAction::FORW) => Fate::Dropped,
            (Direction::Uplink, None) => Fate::Core(pdr.flow),
            (_, Some(tunnel)) => Fate::Tunnel(tunnel, pdr.flow),
            // No tunnel of a gNB is known yet.
            (Direction::Downlink, None) => Fate::Dropped,
        }
    }
}

/// Returns the mandatory number of a rule.
fn id<'a, T: fastlane_pfcp::Ie<'a>>(rule: Group<'a>) -> T {
    rule.need().expect("a rule has a number")
}

fn description(text: &[u8]) -> FlowDescription {
    FlowDescription::parse(std::str::from_utf8(text).expect("text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_descriptions_match_the_remote_end() {
        let far: IpAddr = "10.6.0.2".parse().unwrap();
        for (text, port, expected) in [
            ("permit out ip from any to assigned", 9, true),
            ("permit out 17 from 10.6.0.2 5000-5010 to assigned", 5005, true),
            ("permit out 17 from 10.6.0.2 5000-5010 to assigned", 5011, false),
            ("permit out udp from 10.6.0.2 6000 to assigned", 6000, true),
            ("permit out 6 from 10.6.0.2 80 to assigned", 80, false),
            ("permit out 17 from 10.6.0.3 to assigned", 9, false),
            ("permit out 58 from ff02::2/128 to assigned", 9, false),
        ] {
            let found = FlowDescription::parse(text).matches(far, port);
            assert_eq!(found, expected, "{text}, {port}");
        }
    }
}
