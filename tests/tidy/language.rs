//! The language of comments and names, as docs/glossary.md and the guide to style have it.

use crate::source::{DocComment, Source, sources};

/// Words that open a question or lean on the comment before. A comment stands alone.
const OPENINGS: [&str; 14] = [
    "What", "Whether", "How", "Where", "Which", "Who", "Whose", "Whom", "Why", "That", "Of",
    "Says", "Said", "So",
];

/// Function words and participles, and words of which each stood for many things.
const TYPE_NAMES: [&str; 61] = [
    "How",
    "Who",
    "Which",
    "What",
    "Then",
    "Later",
    "Next",
    "To",
    "On",
    "Out",
    "Way",
    "Ways",
    "Place",
    "Places",
    "Told",
    "Asked",
    "Given",
    "Seen",
    "Held",
    "Kept",
    "Wanted",
    "Nowhere",
    "All",
    "Everything",
    "Put",
    "Around",
    "Beside",
    "Said",
    "Known",
    "Found",
    "Taken",
    "Made",
    "Left",
    "Gone",
    "Done",
    "Ready",
    "There",
    "Here",
    "Whose",
    "Where",
    "When",
    "Custody",
    "Home",
    "Guests",
    "Takes",
    "Passage",
    "Park",
    "Mover",
    "LaneParts",
    "Census",
    "Lent",
    "Obtained",
    "Doubt",
    "Care",
    "Talking",
    "Trouble",
    "Desk",
    "Facts",
    "Fuse",
    "Keeper",
    "Half",
];

/// Plural nouns and other words in -s that open a comment as no verb does.
const NOT_VERBS: [&str; 60] = [
    "Is",
    "Its",
    "This",
    "As",
    "Has",
    "Us",
    "Thus",
    "Less",
    "Yes",
    "Always",
    "Does",
    "Was",
    "Others",
    "Ours",
    "Frames",
    "Packets",
    "Bytes",
    "Octets",
    "Lanes",
    "Ports",
    "Queues",
    "Sessions",
    "Rules",
    "Tables",
    "Messages",
    "Entries",
    "Addresses",
    "Counters",
    "Descriptors",
    "Rings",
    "Sockets",
    "Devices",
    "Interfaces",
    "Routes",
    "Neighbours",
    "Files",
    "Lines",
    "Numbers",
    "Names",
    "Keys",
    "Values",
    "Words",
    "Slots",
    "Those",
    "These",
    "Settings",
    "Options",
    "Errors",
    "Nanoseconds",
    "Milliseconds",
    "Seconds",
    "Samples",
    "Threads",
    "Requests",
    "Responses",
    "Tunnels",
    "Fields",
    "Headers",
    "Fragments",
    "Statistics",
];

/// Share of function comments that open with a verb, in percent, at least.
const VERB_SHARE: usize = 97;

/// Returns the first word of a comment, without quotation marks.
fn opening(comment: &DocComment) -> &str {
    let first = comment.body.iter().find(|line| !line.is_empty()).map_or("", String::as_str);
    let first = first.trim_start_matches(['`', '"', '\'', '(', '[', '*']);
    let end = first.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(first.len());
    &first[..end]
}

/// Calls `visit` with each doc comment that has text.
fn each_comment(mut visit: impl FnMut(&Source, &DocComment)) {
    for source in sources() {
        for comment in source.doc_comments() {
            if comment.body.iter().any(|line| !line.is_empty()) {
                visit(&source, &comment);
            }
        }
    }
}

#[test]
fn comments_open_with_a_verb_or_a_noun() {
    let mut wrong = Vec::new();
    each_comment(|source, comment| {
        let word = opening(comment);
        if OPENINGS.contains(&word) {
            wrong.push(format!("{}:{} opens with {word:?}", source.path, comment.line));
        }
    });
    assert!(wrong.is_empty(), "{} comments:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn comments_stand_alone() {
    let mut wrong = Vec::new();
    each_comment(|source, comment| {
        let text = comment.body.join(" ");
        if text.split_whitespace().count() < 2 {
            wrong.push(format!("{}:{} is one word: {text}", source.path, comment.line));
        }
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        if words.windows(2).any(|pair| pair == ["so", "many"]) {
            wrong.push(format!("{}:{} counts \"so many\"", source.path, comment.line));
        }
    });
    assert!(wrong.is_empty(), "{} comments:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn comments_of_functions_open_with_a_verb() {
    let (mut all, mut others) = (0, Vec::new());
    each_comment(|source, comment| {
        let Some(name) = crate::source::declared_function(&comment.item) else {
            return;
        };
        all += 1;
        let word = opening(comment);
        if !word.ends_with('s') || NOT_VERBS.contains(&word) {
            others.push(format!("{}:{} {name}: {:?}", source.path, comment.line, comment.body[0]));
        }
    });
    let share = (all - others.len()) * 100 / all;
    println!("{} of {all} comments of functions open with a verb", all - others.len());
    assert!(share >= VERB_SHARE, "{share} % of {all}:\n{}", others.join("\n"));
}

#[test]
fn types_are_nouns_of_the_field() {
    const KINDS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];
    let mut wrong = Vec::new();
    for source in sources() {
        for (number, line) in source.text.lines().enumerate() {
            let line = line.trim();
            let line = line.split_once("pub").map_or(line, |(before, after)| {
                let after = after.split_once(") ").map_or(after, |(_, after)| after);
                if before.is_empty() { after.trim() } else { line }
            });
            let Some(rest) = KINDS.into_iter().find_map(|kind| line.strip_prefix(kind)) else {
                continue;
            };
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            if TYPE_NAMES.contains(&&rest[..end]) {
                wrong.push(format!("{}:{}: {}", source.path, number + 1, &rest[..end]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} types:\n{}", wrong.len(), wrong.join("\n"));
}
