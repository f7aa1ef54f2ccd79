//! Slow path of the access list: each change replaces the whole list.

use fastlane::slow::{SlowError, SlowPath, Writer};
use fastlane::table::{EntryId, RecordWriter, State};

use super::text::Line;
use super::{Rule, RuleSet};

/// Name of the table.
pub(crate) const TABLE: &str = "acl";

/// Writer of the access list of a running router.
#[derive(Debug)]
pub(crate) struct Editor {
    record: Writer<RecordWriter<RuleSet>>,
    hits: State<2>,
}

impl Editor {
    /// Attaches as the only writer. The error names another writer.
    pub(crate) fn attach(slow: &SlowPath) -> Result<Self, SlowError> {
        Ok(Self { record: slow.record_writer(TABLE)?, hits: slow.state(TABLE)? })
    }

    /// Returns the current list.
    pub(crate) fn rules(&self) -> Box<RuleSet> {
        Box::new(self.record.get().copied().unwrap_or_else(RuleSet::empty))
    }

    /// Returns the packets and bytes that a rule has matched.
    pub(crate) fn hits(&self, rule: &Rule) -> [u64; 2] {
        let now = self.hits.read(EntryId(rule.counter));
        [now[0].wrapping_sub(rule.before[0]), now[1].wrapping_sub(rule.before[1])]
    }

    /// Replaces the list by `lines`; unchanged rules keep their counts.
    pub(crate) fn replace(&mut self, lines: &[Line]) -> Result<(), String> {
        let old = self.rules();
        let mut new = Box::new(RuleSet::empty());
        new.next_counter = old.next_counter;
        for line in lines {
            match line {
                Line::Default(action) => new.default = *action,
                Line::Rule(rule) => self.add(&old, &mut new, *rule)?,
            }
        }
        self.record.set(&new).map_err(|error| error.to_string())
    }

    /// Adds rules; a rule replaces one of equal priority.
    pub(crate) fn merge(&mut self, lines: &[Line]) -> Result<(), String> {
        let is_replaced = |rule: &Rule| {
            lines
                .iter()
                .any(|line| matches!(line, Line::Rule(new) if new.priority == rule.priority))
        };
        let old = self.rules();
        let kept = old.rules().iter().filter(|rule| !is_replaced(rule)).map(|it| Line::Rule(*it));
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

    fn add(&self, old: &RuleSet, new: &mut RuleSet, mut rule: Rule) -> Result<(), String> {
        let same = old.rules().iter().find(|before| is_same(before, &rule));
        match same {
            Some(same) => rule = *same,
            None => self.number(old, new, &mut rule),
        }
        new.insert(rule)
    }

    /// Assigns a counter to a rule. Its previous owner was deleted so long ago that no lane counts
    /// for it any more; what it counted is subtracted.
    fn number(&self, old: &RuleSet, new: &mut RuleSet, rule: &mut Rule) {
        let capacity = self.hits.capacity().max(1) as u32;
        let used = |number: u32| {
            let mut all = old.rules().iter().chain(new.rules());
            all.any(|rule| rule.counter == number)
        };
        let numbers = (0..capacity).map(|step| (new.next_counter + step) % capacity);
        // More rules than numbers: the last one is nobody's, and not counted.
        let number = numbers.into_iter().find(|number| !used(*number)).unwrap_or(u32::MAX);
        rule.counter = number;
        rule.before = self.hits.read(EntryId(number));
        new.next_counter = number.wrapping_add(1) % capacity;
    }
}

/// Returns true if two rules match and act alike, whatever their counters.
fn is_same(one: &Rule, other: &Rule) -> bool {
    let plain = |rule: &Rule| Rule { counter: 0, before: [0; 2], ..*rule };
    plain(one) == plain(other)
}
