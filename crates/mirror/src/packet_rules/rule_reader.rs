//! Dumps of chains, sets and rules, and the search in them.

use std::collections::BTreeSet;
use std::io;

use fastlane_netlink::{Request, attribute, text};
use rustix::io::Errno;

use super::PerPacketRule;
use super::chain_walk::{Chains, HookKind};
use super::nft_rule::{ChainName, NftRule, NftSets, SetName, be32};
use crate::flows::FlowPolicy;
use crate::message::Header;
use crate::socket::Socket;

/// `NFNL_SUBSYS_NFTABLES` and the messages `NFT_MSG_*` about chains, rules and sets.
const TABLES: u16 = 10 << 8;
const NEW_CHAIN: u16 = TABLES | 3;
const GET_CHAINS: u16 = TABLES | 4;
const NEW_RULE: u16 = TABLES | 6;
const GET_RULES: u16 = TABLES | 7;
const NEW_SET: u16 = TABLES | 9;
const GET_SETS: u16 = TABLES | 10;
const NEW_ELEMENTS: u16 = TABLES | 12;
const GET_ELEMENTS: u16 = TABLES | 13;
/// `struct nfgenmsg`: family, version, resource id.
const FAMILY_HEADER: usize = 4;
/// Families `NFPROTO_ARP` and `NFPROTO_BRIDGE`, whose chains routed packets do not pass.
const OTHERS: [u8; 2] = [3, 7];
/// Family `NFPROTO_NETDEV`, whose hooks have numbers of their own.
const NETDEV: u8 = 5;
/// Attributes of a chain (`NFTA_CHAIN_*`), and of its hook (`NFTA_HOOK_HOOKNUM`).
const TABLE: u16 = 1;
const NAME: u16 = 3;
const HOOK: u16 = 4;
const KIND: u16 = 7;
const NUMBER: u16 = 1;
/// Hooks `NF_INET_LOCAL_IN`, `NF_INET_LOCAL_OUT` and `NF_INET_INGRESS`.
const LOCAL: [u32; 2] = [1, 3];
const INGRESS: u32 = 5;
/// Attributes that select the elements of a set (`NFTA_SET_ELEM_LIST_*`).
const TABLE_OF_SET: u16 = 1;
const SET: u16 = 2;
/// Maximum number of attempts of a dump that is interrupted by changes.
const ATTEMPTS: usize = 16;
/// Answers of a kernel without nftables.
const ABSENT: [Errno; 3] = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOENT];

/// Returns the first rule that acts on each packet of established connections, in the network
/// namespace of the calling thread. If `policy` is such that connections without a reply may be
/// fast, all their packets are of new connections to Linux.
///
/// # Errors
/// Returns an error if the kernel refuses the dump, for example without CAP_NET_ADMIN, or if the
/// rules do not rest.
pub fn per_packet_rule(policy: &FlowPolicy) -> io::Result<Option<PerPacketRule>> {
    let socket = Socket::of_netfilter_requests();
    let socket = match socket {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT) => {
            return Ok(None);
        }
        socket => socket?,
    };
    let mut dumper = Dumper { socket, sequence: 0 };
    // Maps of which the elements must be known before the rules that refer to them.
    let mut maps = BTreeSet::new();
    for _ in 0..ATTEMPTS {
        let mut search = RuleSearch::new(*policy);
        let is_whole = dumper.dump(GET_CHAINS, &mut search)?
            && dumper.dump(GET_SETS, &mut search)?
            && dumper.dump_elements(&maps, &mut search)?
            && dumper.dump(GET_RULES, &mut search)?;
        if is_whole && search.unknown_maps.is_empty() {
            return Ok(search.found());
        }
        maps.append(&mut search.unknown_maps);
    }
    Err(io::Error::other("the rules of nftables change all the time"))
}

/// Search for a rule that acts on each packet of connections that may be fast.
#[derive(Clone, Debug)]
pub(crate) struct RuleSearch {
    /// Connections that may be fast.
    policy: FlowPolicy,
    /// Chains that their packets may pass.
    chains: Chains,
    /// Sets, of which rules may be about each packet.
    sets: NftSets,
    /// Maps of verdicts that rules refer to, of which the elements are unknown.
    unknown_maps: BTreeSet<SetName>,
}

impl RuleSearch {
    /// Creates a search.
    pub(crate) fn new(policy: FlowPolicy) -> Self {
        let (chains, sets, unknown_maps) = Default::default();
        Self { policy, chains, sets, unknown_maps }
    }

    /// Returns the first rule that acts on each packet, of those that were taken.
    pub(crate) fn found(&self) -> Option<PerPacketRule> {
        self.chains.find()
    }

    /// Takes a message of a dump of chains, sets or rules.
    pub(crate) fn take(&mut self, header: Header, body: &[u8]) {
        let Some((family, attributes)) = body.split_first() else { return };
        let attributes = attributes.get(FAMILY_HEADER - 1..).unwrap_or_default();
        if OTHERS.contains(family) {
            return;
        }
        match header.kind() {
            NEW_CHAIN => self.take_chain(*family, attributes),
            NEW_SET => self.sets.take(*family, attributes),
            NEW_ELEMENTS => self.sets.take_elements(*family, attributes),
            NEW_RULE => self.take_rule(*family, attributes),
            _ => {}
        }
    }

    /// Takes a chain. Forwarded packets do not pass those for packets for or from this host, and
    /// only the first packet of a connection passes those for addresses.
    fn take_chain(&mut self, family: u8, chain: &[u8]) {
        let name = |kind| attribute(chain, kind).map(text);
        let hook = attribute(chain, HOOK).and_then(|it| attribute(it, NUMBER)).and_then(be32);
        let (Some(hook), Some(table), Some(chain)) = (hook, name(TABLE), name(NAME)) else {
            return;
        };
        let is_of_device = family == NETDEV || hook == INGRESS;
        let is_nat = name(KIND).is_some_and(|kind| kind == "nat");
        if !is_of_device && (LOCAL.contains(&hook) || is_nat) {
            return;
        }
        let kind = if is_of_device { HookKind::Device } else { HookKind::Way };
        self.chains.hooks.push((ChainName { family, table, chain }, kind));
    }

    fn take_rule(&mut self, family: u8, rule: &[u8]) {
        let rule = NftRule::read(family, rule, &self.sets, &self.policy);
        let Some(mut rule) = rule else { return };
        if let Some(set) = rule.unknown_map.take() {
            self.unknown_maps.insert(SetName { family, table: rule.place.table.clone(), set });
        }
        self.chains.push(rule);
    }
}

/// Socket for dumps, which are numbered.
struct Dumper {
    socket: Socket,
    sequence: u32,
}

impl Dumper {
    /// Dumps all objects of a kind. Returns false if changes interrupted it.
    fn dump(&mut self, kind: u16, search: &mut RuleSearch) -> io::Result<bool> {
        let family = libc::AF_UNSPEC as u8;
        self.take(Request::new(kind, libc::NLM_F_DUMP, &[family, 0, 0, 0]), search)
    }

    /// Dumps the elements of maps of verdicts. Returns false if changes interrupted it.
    fn dump_elements(
        &mut self,
        maps: &BTreeSet<SetName>,
        search: &mut RuleSearch,
    ) -> io::Result<bool> {
        for name in maps {
            search.sets.expect_elements(name);
            let SetName { family, table, set } = name;
            let text = |text: &str| [text.as_bytes(), &[0]].concat();
            let request = Request::new(GET_ELEMENTS, libc::NLM_F_DUMP, &[*family, 0, 0, 0])
                .attribute(TABLE_OF_SET, &text(table))
                .attribute(SET, &text(set));
            if !self.take(request, search)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the answers to a request. A kernel without nftables has none.
    fn take(&mut self, request: Request, search: &mut RuleSearch) -> io::Result<bool> {
        self.sequence += 1;
        let dumped = self.socket.dump(request, self.sequence, |header, body| {
            search.take(header, body);
            Ok(())
        });
        match dumped {
            Err(error) => match Errno::from_io_error(&error) {
                Some(error) if ABSENT.contains(&error) => Ok(true),
                Some(Errno::INTR | Errno::AGAIN) => Ok(false),
                _ => Err(error),
            },
            is_whole => is_whole,
        }
    }
}

#[cfg(test)]
mod tests;
