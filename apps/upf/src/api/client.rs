//! API client: `upf sessions`, `upf associations`, `upf trace`, with replies as JSON or text.

use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::api::TraceSubject;
use crate::api::view::{
    AssociationView, CapturePlan, CaptureSubject, PacketView, Page, SessionView, Trace, WayView,
};

/// Timeout of the API.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a reply in octets.
const MAX_REPLY: u64 = 16 << 20;
/// Sessions per page.
const PAGE: usize = 1000;

/// Default address of the API.
pub const API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8805);

/// Reason why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server, or no reply.
    #[error(
        "no reply from {address} ({source}); check that `upf CONFIG` runs in this network \
         namespace; if its `app.api` differs, add --api ADDRESS"
    )]
    Silent {
        /// Address of the server.
        address: SocketAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The API refused the request.
    #[error("{0}")]
    Refused(String),
    /// Another program answered.
    #[error("the server at {0} is no UPF of this release ({1}); add --api ADDRESS")]
    Strange(SocketAddr, String),
}

/// Request to the API.
#[derive(Clone, Debug)]
pub enum Request {
    /// List of associations.
    Associations,
    /// List of up to this number of sessions.
    Sessions(usize),
    /// Session with this SEID and its rules.
    Session(String),
    /// Trace of a subscriber, address or tunnel, with an optional sample packet.
    Trace(TraceSubject, Option<Packet>),
}

/// A sample packet between a UE and a remote address.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Remote address.
    pub to: IpAddr,
    /// Protocol: tcp, udp, sctp, icmp, icmpv6 or a number.
    pub protocol: Option<String>,
    /// Remote port.
    pub port: Option<u16>,
    /// UE port.
    pub user_port: Option<u16>,
    /// QoS flow that the gNB sets.
    pub qfi: Option<u8>,
}

impl Packet {
    fn query(&self) -> String {
        let Self { to, protocol, port, user_port, qfi } = self;
        let mut text = format!("&to={}", escaped(&to.to_string()));
        let of = |value: &Option<u16>| value.map(|value| value.to_string());
        let all = [
            ("protocol", protocol.as_deref().map(escaped)),
            ("port", of(port)),
            ("user_port", of(user_port)),
            ("qfi", qfi.map(|value| value.to_string())),
        ];
        for (key, value) in all {
            let Some(value) = value else { continue };
            text += &format!("&{key}={value}");
        }
        text
    }
}

/// Sends a request and returns the reply as text or JSON.
///
/// # Errors
/// If there is no reply.
pub fn ask(address: SocketAddr, ask: &Request, json: bool) -> Result<String, ClientError> {
    match ask {
        Request::Associations => {
            let all: Vec<AssociationView> = fetch(address, "/associations")?;
            Ok(if json { pretty(&all) } else { associations_text(&all) })
        }
        Request::Sessions(most) => {
            let page = pages(address, *most)?;
            Ok(if json { pretty(&page) } else { sessions_text(&page) })
        }
        Request::Session(seid) => {
            let session: SessionView = fetch(address, &format!("/sessions/{}", escaped(seid)))?;
            // A session is a tree, which JSON shows best.
            Ok(pretty(&session))
        }
        Request::Trace(who, packet) => {
            let packet = packet.as_ref().map(Packet::query).unwrap_or_default();
            let who = escaped(&who.to_string());
            let trace: Trace = fetch(address, &format!("/trace?who={who}{packet}"))?;
            Ok(if json { pretty(&trace) } else { trace_text(&trace) })
        }
    }
}

/// Returns what a capture of sessions needs.
///
/// # Errors
/// If there is no reply, or no such session.
pub fn capture_plan(
    address: SocketAddr,
    subject: &CaptureSubject,
) -> Result<CapturePlan, ClientError> {
    fetch(address, &format!("/capture?who={}", escaped(&subject.to_string())))
}

/// Fetches sessions, page by page.
fn pages(address: SocketAddr, most: usize) -> Result<Page, ClientError> {
    let mut all = Page::default();
    let mut after = String::new();
    while all.sessions.len() < most {
        let limit = PAGE.min(most - all.sessions.len());
        let page: Page = fetch(address, &format!("/sessions?limit={limit}{after}"))?;
        all.sessions.extend(page.sessions);
        (all.next, all.total) = (page.next, page.total);
        let Some(next) = page.next else { break };
        after = format!("&after={next}");
    }
    Ok(all)
}

pub(super) fn pretty(value: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Percent-encodes reserved characters (RFC 3986 clause 2.1).
pub(super) fn escaped(text: &str) -> String {
    let plain = |octet: &u8| octet.is_ascii_alphanumeric() || b"-._".contains(octet);
    let each = |octet: u8| match plain(&octet) {
        true => char::from(octet).to_string(),
        false => format!("%{octet:02X}"),
    };
    text.bytes().map(each).collect()
}

fn fetch<T: DeserializeOwned>(address: SocketAddr, path: &str) -> Result<T, ClientError> {
    fetch_by("GET", address, path)
}

/// Sends a request with a method and returns the reply.
pub(super) fn fetch_by<T: DeserializeOwned>(
    method: &str,
    address: SocketAddr,
    path: &str,
) -> Result<T, ClientError> {
    let silent = |source| ClientError::Silent { address, source };
    let answer = exchange(method, address, path).map_err(silent)?;
    let unexpected = |what: &str| ClientError::Strange(address, what.to_owned());
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| unexpected("no HTTP"))?;
    let status = head.split_whitespace().nth(1).ok_or_else(|| unexpected("no HTTP"))?;
    if status != "200" {
        let said: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        let said = said.get("error").and_then(|it| it.as_str());
        return Err(
            said.map_or_else(|| unexpected(status), |it| ClientError::Refused(it.to_owned()))
        );
    }
    serde_json::from_str(body).map_err(|error| unexpected(&error.to_string()))
}

/// Sends one HTTP/1.0 request; the reply ends with the connection.
fn exchange(method: &str, address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_REPLY).read_to_string(&mut answer)?;
    Ok(answer)
}

fn associations_text(all: &[AssociationView]) -> String {
    let mut text = row(&["node id", "address", "up", "features", "sessions"]);
    for it in all {
        let up = if it.is_up { "yes" } else { "no" };
        text += &row(&[&it.node_id, &it.address, up, &it.features, &it.sessions.to_string()]);
    }
    text
}

fn sessions_text(page: &Page) -> String {
    let mut text = row(&["seid", "subscriber", "addresses", "rules", "octets up", "octets down"]);
    for it in &page.sessions {
        let [up, _, down, _] = it.counted;
        text += &row(&[
            &it.seid,
            it.supi.as_deref().unwrap_or("-"),
            &it.addresses.join(" "),
            &it.rules.map(|count| count.to_string()).join("/"),
            &up.to_string(),
            &down.to_string(),
        ]);
    }
    // Writing into a String does not fail.
    let _ = writeln!(text, "{} of {} sessions", page.sessions.len(), page.total);
    text
}

fn trace_text(trace: &Trace) -> String {
    let mut text = String::new();
    for session in &trace.sessions {
        let row = &session.row;
        let supi = row.supi.as_deref().map_or(String::new(), |supi| format!(" of imsi-{supi}"));
        let _ = writeln!(text, "session {}{supi}: {}", row.seid, row.addresses.join(", "));
        for tunnel in &row.tunnels {
            let _ = writeln!(text, "  arrives by {tunnel}");
        }
        let [up, up_packets, down, down_packets] = row.counted;
        let _ = writeln!(
            text,
            "  counted: {up_packets} packets, {up} octets up; {down_packets} packets, {down} \
             octets down"
        );
        if session.packets.is_empty() {
            text.extend(session.ways.iter().map(way));
        }
        text.extend(session.packets.iter().map(packet));
    }
    text
}

/// Formats the decision about a sample packet.
fn packet(it: &PacketView) -> String {
    let mut text = format!("{}: {}\n", it.direction, it.packet);
    if let Some(tunnel) = &it.tunnel {
        let _ = writeln!(text, "  arrives by {tunnel}");
    }
    match &it.way {
        Some(way) => text += &self::way(&WayView { cause: it.cause.clone(), ..way.clone() }),
        None => {
            let _ = writeln!(text, "  {}: {}", it.fate, it.cause.as_deref().unwrap_or("no rule"));
        }
    }
    text
}

fn way(it: &WayView) -> String {
    let mut text = format!(
        "  from {:<8} PDR {} (precedence {}) -> FAR {} ({})",
        it.source,
        it.pdr,
        it.precedence,
        it.far,
        it.actions.join(", ")
    );
    for (name, numbers) in [("QER", &it.qers), ("URR", &it.urrs)] {
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        if !numbers.is_empty() {
            let _ = write!(text, ", {name} {}", numbers.join(" "));
        }
    }
    let _ = match (&it.cause, &it.to) {
        (Some(cause), _) => write!(text, "\n    {}: {cause}", it.fate),
        (None, Some(to)) => write!(text, "\n    {} to {to}", it.fate),
        (None, None) => write!(text, "\n    {}", it.fate),
    };
    if let Some(next_hop) = &it.next_hop {
        let _ = write!(text, ", {next_hop}");
    }
    text.push('\n');
    text
}

/// Formats a row of columns, all but the last padded.
fn row(cells: &[&str]) -> String {
    let widths = [20, 20, 34, 12, 14, 14];
    let cells = cells.iter().zip(widths);
    let line: String = cells.map(|(cell, width)| format!("{cell:<width$} ")).collect();
    format!("{}\n", line.trim_end())
}
