//! Documents agree with the source: structs, paths and links.

use std::collections::BTreeMap;
use std::process::Command;

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
fn the_index_of_results_has_every_run() {
    let output = Command::new(root().join("bench/index")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let committed = std::fs::read(root().join("bench/results/README.md")).unwrap();
    assert!(committed == output.stdout, "run bench/index --write");
    let index = String::from_utf8(committed).unwrap();
    assert!(index.matches("\n| [").count() > 1000, "{} rows", index.matches("\n| [").count());
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

/// Lines of code of a part of the UPF, and those that depend on Fastlane.
type PortingCount = (f64, f64);

/// Returns the counts that `lab/porting` prints, by part.
fn porting_counts() -> BTreeMap<String, PortingCount> {
    let output = Command::new(root().join("lab/porting")).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[0].to_owned(), (words[1].parse().unwrap(), words[3].parse().unwrap()))
    };
    text.lines().map(row).collect()
}

/// The README may be a few changes behind: its lines by 5 %, its shares by 0.5 %.
#[test]
fn lines_of_the_upf_that_depend_on_fastlane_are_those_that_its_readme_says() {
    let mut rest = porting_counts();
    let all = rest.remove("all").expect("a row for all");
    let readme = std::fs::read_to_string(root().join("apps/upf/README.md")).unwrap();
    let rows = readme.lines().skip_while(|line| !line.contains("depend on Fastlane | |")).skip(2);
    let mut wrong = Vec::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split('|').map(str::trim).collect();
        let mut parts = cells[0].split('`').skip(1).step_by(2).filter_map(|it| rest.remove(it));
        let mut counts: Vec<PortingCount> = parts.by_ref().collect();
        if cells[0].ends_with("and the rest") {
            counts.extend(std::mem::take(&mut rest).into_values());
        }
        if cells[0] == "all" {
            counts = vec![all];
        }
        let lines: f64 = counts.iter().map(|it| it.0).sum();
        let depending: f64 = counts.iter().map(|it| it.1).sum();
        let share = 100.0 * depending / lines;
        let said = |cell: &str| cell.trim_end_matches(" %").parse::<f64>().expect("a number");
        let is_near = (said(cells[1]) - lines).abs() <= 0.05 * lines
            && (said(cells[3]) - share).abs() <= 0.5
            && (said(cells[3]) - 100.0 * said(cells[2]) / said(cells[1])).abs() <= 0.06;
        if !is_near {
            wrong.push(format!("{row} is | {lines} | {depending} | {share:.1} % |"));
        }
    }
    assert!(rest.is_empty(), "parts without a row: {rest:?}");
    assert!(wrong.is_empty(), "lab/porting says:\n{}", wrong.join("\n"));
}
