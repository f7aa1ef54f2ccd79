//! Slow path of the access list: each change replaces the whole list.

use std::collections::{HashMap, HashSet};

use fastlane::slow::{SlowError, SlowPath, Writer};
use fastlane::table::{ClassifierWriter, EntryId, State};

use zerocopy::IntoBytes;

use super::compiled::Decision;
use super::text::Line;
use super::{Rule, RuleSet};

/// Name of the table.
pub(crate) const TABLE: &str = "acl";

/// Writer of the access list of a running router.
#[derive(Debug)]
pub(crate) struct Editor {
    classifier: Writer<ClassifierWriter<Decision>>,
    hits: State<2>,
}

impl Editor {
    /// Attaches as the only writer. The error names another writer.
    pub(crate) fn attach(slow: &SlowPath) -> Result<Self, SlowError> {
        Ok(Self { classifier: slow.classifier_writer(TABLE)?, hits: slow.state(TABLE)? })
    }

    /// Returns the current list.
    pub(crate) fn rules(&self) -> RuleSet {
        RuleSet::restore(self.classifier.source())
    }

    /// Returns the packets and bytes that a rule has matched.
    pub(crate) fn hits(&self, rule: &Rule) -> [u64; 2] {
        let now = self.hits.read(EntryId(rule.counter));
        [now[0].wrapping_sub(rule.before[0]), now[1].wrapping_sub(rule.before[1])]
    }

    /// Replaces the list by `lines`; unchanged rules keep their counts.
    pub(crate) fn replace(&mut self, lines: &[Line]) -> Result<(), String> {
        let old = self.rules();
        let known: HashMap<Vec<u8>, &Rule> =
            old.rules().iter().map(|rule| (identity(rule), rule)).collect();
        let mut used: HashSet<u32> = old.rules().iter().map(|rule| rule.counter).collect();
        let mut new = RuleSet { next_counter: old.next_counter, ..RuleSet::default() };
        let mut rules = Vec::new();
        for line in lines {
            match line {
                Line::Default(action) => new.default = *action,
                Line::Rule(rule) => rules.push(match known.get(&identity(rule)) {
                    Some(same) => **same,
                    None => self.number(&mut used, &mut new.next_counter, *rule),
                }),
            }
        }
        new.set_rules(rules)?;
        let replaced = new.compile(|list| self.classifier.replace(list));
        replaced.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Adds rules; a rule replaces one of equal priority.
    pub(crate) fn merge(&mut self, lines: &[Line]) -> Result<(), String> {
        let priority = |line: &Line| match line {
            Line::Rule(rule) => Some(rule.priority),
            Line::Default(_) => None,
        };
        let replaced: HashSet<u32> = lines.iter().filter_map(priority).collect();
        let old = self.rules();
        let kept = old.rules().iter().filter(|rule| !replaced.contains(&rule.priority));
        let kept = kept.map(|rule| Line::Rule(*rule));
        let all: Vec<Line> =
            [Line::Default(old.default)].into_iter().chain(kept).chain(lines.to_vec()).collect();
        self.replace(&all)
    }

    /// Deletes the rules with these priorities. Returns false if one does not exist.
    pub(crate) fn remove(&mut self, priorities: &[u32]) -> Result<bool, String> {
        let old = self.rules();
        let goes = |rule: &&Rule| priorities.contains(&rule.priority);
        let all_there = old.rules().iter().filter(goes).count() == priorities.len();
        if all_there {
            let kept = old.rules().iter().filter(|rule| !goes(rule)).map(|it| Line::Rule(*it));
            let kept: Vec<Line> = [Line::Default(old.default)].into_iter().chain(kept).collect();
            self.replace(&kept)?;
        }
        Ok(all_there)
    }

    /// Assigns a counter to a rule. Its previous owner was deleted so long ago that no lane counts
    /// for it any more; what it counted is subtracted.
    fn number(&self, used: &mut HashSet<u32>, next: &mut u32, mut rule: Rule) -> Rule {
        let capacity = self.hits.capacity().max(1) as u32;
        let mut numbers = (0..capacity).map(|step| (*next + step) % capacity);
        // More rules than numbers: the last one is nobody's, and not counted.
        let number = numbers.find(|number| !used.contains(number)).unwrap_or(u32::MAX);
        used.insert(number);
        rule.counter = number;
        rule.before = self.hits.read(EntryId(number));
        *next = number.wrapping_add(1) % capacity;
        rule
    }
}

/// Returns what a rule matches and does, whatever its counters.
fn identity(rule: &Rule) -> Vec<u8> {
    Rule { counter: 0, before: [0; 2], ..*rule }.as_bytes().to_vec()
}
