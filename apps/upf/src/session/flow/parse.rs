//! Parser of flow descriptions.

use std::net::IpAddr;

use super::{FlowDescription, Ports, Prefix};

/// Error of parsing a flow description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The description is too long.
    #[error(
        "a flow description of {0} octets; at most {most} are read", most = FlowDescription::LONGEST
    )]
    TooLong(usize),
    /// Another word was expected.
    #[error(
        "`{found}` where {expected} is expected in a flow description; for example `permit out ip \
         from any to assigned`"
    )]
    Unexpected {
        /// Word found; `the end` if the text ends.
        found: String,
        /// Expected word.
        expected: &'static str,
    },
    /// An IPFilterRule element that flow descriptions must not contain.
    #[error("`{word}` is not allowed in a flow description (TS 29.212 clause 5.4.2): {instead}")]
    NotAllowed {
        /// Element found.
        word: String,
        /// Replacement for the element.
        instead: &'static str,
    },
    /// Invalid address.
    #[error("`{0}` is no address; write `any`, `assigned`, an address, or one with a length")]
    Address(String),
    /// Invalid ports.
    #[error("`{0}` are no ports; write numbers and ranges, as `80,443,8000-8080`")]
    Ports(String),
    /// Too many port ranges for a lane to match.
    #[error("{0} ranges of ports; at most {most} may be named", most = FlowDescription::RANGES)]
    TooManyPorts(usize),
    /// The two ends have different address families.
    #[error("one end has an IPv4 address and the other an IPv6 address: no packet has both")]
    Families,
    /// Ports for a protocol that has none.
    #[error(
        "protocol {0} has no ports; name protocol 6, 17, 33, 132 or 136, or leave the ports out"
    )]
    NoPorts(u8),
}

/// Words of the description.
struct Words<'a>(std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>);

impl<'a> Words<'a> {
    fn expect(&mut self, word: &'static str) -> Result<(), FlowError> {
        match self.0.next() {
            Some(found) if found.eq_ignore_ascii_case(word) => Ok(()),
            found => Err(unexpected(found, word)),
        }
    }

    fn next(&mut self, expected: &'static str) -> Result<&'a str, FlowError> {
        self.0.next().ok_or_else(|| unexpected(None, expected))
    }
}

fn unexpected(found: Option<&str>, expected: &'static str) -> FlowError {
    FlowError::Unexpected { found: found.map_or_else(|| "the end".to_owned(), shown), expected }
}

/// Returns the first 64 characters of a word, for an error message.
fn shown(word: &str) -> String {
    word.chars().take(64).collect()
}

pub(super) fn parse(text: &str) -> Result<FlowDescription, FlowError> {
    if text.len() > FlowDescription::LONGEST {
        return Err(FlowError::TooLong(text.len()));
    }
    let mut words = Words(text.split_ascii_whitespace().peekable());
    action(&mut words)?;
    let protocol = protocol(words.next("a protocol")?)?;
    words.expect("from")?;
    let (remote, remote_ports) = end(&mut words)?;
    words.expect("to")?;
    let (local, local_ports) = end(&mut words)?;
    if let Some(word) = words.0.next() {
        let instead = "leave options out; type of service, flow label and index have IEs";
        return Err(FlowError::NotAllowed { word: shown(word), instead });
    }
    let families = remote.zip(local).map(|(one, other)| (one.address, other.address));
    if families.is_some_and(|(one, other)| one.is_ipv4() != other.is_ipv4()) {
        return Err(FlowError::Families);
    }
    if let Some(protocol) = protocol.filter(|_| !remote_ports.is_empty() || !local_ports.is_empty())
        && !has_ports(protocol)
    {
        return Err(FlowError::NoPorts(protocol));
    }
    Ok(FlowDescription { protocol, remote, remote_ports, local, local_ports })
}

/// Returns true for TCP, UDP, DCCP, SCTP and UDP-Lite.
const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

fn action(words: &mut Words<'_>) -> Result<(), FlowError> {
    let not = |word: &str, instead| Err(FlowError::NotAllowed { word: shown(word), instead });
    match words.next("permit")? {
        word if word.eq_ignore_ascii_case("permit") => {}
        word if word.eq_ignore_ascii_case("deny") => {
            return not(word, "a PDR with a FAR that drops does that");
        }
        word => return Err(unexpected(Some(word), "permit")),
    }
    match words.next("out")? {
        word if word.eq_ignore_ascii_case("out") => Ok(()),
        word if word.eq_ignore_ascii_case("in") => {
            not(word, "write `out`; for packets from the user both ends are exchanged")
        }
        word => Err(unexpected(Some(word), "out")),
    }
}

fn protocol(word: &str) -> Result<Option<u8>, FlowError> {
    if word.eq_ignore_ascii_case("ip") {
        return Ok(None);
    }
    if word.starts_with('!') {
        return negated(word);
    }
    let number = word.parse().ok().filter(|_| is_number(word));
    number.map(Some).ok_or_else(|| unexpected(Some(word), "`ip` or the number of a protocol"))
}

fn negated<T>(word: &str) -> Result<T, FlowError> {
    let instead = "`!` is not to be used; another PDR with a lower precedence value takes what is \
                   not meant";
    Err(FlowError::NotAllowed { word: shown(word), instead })
}

/// Returns true if the word consists of digits only. `parse` alone would accept a sign.
fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

fn end(words: &mut Words<'_>) -> Result<(Option<Prefix>, Ports), FlowError> {
    let prefix = address(words.next("an address")?)?;
    let is_port = |word: &&str| word.starts_with(|it: char| it.is_ascii_digit() || it == ',');
    let found = match words.0.next_if(is_port) {
        Some(word) => ports(word)?,
        None => Ports::new(),
    };
    Ok((prefix, found))
}

fn address(word: &str) -> Result<Option<Prefix>, FlowError> {
    if word.eq_ignore_ascii_case("any") || word.eq_ignore_ascii_case("assigned") {
        return Ok(None);
    }
    if word.starts_with('!') {
        return negated(word);
    }
    let no_address = || FlowError::Address(shown(word));
    let (address, length) = match word.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (word, None),
    };
    let address: IpAddr = address.parse().map_err(|_| no_address())?;
    let length = match length {
        Some(length) if is_number(length) => length.parse().map_err(|_| no_address())?,
        Some(_) => return Err(no_address()),
        None if address.is_ipv4() => 32,
        None => 128,
    };
    let prefix = Prefix::new(address, length).ok_or_else(no_address)?;
    // `0.0.0.0/0` matches only IPv4 packets, so it is kept.
    Ok(Some(prefix))
}

fn ports(word: &str) -> Result<Ports, FlowError> {
    let no_ports = || FlowError::Ports(shown(word));
    let count = word.split(',').count();
    if count > FlowDescription::RANGES {
        return Err(FlowError::TooManyPorts(count));
    }
    let port =
        |text: &str| text.parse::<u16>().ok().filter(|_| is_number(text)).ok_or_else(no_ports);
    let range = |text: &str| {
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (port(first)?, port(last)?),
            None => (port(text)?, port(text)?),
        };
        if first > last { Err(no_ports()) } else { Ok((first, last)) }
    };
    word.split(',').map(range).collect()
}
