//! API client: `upf sessions`, `upf associations`, `upf trace`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::api::TraceSubject;
use crate::api::view::{AssociationView, Page, SessionView, Trace};

mod text;

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
            Ok(if json { pretty(&all) } else { text::associations(&all) })
        }
        Request::Sessions(most) => {
            let page = pages(address, *most)?;
            Ok(if json { pretty(&page) } else { text::sessions(&page) })
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
            Ok(if json { pretty(&trace) } else { text::trace(&trace) })
        }
    }
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

fn pretty(value: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Percent-encodes reserved characters (RFC 3986 clause 2.1).
fn escaped(text: &str) -> String {
    let plain = |octet: &u8| octet.is_ascii_alphanumeric() || b"-._".contains(octet);
    let each = |octet: u8| match plain(&octet) {
        true => char::from(octet).to_string(),
        false => format!("%{octet:02X}"),
    };
    text.bytes().map(each).collect()
}

fn fetch<T: DeserializeOwned>(address: SocketAddr, path: &str) -> Result<T, ClientError> {
    let silent = |source| ClientError::Silent { address, source };
    let answer = exchange(address, path).map_err(silent)?;
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
fn exchange(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_REPLY).read_to_string(&mut answer)?;
    Ok(answer)
}
