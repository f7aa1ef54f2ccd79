//! The graph of modules of each package: an edge for each import, re-exports followed.
//!
//! A module and the modules inside it count as one unit for its siblings, so a circle is one among
//! siblings. Paths between a parent and its own children are allowed.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// Path of a module inside its package, from the root of the crate.
type Path = Vec<String>;

/// A name that a `use` declaration brings into a module.
struct Import {
    /// Name in the importing module, or `*`.
    alias: String,
    /// Path as written.
    target: Path,
}

/// The modules of one crate with their imports and the paths in their code.
#[derive(Default)]
struct Modules {
    imports: BTreeMap<Path, Vec<Import>>,
    /// Paths that begin with `crate`, `self` or `super` outside of `use`.
    mentions: BTreeMap<Path, Vec<Path>>,
}

/// Returns a line for each circle among sibling modules.
pub(crate) fn circles(sources: &[Source]) -> Vec<String> {
    let mut packages: BTreeMap<&str, Modules> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let Some(path) = module_path(source) else {
            continue;
        };
        let modules = packages.entry(source.package()).or_default();
        let code: String = source.code().flat_map(|(_, line)| [line, "\n"]).collect();
        modules.imports.insert(path.clone(), imports(&code));
        modules.mentions.insert(path, mentions(&code));
    }
    let mut found = Vec::new();
    for (package, modules) in &packages {
        for (parent, edges) in modules.sibling_edges() {
            for circle in strongly_connected(&edges) {
                let of = if parent.is_empty() { "its root".to_owned() } else { parent.join("::") };
                found.push(format!("{package}, in {of}: {}", circle.join(" <-> ")));
            }
        }
    }
    found
}

/// Returns the module path of a file of a library or of the main program.
fn module_path(source: &Source) -> Option<Path> {
    let inside = source.path[source.package().len()..].strip_prefix("/src/")?;
    if inside.starts_with("bin/") {
        return None;
    }
    let mut path: Path = inside.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if matches!(path.last()?.as_str(), "lib" | "main" | "mod") {
        path.pop();
    }
    Some(path)
}

/// Returns what the `use` declarations of the code import.
fn imports(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line_start = code[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = code[line_start..at].trim();
        if !(before.is_empty() || before.starts_with("pub")) {
            continue;
        }
        // A line of a message may begin with the word, too.
        let is_tree = |c: char| c.is_alphanumeric() || c.is_whitespace() || "_:{},*".contains(c);
        let tree = code[at + 4..].split(';').next().unwrap();
        if tree.chars().all(is_tree) {
            expand(tree, &[], &mut found);
        }
    }
    found
}

/// Appends the imports of one `use` tree.
fn expand(tree: &str, prefix: &[String], found: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some(brace) = tree.find('{') {
        let mut path = prefix.to_vec();
        path.extend(segments(&tree[..brace]));
        let inner = &tree[brace + 1..tree.rfind('}').unwrap_or(tree.len())];
        let (mut depth, mut start) = (0, 0);
        for (at, character) in inner.char_indices() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&inner[start..at], &path, found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        expand(&inner[start..], &path, found);
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(p, a)| (p, Some(a.trim())));
    let mut target = prefix.to_vec();
    target.extend(segments(path));
    if target.last().is_some_and(|last| last == "self") && target.len() > 1 {
        target.pop();
    }
    if let Some(last) = target.last() {
        let alias = alias.unwrap_or(last).to_owned();
        found.push(Import { alias, target });
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect()
}

/// Returns the paths in the code that begin with `crate`, `self` or `super`.
fn mentions(code: &str) -> Vec<Path> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(|c| is_name(c) || c == ':' || c == '$') {
                continue;
            }
            let end = code[at..].find(|c: char| !is_name(c) && c != ':').unwrap_or(code.len() - at);
            found.push(segments(&code[at..at + end]));
        }
    }
    found
}

impl Modules {
    /// Returns the module that defines what `path`, written in `module`, names.
    fn resolve(&self, module: &Path, path: &[String], depth: usize) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (Path::new(), rest),
            "self" => (module.clone(), rest),
            "super" => (module[..module.len().checked_sub(1)?].to_vec(), rest),
            _ => (module.clone(), path),
        };
        while let Some((next, after)) = rest.split_first() {
            let mut child = at.clone();
            if next == "super" {
                child.pop();
            } else {
                child.push(next.clone());
            }
            if self.imports.contains_key(&child) {
                (at, rest) = (child, after);
                continue;
            }
            let import = self.imports.get(&at)?.iter().find(|import| import.alias == *next);
            if let Some(import) = import.filter(|_| depth < 8) {
                let mut target = import.target.clone();
                target.extend_from_slice(after);
                // A name of another crate is no edge.
                return self.resolve(&at, &target, depth + 1);
            }
            let is_relative = matches!(first.as_str(), "crate" | "self" | "super");
            return (is_relative || at != *module).then_some(at);
        }
        Some(at)
    }

    /// Returns for each parent the edges among its children, children standing for all inside.
    fn sibling_edges(&self) -> BTreeMap<Path, BTreeSet<(String, String)>> {
        let mut edges: BTreeMap<Path, BTreeSet<(String, String)>> = BTreeMap::new();
        for (module, imports) in &self.imports {
            let targets = imports.iter().map(|import| &import.target);
            for path in targets.chain(&self.mentions[module]) {
                let Some(target) = self.resolve(module, path, 0) else {
                    continue;
                };
                let common = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                    let pair = (from.clone(), to.clone());
                    edges.entry(module[..common].to_vec()).or_default().insert(pair);
                }
            }
        }
        edges
    }
}

/// Returns the groups of more than one node that all reach each other.
fn strongly_connected(edges: &BTreeSet<(String, String)>) -> Vec<Vec<String>> {
    let reach = |start: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start.to_owned()]);
        while let Some(node) = open.pop() {
            for (_, to) in edges.iter().filter(|(from, _)| *from == node) {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let nodes: BTreeSet<&String> = edges.iter().flat_map(|(from, to)| [from, to]).collect();
    let reached: BTreeMap<&String, BTreeSet<String>> =
        nodes.iter().map(|node| (*node, reach(node))).collect();
    let mut groups = BTreeSet::new();
    for node in &nodes {
        let group: Vec<String> =
            reached[node].iter().filter(|other| reached[other].contains(*node)).cloned().collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

#[test]
fn a_circle_is_found_through_a_re_export_and_a_parent_is_none() {
    let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let sources = [
        file("crates/x/src/lib.rs", "mod a;\nmod b;\npub use a::Name;\n"),
        file("crates/x/src/a.rs", "mod inner;\nuse crate::b::{Other, more::Third as Fourth};\n"),
        file("crates/x/src/a/inner.rs", "use super::Thing;\nfn f() { super::g(); }\n"),
        file("crates/x/src/b.rs", "use crate::Name;\n"),
    ];
    assert_eq!(circles(&sources), ["crates/x, in its root: a <-> b"]);
    assert_eq!(circles(&sources[..3]), [""; 0]);
}
