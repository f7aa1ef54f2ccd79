//! Recorded lives of PFCP sessions: the messages of an SMF, and what user packets do between them.
//!
//! A life is a text of lines: `# comment`, `! KEY VALUE`, `> NAME HEX` (a message of the SMF) and
//! `@ ACTION key=value` (what user packets must do at this point). In a message `{UPSEID}` stands
//! for the SEID that the UPF gave, `{TEID:n}` for the TEID that the UPF chose for PDR n.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// UDP port in the data network where the flow does not matter.
pub(crate) const PORT: u16 = 9;

/// Recorded life of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// Addresses of the user, one of each family that its session has.
    pub(crate) ue: Vec<IpAddr>,
    /// Steps in their order.
    pub(crate) steps: Vec<Step>,
}

/// Step of a life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request of the SMF, with its name.
    Request(String, Vec<Part>),
    /// From here on uplink packets take this tunnel.
    Uplink(Uplink),
    /// Behaviour of user packets.
    Action(Action),
}

/// Tunnel of uplink packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uplink {
    /// Tunnel of a PDR.
    Pdr(u16),
    /// TEID that the SMF chose.
    Teid(u32),
}

/// Part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Octets as recorded.
    Octets(Vec<u8>),
    /// SEID that the UPF gave.
    UpSeid,
    /// TEID that the UPF chose for a PDR.
    Teid(u16),
}

/// Tunnel and QoS flow in which a packet reaches the gNB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DownlinkFlow {
    /// TEID of the gNB.
    pub(crate) teid: u32,
    /// QoS flow; `None` if any, or none, is right.
    pub(crate) qfi: Option<u8>,
}

/// Direction of a relayed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the user.
    Uplink,
    /// To the user.
    Downlink,
}

/// Behaviour of user packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// An uplink packet reaches the data network, and the answer reaches the gNB.
    Data {
        /// Flow of the answer.
        down: DownlinkFlow,
        /// QoS flow of the uplink packet.
        uplink_qfi: u8,
        /// UDP port in the data network, if the flow matters.
        port: Option<u16>,
        /// Tunnel of the uplink packet, if it is another than that of the life.
        uplink: Option<Uplink>,
    },
    /// A downlink packet is held. It causes one downlink data report, or at most one if the report
    /// is optional.
    Held {
        /// The report may be absent.
        is_optional: bool,
    },
    /// The held packet leaves in this tunnel before any other.
    Buffered(u32),
    /// An end marker leaves in this tunnel.
    EndMarker(u32),
    /// A packet in one tunnel leaves in another one.
    Relay {
        /// TEID of the UPF.
        into: u32,
        /// Flow in which it leaves.
        out: DownlinkFlow,
        /// Direction of the packet.
        direction: Direction,
    },
    /// A downlink packet into the tunnel of the PDR created last comes back in this tunnel.
    Indirect(u32),
}

impl Life {
    /// Parses a life.
    ///
    /// # Errors
    /// Returns the number of the first wrong line and the reason.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut ue, mut steps) = (Vec::new(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let step = parse_line(line, &mut ue);
            steps.extend(step.map_err(|reason| format!("line {}: {reason}", number + 1))?);
        }
        if ue.is_empty() {
            return Err("no line `! ueip ADDRESS`".to_owned());
        }
        Ok(Self { ue, steps })
    }

    /// Returns the ports of the data network that tell the flows of this life apart.
    pub(crate) fn ports(&self) -> BTreeSet<u16> {
        let ports = self.steps.iter().filter_map(|step| match step {
            Step::Action(Action::Data { port, .. }) => *port,
            _ => None,
        });
        ports.chain([PORT]).collect()
    }
}

fn parse_line(line: &str, ue: &mut Vec<IpAddr>) -> Result<Option<Step>, String> {
    let line = line.trim();
    let Some(kind) = line.chars().next() else { return Ok(None) };
    let rest = line[kind.len_utf8()..].trim();
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    match kind {
        '#' => Ok(None),
        '!' => match word {
            "ueip" => {
                let address = |text: &str| text.parse();
                let all: Result<Vec<IpAddr>, _> = rest.split_whitespace().map(address).collect();
                ue.extend(all.map_err(|_| format!("`{rest}` has a word that is no address"))?);
                Ok(None)
            }
            "ulpdr" => Ok(Some(Step::Uplink(Uplink::Pdr(number(rest)?)))),
            "ulteid" => Ok(Some(Step::Uplink(Uplink::Teid(number(rest)?)))),
            "note" => Ok(None),
            other => Err(format!("unknown key `{other}`")),
        },
        '>' => Ok(Some(Step::Request(word.to_owned(), message(rest)?))),
        '@' => action(word, rest).map(|action| Some(Step::Action(action))),
        _ => Err(format!("a line starts with #, !, > or @, not with `{kind}`")),
    }
}

/// Parses a decimal number, or a hexadecimal one with `0x`.
fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let parsed = parsed.ok().and_then(|number| T::try_from(number).ok());
    parsed.ok_or_else(|| format!("`{text}` is no number, or too large"))
}

fn message(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(named) = rest.strip_prefix('{') else {
            let end = rest.find('{').unwrap_or(rest.len());
            parts.push(Part::Octets(octets(&rest[..end])?));
            rest = &rest[end..];
            continue;
        };
        let (name, after) = named.split_once('}').ok_or("a `{` without `}`")?;
        parts.push(match name.strip_prefix("TEID:") {
            Some(pdr) => Part::Teid(number(pdr)?),
            None if name == "UPSEID" => Part::UpSeid,
            None => return Err(format!("unknown placeholder `{name}`")),
        });
        rest = after;
    }
    if parts.is_empty() { Err("a request without octets".to_owned()) } else { Ok(parts) }
}

fn octets(text: &str) -> Result<Vec<u8>, String> {
    let pairs = text.as_bytes().chunks(2);
    let octet = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2)?;
        u8::from_str_radix(text, 16).ok()
    };
    pairs
        .map(|pair| octet(pair).ok_or_else(|| "octets have two hexadecimal digits".to_owned()))
        .collect()
}

/// Arguments of an action, of which each must be used.
struct Arguments<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Arguments<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let pair = |word: &'a str| {
            word.split_once('=').ok_or_else(|| format!("`{word}` is not of the form key=value"))
        };
        Ok(Self(text.split_ascii_whitespace().map(pair).collect::<Result<_, _>>()?))
    }

    fn maybe<T: TryFrom<u64>>(&mut self, key: &str) -> Result<Option<T>, String> {
        self.0.remove(key).map(number).transpose()
    }

    fn need<T: TryFrom<u64>>(&mut self, key: &str) -> Result<T, String> {
        self.maybe(key)?.ok_or_else(|| format!("no `{key}`"))
    }

    /// Returns the flow in `teid` and `qfi`; `anyqfi` says that the latter is that of uplink only.
    fn flow(&mut self) -> Result<DownlinkFlow, String> {
        let is_any = self.maybe::<u8>("anyqfi")?.is_some();
        let qfi = self.0.get("qfi").copied().map(number).transpose()?;
        Ok(DownlinkFlow { teid: self.need("teid")?, qfi: qfi.filter(|_| !is_any) })
    }

    fn end(self) -> Result<(), String> {
        self.0.keys().next().map_or(Ok(()), |key| Err(format!("unknown argument `{key}`")))
    }
}

fn action(name: &str, text: &str) -> Result<Action, String> {
    let mut arguments = Arguments::parse(text)?;
    let action = match name {
        "data" => {
            let down = arguments.flow()?;
            let qfi = arguments.need("qfi")?;
            let uplink_qfi = arguments.maybe("ulqfi")?.unwrap_or(qfi);
            let port = arguments.maybe("dport")?;
            let pdr = arguments.maybe("ulpdr")?.map(Uplink::Pdr);
            let uplink = arguments.maybe("ulteid")?.map(Uplink::Teid).or(pdr);
            Action::Data { down, uplink_qfi, port, uplink }
        }
        "expect-report" => Action::Held { is_optional: false },
        "expect-buffer" => Action::Held { is_optional: true },
        "buffered" => Action::Buffered(arguments.need("teid")?),
        "endmarker" => Action::EndMarker(arguments.need("teid")?),
        "relay" => {
            let direction = match arguments.0.remove("dir") {
                Some("ul") => Direction::Uplink,
                Some("dl") => Direction::Downlink,
                other => return Err(format!("`dir` is ul or dl, not {other:?}")),
            };
            let into = arguments.need("in")?;
            let out = arguments.flow()?;
            arguments.0.remove("qfi");
            Action::Relay { into, out, direction }
        }
        "indirect" => Action::Indirect(arguments.need("teid")?),
        other => return Err(format!("unknown action `{other}`")),
    };
    arguments.end()?;
    Ok(action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_line_is_read() {
        let text = "# comment\n! ueip 10.45.0.2 2001:db8:cafe::2\n! ulpdr 2\n! note any words\n\
                    > establish 2132{UPSEID}00a1{TEID:6}ff\n\
                    @ data teid=0x41 qfi=2 dport=5000 ulpdr=6\n\
                    @ expect-report\n@ buffered teid=0x12\n! ulteid 0x2\n\
                    @ relay in=0x3 teid=4 qfi=5 dir=dl\n";
        let life = Life::parse(text).unwrap();
        let down = |teid, qfi| DownlinkFlow { teid, qfi: Some(qfi) };
        let uplink = Some(Uplink::Pdr(6));
        let parts = vec![
            Part::Octets(vec![0x21, 0x32]),
            Part::UpSeid,
            Part::Octets(vec![0, 0xa1]),
            Part::Teid(6),
            Part::Octets(vec![0xff]),
        ];
        let relay = Action::Relay { into: 3, out: down(4, 5), direction: Direction::Downlink };
        let steps = vec![
            Step::Uplink(Uplink::Pdr(2)),
            Step::Request("establish".to_owned(), parts),
            Step::Action(Action::Data {
                down: down(0x41, 2),
                uplink_qfi: 2,
                port: Some(5000),
                uplink,
            }),
            Step::Action(Action::Held { is_optional: false }),
            Step::Action(Action::Buffered(0x12)),
            Step::Uplink(Uplink::Teid(2)),
            Step::Action(relay),
        ];
        let ue = ["10.45.0.2", "2001:db8:cafe::2"].map(|text| text.parse().unwrap()).to_vec();
        assert_eq!(life, Life { ue, steps });
    }

    #[test]
    fn the_flow_of_the_answer_may_be_left_open() {
        let Action::Data { down, uplink_qfi, .. } =
            action("data", "teid=1 qfi=1 anyqfi=1").unwrap()
        else {
            panic!("data");
        };
        assert_eq!((down, uplink_qfi), (DownlinkFlow { teid: 1, qfi: None }, 1));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let of = |line: &str| Life::parse(&format!("! ueip 10.45.0.2\n{line}")).unwrap_err();
        for (line, reason) in [
            ("? x", "a line starts with"),
            ("! speed 3", "unknown key `speed`"),
            ("! ueip internet", "`internet` has a word that is no address"),
            ("> idle 213", "two hexadecimal digits"),
            ("> idle {TEID:x}", "`x` is no number"),
            ("> idle {SEID}", "unknown placeholder"),
            ("> idle", "without octets"),
            ("@ data teid=1", "no `qfi`"),
            ("@ data teid=1 qfi=1 color=2", "unknown argument `color`"),
            ("@ jump", "unknown action"),
            ("@ relay in=1 teid=2 qfi=1", "`dir` is ul or dl"),
        ] {
            let error = of(line);
            assert!(error.starts_with("line 2: ") && error.contains(reason), "{line}: {error}");
        }
        assert!(Life::parse("# nothing\n").unwrap_err().contains("ueip"));
    }
}
