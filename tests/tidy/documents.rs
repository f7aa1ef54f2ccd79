//! Documents agree with the source: structs, paths and links.

use crate::source::{files, root};

/// Longest README of the project, in lines.
const README_LINES: usize = 150;

/// Returns the fields of the struct that `declaration` opens in `text`, in order.
fn fields(text: &str, declaration: &str) -> Vec<String> {
    let start = text.find(declaration).unwrap_or_else(|| panic!("no {declaration:?}"));
    let body = &text[start + declaration.len()..];
    let body = &body[..body.find("\n}").expect("the struct ends")];
    body.lines()
        .map(|line| line.split("//").next().unwrap())
        .flat_map(|line| line.split(", "))
        .filter_map(|field| field.split_once(": "))
        .map(|(name, _)| name.trim().trim_start_matches("pub ").to_owned())
        .filter(|name| !name.is_empty() && !name.contains(['(', '#', ' ']))
        .collect()
}

#[test]
fn architecture_shows_the_packet_as_it_is() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let declaration = "pub struct Packet {";
    let shown = fields(&read("ARCHITECTURE.md"), declaration);
    assert_eq!(shown, fields(&read("crates/core/src/packet.rs"), declaration));
    assert!(shown.len() >= 8, "{shown:?}");
}

#[test]
fn links_and_named_files_exist() {
    let mut wrong = Vec::new();
    for document in files("*.md") {
        let folder = root().join(&document.path);
        let folder = folder.parent().unwrap();
        let mut in_code = false;
        for (number, line) in document.text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            if in_code {
                continue;
            }
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = target.split('#').next().unwrap();
                if !path.is_empty() && !path.contains("://") && !folder.join(path).exists() {
                    wrong.push(format!("{}:{} links to {target}", document.path, number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} links:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn paths_of_recipes_exist() {
    let mut wrong = Vec::new();
    for path in ["ARCHITECTURE.md", "apps/upf/ARCHITECTURE.md"] {
        let Ok(text) = std::fs::read_to_string(root().join(path)) else {
            wrong.push(format!("{path} is missing"));
            continue;
        };
        let folder = root().join(path);
        let folder = folder.parent().unwrap();
        // The text of a link may be short: the link itself is checked above.
        let text = text.replace("[`", "[");
        let text = text.replace("`](", "](");
        for word in text.split('`').skip(1).step_by(2) {
            let is_path = word.contains('/')
                && [".rs", ".c", ".json"].iter().any(|end| word.ends_with(end))
                && !word.contains(['*', ' ', '{', '<']);
            let candidates = [
                root().join(word),
                root().join("crates").join(word),
                folder.join(word),
                folder.join("src").join(word),
            ];
            if is_path && !candidates.iter().any(|path| path.exists()) {
                wrong.push(format!("{path} names {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} paths:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_readme_is_short() {
    let lines = std::fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines, more than {README_LINES}");
}
