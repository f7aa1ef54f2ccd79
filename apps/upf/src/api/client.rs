//! `upf sessions`, `upf associations`, `upf trace`: the API of a running slow half, for people.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::api::Who;
use crate::api::view::{AssociationView, Page, SessionView, Trace};

mod text;

/// How long the API may be silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most octets of an answer.
const LONGEST: u64 = 16 << 20;
/// Sessions of a page.
const PAGE: usize = 1000;

/// Where the API is unless something else is said.
pub const API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8805);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody is there, or says anything.
    #[error(
        "nobody answers at {address} ({source}); is `upf CONFIG` running, in this network \
         namespace? Its `app.api` may be another: write --api ADDRESS"
    )]
    Silent {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// It refuses.
    #[error("{0}")]
    Refused(String),
    /// It is something else that answers there.
    #[error("what answers at {0} is no UPF of this release ({1}); write --api ADDRESS")]
    Strange(SocketAddr, String),
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Ask {
    /// The associations.
    Associations,
    /// At most so many sessions.
    Sessions(usize),
    /// The session with this SEID, and all its rules.
    Session(String),
    /// Why packets of whom go where they go, and what would become of one.
    Trace(Who, Option<Packet>),
}

/// A packet between a user and somebody.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The other end.
    pub to: IpAddr,
    /// tcp, udp, sctp, icmp, icmpv6 or a number.
    pub protocol: Option<String>,
    /// The other end's port.
    pub port: Option<u16>,
    /// The user's port.
    pub user_port: Option<u16>,
    /// The QoS flow that the base station marks it with.
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

/// Asks, and returns the answer for people, or as JSON.
///
/// # Errors
/// When there is no answer.
pub fn ask(address: SocketAddr, ask: &Ask, json: bool) -> Result<String, AskError> {
    match ask {
        Ask::Associations => {
            let all: Vec<AssociationView> = fetch(address, "/associations")?;
            Ok(if json { pretty(&all) } else { text::associations(&all) })
        }
        Ask::Sessions(most) => {
            let page = pages(address, *most)?;
            Ok(if json { pretty(&page) } else { text::sessions(&page) })
        }
        Ask::Session(seid) => {
            let session: SessionView = fetch(address, &format!("/sessions/{}", escaped(seid)))?;
            // A session is a tree: JSON is what shows it best.
            Ok(pretty(&session))
        }
        Ask::Trace(who, packet) => {
            let packet = packet.as_ref().map(Packet::query).unwrap_or_default();
            let who = escaped(&who.to_string());
            let trace: Trace = fetch(address, &format!("/trace?who={who}{packet}"))?;
            Ok(if json { pretty(&trace) } else { text::trace(&trace) })
        }
    }
}

/// Sessions, page after page.
fn pages(address: SocketAddr, most: usize) -> Result<Page, AskError> {
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

/// Letters that mean something in a URL are written as their octets (RFC 3986 clause 2.1).
fn escaped(text: &str) -> String {
    let plain = |octet: &u8| octet.is_ascii_alphanumeric() || b"-._".contains(octet);
    let each = |octet: u8| match plain(&octet) {
        true => char::from(octet).to_string(),
        false => format!("%{octet:02X}"),
    };
    text.bytes().map(each).collect()
}

fn fetch<T: DeserializeOwned>(address: SocketAddr, path: &str) -> Result<T, AskError> {
    let silent = |source| AskError::Silent { address, source };
    let answer = exchange(address, path).map_err(silent)?;
    let strange = |what: &str| AskError::Strange(address, what.to_owned());
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| strange("no HTTP"))?;
    let status = head.split_whitespace().nth(1).ok_or_else(|| strange("no HTTP"))?;
    if status != "200" {
        let said: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        let said = said.get("error").and_then(|it| it.as_str());
        return Err(said.map_or_else(|| strange(status), |it| AskError::Refused(it.to_owned())));
    }
    serde_json::from_str(body).map_err(|error| strange(&error.to_string()))
}

/// One request by HTTP/1.0: the answer ends with the connection.
fn exchange(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    Ok(answer)
}
