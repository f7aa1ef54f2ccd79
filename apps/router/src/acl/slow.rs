//! Slow path of the access list: each change replaces the whole list.

use std::collections::{HashMap, HashSet};

use fastlane::slow::{SlowError, SlowPath, Writer};
use fastlane::table::{ClassifierWriter, EntryId, State};

use zerocopy::IntoBytes;

use super::compiled::Decision;
use super::police::{self, WORDS};
use super::text::Line;
use super::{MeterId, Rule, RuleSet, word};

/// Name of the table.
pub(crate) const TABLE: &str = "acl";
/// Number of a rule for which no counter is left.
const UNCOUNTED: u32 = u32::MAX;
/// Name of the table of meters.
const METERS: &str = "police";

/// Writer of the access list of a running router.
#[derive(Debug)]
pub(crate) struct Editor {
    classifier: Writer<ClassifierWriter<Decision>>,
    hits: State<2>,
    /// Meters, if the router has any.
    meters: Option<State<WORDS>>,
}

impl Editor {
    /// Attaches as the only writer. The error names another writer.
    pub(crate) fn attach(slow: &SlowPath) -> Result<Self, SlowError> {
        let meters = match slow.state(METERS) {
            Ok(meters) => Some(meters),
            Err(SlowError::NoTable { .. }) => None,
            Err(error) => return Err(error),
        };
        let classifier = slow.classifier_writer(TABLE)?;
        Ok(Self { classifier, hits: slow.state(TABLE)?, meters })
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

    /// Returns the packets and bytes of each colour that the meter of a rule gave.
    pub(crate) fn colours(&self, rule: &Rule) -> [[u64; 2]; 3] {
        self.meters.as_ref().map_or([[0; 2]; 3], |meters| police::colours(meters, rule.meter))
    }

    /// Replaces the list by `lines`; unchanged rules keep their counts.
    pub(crate) fn replace(&mut self, lines: &[Line]) -> Result<(), String> {
        self.exchange(lines)?;
        let rules = self.rules();
        let is_uncounted = rules.rules().iter().any(|rule| rule.counter == UNCOUNTED);
        if is_uncounted && rules.rules().len() <= self.hits.capacity() {
            // Those that have gone were counted until now, and have left their numbers. The list is
            // in force: if a lane delays the exchange, the next one counts them.
            let _ = self.exchange(lines);
        }
        Ok(())
    }

    /// Replaces the list. Rules that find no number that is free since the last time are not
    /// counted.
    fn exchange(&mut self, lines: &[Line]) -> Result<(), String> {
        let old = self.rules();
        let known: HashMap<Vec<u8>, &Rule> =
            old.rules().iter().map(|rule| (identity(rule), rule)).collect();
        let mut used: HashSet<u32> = old.rules().iter().map(|rule| rule.counter).collect();
        // The meter of a rule that goes is free at once: lanes see that its words are of another.
        let kept = lines.iter().filter_map(|line| match line {
            Line::Rule(rule) if rule.action == word::POLICE => known.get(&identity(rule)),
            _ => None,
        });
        let mut used_meters: HashSet<u32> = kept.map(|rule| rule.meter.index).collect();
        let (next_counter, epochs) = (old.next_counter, old.epochs);
        let mut new = RuleSet { next_counter, epochs, ..RuleSet::default() };
        let mut rules = Vec::new();
        for line in lines {
            match line {
                Line::Default(action) => new.default = *action,
                Line::Rule(rule) => rules.push(match known.get(&identity(rule)) {
                    Some(same) if same.counter != UNCOUNTED => **same,
                    Some(same) => self.number(&mut used, &mut new.next_counter, **same),
                    None => {
                        let mut rule = self.number(&mut used, &mut new.next_counter, *rule);
                        if rule.action == word::POLICE {
                            new.epochs += 1;
                            rule.meter = self.meter(&mut used_meters, new.epochs)?;
                        }
                        rule
                    }
                }),
            }
        }
        new.set_rules(rules)?;
        let replaced = new.compile(self.hits.lanes(), |list| self.classifier.replace(list));
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
        let number = numbers.find(|number| !used.contains(number)).unwrap_or(UNCOUNTED);
        used.insert(number);
        rule.counter = number;
        rule.before = self.hits.read(EntryId(number));
        *next = number.wrapping_add(1) % capacity;
        rule
    }

    /// Assigns a meter to a rule.
    fn meter(&self, used: &mut HashSet<u32>, epoch: u64) -> Result<MeterId, String> {
        let meters = self.meters.as_ref().ok_or(
            "the router has no meters for `police`; write `\"police\": true` in its `app` and \
             `\"police\": { \"capacity\": 64 }` in its `tables`",
        )?;
        let mut numbers = 0..meters.capacity() as u32;
        let index = numbers.find(|number| !used.contains(number)).ok_or_else(|| {
            let capacity = meters.capacity();
            format!("all {capacity} meters are in use; raise `tables.police.capacity`")
        })?;
        used.insert(index);
        Ok(MeterId { index, reserved: 0, epoch })
    }
}

/// Returns what a rule matches and does, whatever its counters.
fn identity(rule: &Rule) -> Vec<u8> {
    Rule { counter: 0, before: [0; 2], meter: MeterId::default(), ..*rule }.as_bytes().to_vec()
}
