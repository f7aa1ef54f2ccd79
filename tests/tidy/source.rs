//! Source files of the tree and the parts of them that the rules look at.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A Rust file that is tracked or new.
pub(crate) struct Source {
    /// Path from the root of the tree.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A run of doc comment lines and the declaration under it.
pub(crate) struct DocComment {
    /// Line number of its first line, from 1.
    pub(crate) line: usize,
    /// Text of each line, without the slashes.
    pub(crate) body: Vec<String>,
    /// First line of the item under the comment. Empty for the comment of a module.
    pub(crate) item: String,
}

/// A function declaration.
pub(crate) struct Function {
    pub(crate) name: String,
    /// Parameters except `self`, as written.
    pub(crate) parameters: Vec<String>,
}

/// Returns the root of the tree.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable at run time, too, so a copy of the program can look at another tree.
    let tests = std::env::var("CARGO_MANIFEST_DIR");
    let tests = tests.unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&tests).parent().unwrap().to_owned()
}

/// Returns the tracked and new files whose names match `pattern`, as git does.
pub(crate) fn files(pattern: &str) -> Vec<Source> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", pattern])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let read = |path: &str| {
        let text = std::fs::read_to_string(root().join(path)).ok()?;
        Some(Source { path: path.to_owned(), text })
    };
    listed.lines().filter_map(read).collect()
}

/// Returns all Rust files.
pub(crate) fn sources() -> Vec<Source> {
    let sources = files("*.rs");
    assert!(sources.len() > 50, "only {} files: is this the repository?", sources.len());
    sources
}

impl Source {
    /// Returns true if the file holds tests only.
    pub(crate) fn is_test(&self) -> bool {
        let path = &self.path;
        path.contains("/tests/") || path.starts_with("tests/") || path.ends_with("/tests.rs")
    }

    /// Returns the folder of the package that the file belongs to.
    pub(crate) fn package(&self) -> &str {
        let depth =
            if self.path.starts_with("crates/") || self.path.starts_with("apps/") { 2 } else { 1 };
        let end = self.path.match_indices('/').nth(depth - 1).map_or(self.path.len(), |(at, _)| at);
        &self.path[..end]
    }

    /// Returns the text before the tests inside the file.
    pub(crate) fn before_tests(&self) -> &str {
        let end = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        &self.text[..end]
    }

    /// Returns the numbered lines that are code: no comments, no blank lines, no tests.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.before_tests().lines().enumerate().filter(|(_, line)| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//")
        })
    }

    /// Returns the doc comments, those of the module first.
    pub(crate) fn doc_comments(&self) -> Vec<DocComment> {
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        let mut found = Vec::new();
        let mut at = 0;
        while at < lines.len() {
            let Some(mark) = ["//!", "///"].into_iter().find(|mark| lines[at].starts_with(mark))
            else {
                at += 1;
                continue;
            };
            let start = at;
            while at < lines.len() && lines[at].starts_with(mark) {
                at += 1;
            }
            let body = lines[start..at].iter().map(|line| line[3..].trim().to_owned()).collect();
            let item = if mark == "//!" { "" } else { item_after(&lines[at..]) };
            found.push(DocComment { line: start + 1, body, item: item.to_owned() });
        }
        found
    }

    /// Returns the functions that the file declares.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        let mut offset = 0;
        for line in self.text.lines() {
            if let Some(name) = declared_function(line) {
                let parameters = parameters(&self.text[offset..]);
                found.push(Function { name: name.to_owned(), parameters });
            }
            offset += line.len() + 1;
        }
        found
    }
}

/// Returns the first line of the item after a comment: attributes are skipped.
fn item_after<'a>(lines: &[&'a str]) -> &'a str {
    let mut depth = 0_isize;
    for line in lines {
        if depth == 0 && !line.starts_with("#[") && !line.starts_with("//") {
            return line;
        }
        let count = |bracket| line.matches(bracket).count().cast_signed();
        depth += count('[') - count(']');
    }
    ""
}

/// Returns the name of the function that the line declares.
pub(crate) fn declared_function(line: &str) -> Option<&str> {
    const BEFORE: [&str; 8] =
        ["pub", "pub(crate)", "pub(super)", "const", "unsafe", "extern", "async", "\"C\""];
    let (before, after) = line.split_once("fn ")?;
    let is_declaration = before.split_whitespace().all(|word| BEFORE.contains(&word));
    let name = after.split(['(', '<']).next()?;
    (is_declaration && !name.is_empty()).then_some(name)
}

/// Returns the parameters of the function that `text` begins with, except `self`.
fn parameters(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut current, mut depth, mut angle, mut previous) = (String::new(), 0, 0, ' ');
    // The visibility may have parentheses of its own: `pub(crate) fn`.
    let text = text.split_once("fn ").map_or(text, |(_, rest)| rest);
    for character in text.chars() {
        match character {
            '<' => angle += 1,
            '>' if previous != '-' && previous != '=' => angle -= 1,
            '(' | '[' | '{' if depth > 0 || angle == 0 => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            _ => {}
        }
        previous = character;
        if depth == 0 && !current.is_empty() {
            break;
        }
        if depth == 1 && angle == 0 && character == ',' {
            found.push(std::mem::take(&mut current));
            current.push(' ');
        } else if depth > 0 {
            current.push(character);
        }
    }
    found.push(current);
    let is_self = |text: &str| text == "self" || text.starts_with("self:");
    found
        .iter()
        .map(|text| text.trim_start_matches('(').split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|text| !text.is_empty())
        .filter(|text| {
            let bare = text.trim_start_matches('&');
            let bare = if bare.starts_with('\'') {
                bare.split_once(' ').map_or("", |p| p.1)
            } else {
                bare
            };
            !is_self(bare.trim_start_matches("mut "))
        })
        .collect()
}
