//! Which elements belong where: the tables of TS 29.244 clauses 7.4 and 7.5, and what follows from
//! them for causes 66 to 69 and the Offending IE (clause 7.6).

mod condition;
mod node;
mod report;
mod rules;
mod session;
mod update;

use crate::{Cause, Fault, Group, IeType, Ies, Message, MessageType};

/// Whether an element must be there: the column P of the tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// Mandatory.
    M,
    /// Conditional; what can be seen of the condition in the message is a function of the grammar.
    C,
    /// Optional.
    O,
}

/// What an element's value is checked by.
#[derive(Clone, Copy)]
enum Content {
    /// Its fields: lengths (68) and values (69).
    Fields(fn(&[u8]) -> Result<(), Cause>),
    /// A grammar of its own.
    Group(&'static Grammar),
    /// At least so many octets; this crate does not look inside.
    Octets(usize),
}

/// An element that may be somewhere.
#[derive(Clone, Copy)]
struct Rule {
    ie_type: IeType,
    presence: Presence,
    /// Whether each one counts, or only the first.
    many: bool,
    content: Content,
}

/// The elements of a message or of a grouped element.
struct Grammar {
    rules: &'static [Rule],
    /// Which of the rules are mandatory, by place.
    mandatory: u64,
    /// What of the conditions can be seen in the element itself.
    condition: Option<fn(Group<'_>) -> Result<(), Fault>>,
}

/// A rule about an element with typed fields.
macro_rules! fields {
    ($ie:ident) => {
        (<$ie as Ie>::TYPE, Content::Fields(|value: &[u8]| $ie::decode(value).map(|_| ())))
    };
}

/// A rule about a grouped element.
macro_rules! group {
    ($ie_type:ident, $grammar:path) => {
        (IeType::$ie_type, Content::Group(&$grammar))
    };
}

/// A rule about an element that has no type in this crate.
macro_rules! octets {
    ($ie_type:ident, $least:literal) => {
        (IeType::$ie_type, Content::Octets($least))
    };
}

use {fields, group, octets};

impl Presence {
    const fn once(self, (ie_type, content): (IeType, Content)) -> Rule {
        Rule { ie_type, presence: self, many: false, content }
    }

    const fn many(self, (ie_type, content): (IeType, Content)) -> Rule {
        Rule { ie_type, presence: self, many: true, content }
    }
}

impl Rule {
    fn check(&self, value: &[u8]) -> Result<(), Fault> {
        match self.content {
            Content::Fields(decode) => {
                decode(value).map_err(|cause| Fault::of(cause, self.ie_type))
            }
            Content::Group(grammar) => grammar.check(value).map_err(|fault| Fault {
                offending: fault.offending.or(Some(self.ie_type)),
                ..fault
            }),
            Content::Octets(least) if value.len() < least => {
                Err(Fault::of(Cause::INVALID_LENGTH, self.ie_type))
            }
            Content::Octets(_) => Ok(()),
        }
    }
}

impl Grammar {
    const fn new(rules: &'static [Rule]) -> Self {
        assert!(rules.len() <= 64, "what was seen is remembered in 64 bits");
        let mut mandatory = 0;
        let mut at = 0;
        while at < rules.len() {
            mandatory |= (matches!(rules[at].presence, Presence::M) as u64) << at;
            at += 1;
        }
        Self { rules, mandatory, condition: None }
    }

    const fn when(mut self, condition: fn(Group<'_>) -> Result<(), Fault>) -> Self {
        self.condition = Some(condition);
        self
    }

    /// The rule about an element. Peers send elements in the order of the tables, so the search
    /// begins where the last one ended.
    fn rule(&self, ie_type: IeType, from: usize) -> Option<(usize, &'static Rule)> {
        let (before, after) = self.rules.split_at_checked(from)?;
        let is_it = |rule: &&Rule| rule.ie_type == ie_type;
        let later = after.iter().position(|rule| is_it(&rule)).map(|at| from + at);
        let at = later.or_else(|| before.iter().position(|rule| is_it(&rule)))?;
        Some((at, &self.rules[at]))
    }

    fn check(&self, body: &[u8]) -> Result<(), Fault> {
        let mut seen = 0_u64;
        let mut last = 0;
        for ie in Ies::new(body) {
            let ie = ie?;
            let Some((at, rule)) = self.rule(ie.ie_type, last) else {
                continue;
            };
            last = at;
            let is_first = seen >> at & 1 == 0;
            seen |= 1 << at;
            if is_first || rule.many {
                rule.check(ie.value)?;
            }
        }
        let missing = self.mandatory & !seen;
        if missing != 0 {
            let rule = &self.rules[missing.trailing_zeros() as usize];
            return Err(Fault::of(Cause::MANDATORY_IE_MISSING, rule.ie_type));
        }
        self.condition.map_or(Ok(()), |condition| condition(Group::new(body)))
    }

    /// The grammar of a message.
    const fn of(message_type: MessageType) -> Option<&'static Self> {
        Some(match message_type {
            MessageType::HEARTBEAT_REQUEST => &node::HEARTBEAT_REQUEST,
            MessageType::HEARTBEAT_RESPONSE => &node::HEARTBEAT_RESPONSE,
            MessageType::PFD_MANAGEMENT_REQUEST => &node::PFD_MANAGEMENT_REQUEST,
            MessageType::PFD_MANAGEMENT_RESPONSE => &node::PFD_MANAGEMENT_RESPONSE,
            MessageType::ASSOCIATION_SETUP_REQUEST => &node::ASSOCIATION_SETUP_REQUEST,
            MessageType::ASSOCIATION_SETUP_RESPONSE => &node::ASSOCIATION_SETUP_RESPONSE,
            MessageType::ASSOCIATION_UPDATE_REQUEST => &node::ASSOCIATION_UPDATE_REQUEST,
            MessageType::ASSOCIATION_UPDATE_RESPONSE => &node::ASSOCIATION_UPDATE_RESPONSE,
            MessageType::ASSOCIATION_RELEASE_REQUEST => &node::ASSOCIATION_RELEASE_REQUEST,
            MessageType::ASSOCIATION_RELEASE_RESPONSE => &node::NODE_RESPONSE,
            MessageType::NODE_REPORT_REQUEST => &node::NODE_REPORT_REQUEST,
            MessageType::NODE_REPORT_RESPONSE => &node::NODE_RESPONSE,
            MessageType::SESSION_SET_DELETION_REQUEST => &node::SESSION_SET_DELETION_REQUEST,
            MessageType::SESSION_SET_DELETION_RESPONSE => &node::NODE_RESPONSE,
            MessageType::SESSION_SET_MODIFICATION_REQUEST => &node::SESSION_SET_MODIFICATION,
            MessageType::SESSION_SET_MODIFICATION_RESPONSE => &node::NODE_RESPONSE,
            MessageType::SESSION_ESTABLISHMENT_REQUEST => &session::ESTABLISHMENT_REQUEST,
            MessageType::SESSION_ESTABLISHMENT_RESPONSE => &session::ESTABLISHMENT_RESPONSE,
            MessageType::SESSION_MODIFICATION_REQUEST => &session::MODIFICATION_REQUEST,
            MessageType::SESSION_MODIFICATION_RESPONSE => &session::MODIFICATION_RESPONSE,
            MessageType::SESSION_DELETION_REQUEST => &session::DELETION_REQUEST,
            MessageType::SESSION_DELETION_RESPONSE => &session::DELETION_RESPONSE,
            MessageType::SESSION_REPORT_REQUEST => &report::SESSION_REPORT_REQUEST,
            MessageType::SESSION_REPORT_RESPONSE => &report::SESSION_REPORT_RESPONSE,
            _ => return None,
        })
    }
}

impl Message<'_> {
    /// Compares the message and all groups in it with the tables of clauses 7.4 and 7.5.
    ///
    /// Elements that do not belong where they are, unknown ones and those of enterprises are not
    /// looked at (clause 7.6.9), nor are repetitions of what may be there once (clause 7.6.10).
    /// Messages of unknown types pass. A wrong value is a fault wherever it is: ignoring an
    /// optional element, a filter say, would make another rule than the one that was asked for.
    ///
    /// # Errors
    ///
    /// The first fault: cause 68 or 69 of an element in the order of the octets, then 66 of a
    /// missing one, then 67 of one that others in the message call for.
    pub fn check(&self) -> Result<(), Fault> {
        Grammar::of(self.header.message_type).map_or(Ok(()), |grammar| grammar.check(self.body))
    }
}
