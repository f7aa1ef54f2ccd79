//! Grammar of the messages: the tables of TS 29.244 clauses 7.4 and 7.5. Derives causes 66 to 69
//! and the Offending IE (clause 7.6) from them.

mod establishment;
mod node_messages;
mod session;
mod session_reports;
mod update;

use crate::ie::{
    ActivatePredefinedRules, ApplyAction, FarId, Ie, NodeReportType, ReportType, ReportingTriggers,
};
use crate::{Cause, Fault, Group, IeType, Ies, Message, MessageType};

/// Presence of an element: column P of the tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// Mandatory element.
    M,
    /// Conditional element. The grammar's condition checks what the message shows of it.
    C,
    /// Optional element.
    O,
}

/// Check of an element's value.
#[derive(Clone, Copy)]
enum Content {
    /// Fields, whose lengths (cause 68) and values (69) are checked.
    Fields(fn(&[u8]) -> Result<(), Cause>),
    /// Group with its own grammar.
    Group(&'static Grammar),
    /// At least this number of octets, which are not parsed.
    Octets(usize),
}

/// Type of an element and the check of its value.
#[derive(Clone, Copy)]
struct Element {
    ie_type: IeType,
    content: Content,
}

/// Element that a message or a group may contain.
#[derive(Clone, Copy)]
struct Rule {
    ie_type: IeType,
    presence: Presence,
    /// True if every occurrence counts, not only the first.
    many: bool,
    content: Content,
}

/// Elements of a message or of a grouped element.
struct Grammar {
    rules: &'static [Rule],
    /// Bit set of the mandatory rules, by index.
    mandatory: u64,
    /// Check of the conditions that the element itself shows.
    condition: Option<fn(Group<'_>) -> Result<(), Fault>>,
}

/// Makes the element of a rule from a type with fields.
macro_rules! fields {
    ($ie:ident) => {
        Element {
            ie_type: <$ie as Ie>::TYPE,
            content: Content::Fields(|value: &[u8]| $ie::decode(value).map(|_| ())),
        }
    };
}

/// Makes the element of a rule from a group.
macro_rules! group {
    ($ie_type:ident, $grammar:path) => {
        Element { ie_type: IeType::$ie_type, content: Content::Group(&$grammar) }
    };
}

/// Makes the element of a rule from a type that has no fields in this crate.
macro_rules! octets {
    ($ie_type:ident, $least:literal) => {
        Element { ie_type: IeType::$ie_type, content: Content::Octets($least) }
    };
}

use {fields, group, octets};

impl Presence {
    const fn once(self, element: Element) -> Rule {
        Rule { ie_type: element.ie_type, presence: self, many: false, content: element.content }
    }

    const fn many(self, element: Element) -> Rule {
        Rule { ie_type: element.ie_type, presence: self, many: true, content: element.content }
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
        assert!(rules.len() <= 64, "the elements seen are recorded in 64 bits");
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

    /// Returns the rule of an element and its index. Peers send elements in the order of the
    /// tables, so the search begins at `from`, where the last one ended.
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

    /// Returns the grammar of a message.
    const fn of(message_type: MessageType) -> Option<&'static Self> {
        Some(match message_type {
            MessageType::HEARTBEAT_REQUEST => &node_messages::HEARTBEAT_REQUEST,
            MessageType::HEARTBEAT_RESPONSE => &node_messages::HEARTBEAT_RESPONSE,
            MessageType::PFD_MANAGEMENT_REQUEST => &node_messages::PFD_MANAGEMENT_REQUEST,
            MessageType::PFD_MANAGEMENT_RESPONSE => &node_messages::PFD_MANAGEMENT_RESPONSE,
            MessageType::ASSOCIATION_SETUP_REQUEST => &node_messages::ASSOCIATION_SETUP_REQUEST,
            MessageType::ASSOCIATION_SETUP_RESPONSE => &node_messages::ASSOCIATION_SETUP_RESPONSE,
            MessageType::ASSOCIATION_UPDATE_REQUEST => &node_messages::ASSOCIATION_UPDATE_REQUEST,
            MessageType::ASSOCIATION_UPDATE_RESPONSE => &node_messages::ASSOCIATION_UPDATE_RESPONSE,
            MessageType::ASSOCIATION_RELEASE_REQUEST => &node_messages::ASSOCIATION_RELEASE_REQUEST,
            MessageType::ASSOCIATION_RELEASE_RESPONSE => &node_messages::NODE_RESPONSE,
            MessageType::NODE_REPORT_REQUEST => &node_messages::NODE_REPORT_REQUEST,
            MessageType::NODE_REPORT_RESPONSE => &node_messages::NODE_RESPONSE,
            MessageType::SESSION_SET_DELETION_REQUEST => {
                &node_messages::SESSION_SET_DELETION_REQUEST
            }
            MessageType::SESSION_SET_DELETION_RESPONSE => &node_messages::NODE_RESPONSE,
            MessageType::SESSION_SET_MODIFICATION_REQUEST => {
                &node_messages::SESSION_SET_MODIFICATION
            }
            MessageType::SESSION_SET_MODIFICATION_RESPONSE => &node_messages::NODE_RESPONSE,
            MessageType::SESSION_ESTABLISHMENT_REQUEST => &establishment::ESTABLISHMENT_REQUEST,
            MessageType::SESSION_ESTABLISHMENT_RESPONSE => &establishment::ESTABLISHMENT_RESPONSE,
            MessageType::SESSION_MODIFICATION_REQUEST => &session::MODIFICATION_REQUEST,
            MessageType::SESSION_MODIFICATION_RESPONSE => &session::MODIFICATION_RESPONSE,
            MessageType::SESSION_DELETION_REQUEST => &session::DELETION_REQUEST,
            MessageType::SESSION_DELETION_RESPONSE => &session::DELETION_RESPONSE,
            MessageType::SESSION_REPORT_REQUEST => &session_reports::SESSION_REPORT_REQUEST,
            MessageType::SESSION_REPORT_RESPONSE => &session_reports::SESSION_REPORT_RESPONSE,
            _ => return None,
        })
    }
}

impl Message<'_> {
    /// Checks the message and all groups in it against the tables of clauses 7.4 and 7.5.
    ///
    /// Misplaced, unknown and enterprise-specific elements are ignored (clause 7.6.9). So are
    /// repetitions of elements that may occur once (clause 7.6.10). Messages of unknown types pass.
    /// A wrong value is a fault in every element: ignoring an optional one, such as a filter, would
    /// create another rule than requested.
    ///
    /// # Errors
    ///
    /// Returns the first fault: cause 68 or 69 of an element in the order of the octets, then 66
    /// for a missing element, then 67 for one that other elements require.
    pub fn check(&self) -> Result<(), Fault> {
        Grammar::of(self.header.message_type).map_or(Ok(()), |grammar| grammar.check(self.body))
    }
}

fn called_for(group: Group<'_>, is_called: bool, ie_type: IeType) -> Result<(), Fault> {
    if is_called && !group.has(ie_type) {
        return Err(Fault::of(Cause::CONDITIONAL_IE_MISSING, ie_type));
    }
    Ok(())
}

/// Checks that a PDR names the handling of its packets: a FAR, a MAR or predefined rules (table
/// 7.5.2.2-1).
fn create_pdr(pdr: Group<'_>) -> Result<(), Fault> {
    let other = pdr.has(IeType::MAR_ID) || pdr.has(ActivatePredefinedRules::TYPE);
    called_for(pdr, !other, FarId::TYPE)
}

/// Checks that forwarding and duplication have their parameters (table 7.5.2.3-1).
fn create_far(far: Group<'_>) -> Result<(), Fault> {
    let action: ApplyAction = far.need()?;
    called_for(far, action.has(ApplyAction::FORW), IeType::FORWARDING_PARAMETERS)?;
    called_for(far, action.has(ApplyAction::DUPL), IeType::DUPLICATING_PARAMETERS)
}

/// Checks that reporting triggers have their thresholds (table 7.5.2.4-1). Quotas may follow in a
/// modification.
fn create_urr(urr: Group<'_>) -> Result<(), Fault> {
    let triggers: ReportingTriggers = urr.need()?;
    let calls = [
        (ReportingTriggers::PERIO, IeType::MEASUREMENT_PERIOD),
        (ReportingTriggers::VOLTH, IeType::VOLUME_THRESHOLD),
        (ReportingTriggers::TIMTH, IeType::TIME_THRESHOLD),
        (ReportingTriggers::QUHTI, IeType::QUOTA_HOLDING_TIME),
        (ReportingTriggers::DROTH, IeType::DROPPED_DL_TRAFFIC_THRESHOLD),
        (ReportingTriggers::LIUSA, IeType::LINKED_URR_ID),
        (ReportingTriggers::EVETH, IeType::EVENT_THRESHOLD),
        (ReportingTriggers::QUVTI, IeType::QUOTA_VALIDITY_TIME),
    ];
    calls.iter().try_for_each(|(trigger, ie)| called_for(urr, triggers.has(*trigger), *ie))
}

/// Checks that a session report has the elements of its report type (table 7.5.8.1-1).
fn session_report(report: Group<'_>) -> Result<(), Fault> {
    let report_type: ReportType = report.need()?;
    let calls = [
        (ReportType::DLDR, IeType::DOWNLINK_DATA_REPORT),
        (ReportType::USAR, IeType::USAGE_REPORT_IN_REPORT),
        (ReportType::ERIR, IeType::ERROR_INDICATION_REPORT),
    ];
    calls.iter().try_for_each(|(bit, ie)| called_for(report, report_type.has(*bit), *ie))
}

/// Checks that a node report has the elements of its report type (table 7.4.5.1.1-1).
fn node_report(report: Group<'_>) -> Result<(), Fault> {
    let report_type: NodeReportType = report.need()?;
    let calls = [
        (NodeReportType::UPFR, IeType::USER_PLANE_PATH_FAILURE_REPORT),
        (NodeReportType::UPRR, IeType::USER_PLANE_PATH_RECOVERY_REPORT),
    ];
    calls.iter().try_for_each(|(bit, ie)| called_for(report, report_type.has(*bit), *ie))
}
