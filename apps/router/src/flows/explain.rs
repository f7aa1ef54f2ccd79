//! The command `router explain`: tells who forwards the packets of a connection, and why.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use fastlane::mirror::conntrack::{Connection, ConnectionTuple, ConntrackListener, Groups};
use fastlane::mirror::flows::{FlowPolicy, FlowStatus, Suitability};
use fastlane::mirror::ipsec::PolicyReader;
use fastlane::mirror::packet_rules::per_packet_rule;
use fastlane::{now, slow};

use super::list::{FlowList, FlowTierName, ends};

/// Begin of a line about a flow that found no slot (`offload_tier_full`).
const NO_ROOM: &str = "linux: the table of the kernel tier has no room for it (on ports of both \
                       tiers the lanes forward it)";

/// Reason why Linux has a flow whose rules were judged for another exit (`linux_flow_exit`).
const REROUTED: &str = "its route leads to another interface than its first one";

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    /// Transmission Control Protocol.
    Tcp = 6,
    /// User Datagram Protocol.
    Udp = 17,
}

/// Arguments of `router explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArguments {
    /// The router: its name, or the path of its session.
    router: String,
    /// The protocol.
    protocol: Protocol,
    /// Source address and port of packets as they arrive: 10.0.0.1:4000 or [2001:db8::1]:4000
    source: SocketAddr,
    /// Destination address and port.
    destination: SocketAddr,
    /// Zone of the connection tracking.
    #[arg(long, default_value_t = 0)]
    zone: u16,
}

impl ExplainArguments {
    /// Returns a line about the tier that forwards and one about Linux.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub fn run(&self) -> Result<String, String> {
        if self.source.is_ipv4() != self.destination.is_ipv4() {
            return Err("both addresses must be of one IP version".to_owned());
        }
        let tuple = ConnectionTuple {
            source: self.source.ip(),
            destination: self.destination.ip(),
            protocol: self.protocol as u8,
            ports: [self.source.port(), self.destination.port()],
        };
        let slow = slow::attach(&self.router).map_err(|error| error.to_string())?;
        let list = FlowList::attach(&slow)?;
        let status = list.status();
        let tracked = look_up(&tuple, self.zone)?;
        let is_served = status.is_some_and(|status| status.permits(now()));
        let mut lines = Vec::new();
        match list.find(&tuple, self.zone) {
            Some((flow, direction)) if flow.closing[direction] => {
                lines.push(format!("linux: it is closing: {flow}"));
            }
            Some((flow, direction)) if flow.rerouted[direction] => {
                lines.push(format!("linux: {REROUTED}: {flow}"));
            }
            Some((flow, _)) if is_served => {
                let tier = list.tier_of(&flow).map_or(NO_ROOM, FlowTierName::name);
                lines.push(format!("{tier}: {flow}"));
            }
            Some((flow, _)) => lines.push(format!("linux: {}: {flow}", not_served(status))),
            None if !is_served => lines.push(format!("linux: {}", not_served(status))),
            None => lines.push(format!("linux: {}", reason(status, tracked.as_ref())?)),
        }
        if let Some(connection) = &tracked {
            lines.push(describe(connection));
        }
        Ok(lines.join("\n") + "\n")
    }
}

fn look_up(tuple: &ConnectionTuple, zone: u16) -> Result<Option<Connection>, String> {
    let groups = Groups { new: false, rules: false };
    let listener = ConntrackListener::open(groups, 4096);
    let found = listener.and_then(|mut listener| listener.look_up(tuple, zone));
    found.map_err(|error| {
        format!("the connections of Linux cannot be read ({error}): run it as root on the router")
    })
}

/// Returns the reason why lanes leave all flows to Linux.
fn not_served(status: Option<FlowStatus>) -> String {
    let Some(status) = status else { return "`router offload` has not run yet".to_owned() };
    if now().saturating_sub(status.heartbeat) > status.grace {
        return "`router offload` does not run".to_owned();
    }
    let (FlowStatus { mark, mask, .. }, one_way) = (status, status.one_way != 0);
    match per_packet_rule(&FlowPolicy { mark, mask, one_way }) {
        Ok(Some(rule)) => format!("{rule} acts on each packet of established connections"),
        _ => "the rules of Linux judge all connections again".to_owned(),
    }
}

/// Returns the reason why a connection is not in the table.
fn reason(
    status: Option<FlowStatus>,
    connection: Option<&Connection>,
) -> Result<&'static str, String> {
    let Some(connection) = connection else { return Ok("it tracks no such connection") };
    let reader = PolicyReader::open();
    let reader = reader.map_err(|error| format!("the IPsec policies cannot be read: {error}"))?;
    Ok(match status.map(|status| status.policy().judge(connection, reader.policies())) {
        Some(Suitability::Refused(refusal)) => refusal.explanation(),
        _ => {
            "it may be fast, but is not in the table: the table is full, or Linux has not \
             reported it since `router offload` runs"
        }
    })
}

fn describe(connection: &Connection) -> String {
    let Connection { original, reply, mark, timeout, tcp, .. } = connection;
    let state = tcp.map_or("", |tcp| tcp.state.name());
    let timeout = timeout.unwrap_or(0);
    let words = format!("tracked: {}, replies {}", ends(original), ends(reply));
    format!("{words}, mark {mark:#x}, {timeout} s left {state}").trim_end().to_owned()
}
