//! The layout of files: one subject each, no name twice, no circle, short functions.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::circles;
use crate::source::{declared_function, sources};

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 70;
const LINE_WIDTH: usize = 100;
const PARAMETERS: usize = 5;
const IMPLEMENTATION_FILES: usize = 3;

/// File names with a fixed meaning, which every package may have many of.
const COMMON_NAMES: [&str; 6] = ["mod.rs", "tests.rs", "error.rs", "lib.rs", "main.rs", "build.rs"];

#[test]
fn files_and_lines_are_short() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.code().count();
        if lines > FILE_LINES && !source.is_test() {
            wrong.push(format!("{}: {lines} lines of code, more than {FILE_LINES}", source.path));
        }
        for (number, line) in source.text.lines().enumerate() {
            let width = line.chars().count();
            if width > LINE_WIDTH && !line.contains("https://") {
                wrong.push(format!("{}:{} is {width} characters wide", source.path, number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_are_short() {
    let mut wrong = Vec::new();
    for source in sources() {
        // rustfmt has laid the code out: a function ends at the brace that is indented like it.
        let mut open: Option<(usize, String, usize)> = None;
        for (number, line) in source.text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            match &open {
                Some((start, name, depth)) if *depth == indent && line.trim() == "}" => {
                    let length = number - start + 1;
                    if length > FUNCTION_LINES {
                        let path = &source.path;
                        wrong.push(format!("{path}:{} {name} has {length} lines", start + 1));
                    }
                    open = None;
                }
                Some(_) => {}
                None if line.trim_end().ends_with([';', '}']) => {}
                None => {
                    open = declared_function(line).map(|name| (number, name.to_owned(), indent));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_take_few_parameters_and_no_tuples() {
    let mut wrong = Vec::new();
    for source in sources() {
        for function in source.functions() {
            let is_tuple = |parameter: &&String| {
                let kind = parameter.split_once(": ").map_or("", |(_, kind)| kind);
                let kind = kind.trim_start_matches('&');
                kind.starts_with('(') && kind != "()" && !kind.starts_with("(dyn ")
            };
            let is_long = function.parameters.len() > PARAMETERS;
            if is_long || function.parameters.iter().any(|parameter| is_tuple(&parameter)) {
                let place = format!("{} {}", source.path, function.name);
                if !wrong.contains(&place) {
                    wrong.push(place);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} functions:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_two_files_of_a_package_share_a_name() {
    let mut names: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for source in sources() {
        let name = source.path.rsplit('/').next().unwrap().to_owned();
        if !COMMON_NAMES.contains(&name.as_str()) {
            names.entry((source.package().to_owned(), name)).or_default().push(source.path);
        }
    }
    let wrong: Vec<String> =
        names.into_values().filter(|paths| paths.len() > 1).map(|paths| paths.join(" ")).collect();
    assert!(wrong.is_empty(), "{} names:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_implementation_is_in_at_most_three_files() {
    let mut files: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        for line in source.before_tests().lines() {
            let Some(name) = inherent_implementation(line) else {
                continue;
            };
            let key = (source.package().to_owned(), name.to_owned());
            files.entry(key).or_default().insert(source.path.clone());
        }
    }
    let wrong: Vec<String> = files
        .iter()
        .filter(|(_, paths)| paths.len() > IMPLEMENTATION_FILES)
        .map(|((package, name), _)| format!("{package} {name}"))
        .collect();
    assert!(wrong.is_empty(), "{} types:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the type of which the line opens an `impl` without a trait.
fn inherent_implementation(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        None => rest.strip_prefix(' ')?,
        Some(generics) => {
            let mut depth = 1;
            let end = generics.char_indices().find(|(at, character)| {
                match character {
                    '<' => depth += 1,
                    '>' if !generics[..*at].ends_with('-') => depth -= 1,
                    _ => {}
                }
                depth == 0
            })?;
            generics[end.0 + 1..].trim_start()
        }
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (!rest.contains(" for ") && end > 0).then_some(&rest[..end])
}

#[test]
fn modules_form_no_circle() {
    let circles = circles(&sources());
    assert!(circles.is_empty(), "{} circles:\n{}", circles.len(), circles.join("\n"));
}
