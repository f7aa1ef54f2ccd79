//! Checked list of rules.

use thiserror::Error;

use crate::{
    matcher::{FrameKey, RuleMatcher},
    rule::{Rule, RuleFault},
};

/// Maximum number of rules in a list: the size of the table that the eBPF programs scan per frame.
pub const MAX_RULES: usize = 64;

/// Checked list of at most [`MAX_RULES`] rules. A frame is claimed if any rule matches; the empty
/// list claims everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Rules prepared for comparison, in the same order.
    matchers: Vec<RuleMatcher>,
}

/// Reason why a list of rules was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// List longer than [`MAX_RULES`].
    #[error(
        "{count} rules are given, at most {MAX_RULES} are possible: join some by a prefix or a \
         port range"
    )]
    TooMany {
        /// Number of rules in the list.
        count: usize,
    },
    /// Rule that cannot match any frame.
    #[error("rule {}: {fault}", index + 1)]
    Rule {
        /// Index in the list, from 0 (the message counts from 1).
        index: usize,
        /// Fault of the rule.
        fault: RuleFault,
    },
}

impl Rules {
    /// Checks the rules and creates the list.
    ///
    /// # Errors
    /// Returns [`RuleError`] if the list is too long, or a rule is empty, malformed or cannot match
    /// any frame.
    pub fn new(rules: Vec<Rule>) -> Result<Rules, RuleError> {
        if rules.len() > MAX_RULES {
            return Err(RuleError::TooMany { count: rules.len() });
        }
        for (index, rule) in rules.iter().enumerate() {
            rule.check().map_err(|fault| RuleError::Rule { index, fault })?;
        }
        let matchers = rules.iter().map(RuleMatcher::new).collect();
        Ok(Rules { rules, matchers })
    }

    /// Returns the rules in the order given.
    pub fn as_slice(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns true if there are no rules, so that every frame is claimed.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns true if the frame is claimed for the fast path. `frame` begins at the Ethernet
    /// header, including its VLAN tags.
    ///
    /// Without rules every frame is claimed, runts too. With rules:
    /// * A frame that cannot be read far enough for a rule does not match it. A rule on the
    ///   EtherType
    ///   needs Ethernet only, a prefix the fixed IP header, a port the whole fixed UDP or TCP
    ///   header,
    ///   GTP-U its eight mandatory octets. The end of the frame limits the reading; the application
    ///   must check the length fields of headers.
    /// * An IP fragment is never claimed, not even the first one. Only the first one carries the
    ///   ports,
    ///   so the others go to Linux, and Linux can only reassemble complete datagrams. An IPv6
    ///   packet
    ///   with a fragment header is a fragment, even an atomic one (RFC 6946).
    ///
    /// Neither allocates nor panics. Takes a few nanoseconds and one comparison per rule.
    ///
    /// # Examples
    /// ```
    /// use fastlane_steer::{Rule, Rules};
    ///
    /// let rules = Rules::new(vec![Rule { ethertype: Some(0x0806), ..Rule::default() }])?;
    /// let mut frame = [0; 60];
    /// assert!(!rules.matches(&frame));
    /// frame[12..14].copy_from_slice(&[0x08, 0x06]); // ARP
    /// assert!(rules.matches(&frame));
    /// # Ok::<(), fastlane_steer::RuleError>(())
    /// ```
    pub fn matches(&self, frame: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        let key = FrameKey::read(frame);
        !key.fragment && self.matchers.iter().any(|matcher| matcher.matches(&key))
    }
}
