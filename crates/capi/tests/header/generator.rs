//! Generator of the header from the Rust sources: constants, structs and functions with comments.
//!
//! It knows exactly the Rust that this crate writes for C, as rustfmt lays it out, and panics at
//! anything else.

use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
/* Fastlane: network applications in C11 or C++.
 *
 * Link with -lfastlane_c. The command line, the configuration and the exit statuses are those of
 * every Fastlane application. Strings are in UTF-8 and end with NUL.
 *
 * Generated from crates/capi/src. */
#ifndef FASTLANE_H
#define FASTLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

/* The lane that a state is made for, and one turn of a lane. */
struct fl_lane;
struct fl_turn;
";

const TAIL: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

/// Assertions that the offsets of `struct fl_packet` are those of Rust.
const ASSERTIONS: &str = "
#ifdef __cplusplus
#define FL_ASSERT(condition, text) static_assert(condition, text)
#else
#define FL_ASSERT(condition, text) _Static_assert(condition, text)
#endif
";

/// Generates the header from the files in `sources`.
pub(super) fn header(sources: &Path) -> String {
    let read = |name: &str| std::fs::read_to_string(sources.join(name)).expect(name);
    let mut header = HEAD.to_owned();
    let mut functions = String::new();
    for name in ["packet.rs", "application.rs", "turn.rs", "lane.rs", "entry.rs"] {
        let text = read(name);
        let end = text.find("#[cfg(test)]").unwrap_or(text.len());
        let mut lines = text[..end].lines().peekable();
        let mut comment = Vec::new();
        while let Some(line) = lines.next() {
            if let Some(text) = line.strip_prefix("///") {
                comment.push(text.trim_start().to_owned());
            } else if let Some(constant) = line.strip_prefix("pub const FL_") {
                header += &constant_of(&comment, constant);
                comment.clear();
            } else if line == "#[repr(C)]" {
                let name = lines.next().and_then(|line| line.strip_prefix("pub struct "));
                let name = name.and_then(|line| line.strip_suffix(" {")).expect("a struct");
                let members: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
                header += &structure_of(&comment, name, &members);
                if name == "Packet" {
                    header += &assertions();
                }
                comment.clear();
            } else if line == "#[unsafe(no_mangle)]" {
                let mut signature = String::new();
                while !signature.ends_with('{') {
                    signature += lines.next().expect("a function").trim();
                    signature += if signature.ends_with(',') { " " } else { "" };
                }
                functions += &function_of(&comment, &signature);
                comment.clear();
            } else if !line.starts_with("#[") {
                comment.clear();
            }
        }
    }
    header + &functions + "\n" + &read("inline.h") + TAIL
}

/// Formats a comment without the sections for callers from Rust.
fn comment_of(lines: &[String], indent: &str) -> String {
    let safety = lines.iter().position(|line| line == "# Safety").unwrap_or(lines.len());
    let text = lines[..safety].join("\n");
    let text = text.trim_end().replace('\n', &format!("\n{indent} * "));
    let text: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("{indent}/* {} */\n", text.join("\n"))
}

/// Converts `NAME: u32 = 1 << 24;` to a C constant.
fn constant_of(comment: &[String], text: &str) -> String {
    let (name, text) = text.split_once(": ").expect("a type");
    let (kind, value) =
        text.strip_suffix(';').and_then(|it| it.split_once(" = ")).expect("a value");
    let value = match value.contains(' ') {
        true => format!("({value})"),
        false => value.to_owned(),
    };
    format!("\n{}#define FL_{name} (({}){value})\n", comment_of(comment, ""), type_of(kind))
}

fn structure_of(comment: &[String], name: &str, members: &[&str]) -> String {
    let mut text = format!("\n{}struct fl_{} {{\n", comment_of(comment, ""), name.to_lowercase());
    let mut comment = Vec::new();
    let mut declaration = String::new();
    for line in members {
        if let Some(line) = line.strip_prefix("    ///") {
            comment.push(line.trim_start().to_owned());
            continue;
        }
        declaration += line.trim();
        if declaration.ends_with(',') && line.starts_with("    ") && !line.starts_with("     ") {
            let (name, kind) = declaration
                .strip_prefix("pub ")
                .and_then(|it| it.strip_suffix(','))
                .and_then(|it| it.split_once(": "))
                .expect("a public member");
            text += &comment_of(&comment, "    ");
            writeln!(text, "    {};", declarator(name, kind)).unwrap();
            declaration.clear();
            comment.clear();
        } else if declaration.ends_with(',') {
            declaration.push(' ');
        }
    }
    text + "};\n"
}

/// Formats a member or parameter declaration, including function pointers.
fn declarator(name: &str, kind: &str) -> String {
    let function = kind.strip_prefix("Option<").and_then(|it| it.strip_suffix('>'));
    let Some(function) = function else {
        let kind = type_of(kind);
        let space = if kind.ends_with('*') { "" } else { " " };
        return format!("{kind}{space}{name}");
    };
    let signature = function.trim_end_matches(',').strip_prefix("unsafe extern \"C\" fn(");
    let (parameters, result) = signature.and_then(|it| it.rsplit_once(')')).expect("a function");
    format!("{} (*{name})({})", result_of(result), parameters_of(parameters))
}

fn function_of(comment: &[String], signature: &str) -> String {
    let signature = signature.strip_prefix("pub ").expect("a public function");
    let signature = signature.trim_start_matches("unsafe ");
    let signature = signature.strip_prefix("extern \"C\" fn ").expect("a function for C");
    let (name, rest) = signature.split_once('(').expect("parameters");
    let (parameters, result) = rest.rsplit_once(')').expect("parameters");
    let result = result_of(result.trim_end_matches('{').trim_end());
    let space = if result.ends_with('*') { "" } else { " " };
    let start = format!("{result}{space}{name}(");
    let whole = format!("{start}{});", parameters_of(parameters));
    let whole = match whole.len() <= 100 {
        true => whole,
        false => {
            let first = whole[..100].rfind(", ").expect("short parameters");
            let (first, rest) = (&whole[..first], &whole[first + 2..]);
            format!("{first},\n{}{rest}", " ".repeat(start.len()))
        }
    };
    format!("\n{}{whole}\n", comment_of(comment, ""))
}

fn parameters_of(text: &str) -> String {
    let text = text.trim().trim_end_matches(',');
    if text.is_empty() {
        return "void".to_owned();
    }
    let one = |parameter: &str| {
        let (name, kind) = parameter.trim().split_once(": ").expect("a name and a type");
        declarator(name, kind)
    };
    text.split(", ").map(one).collect::<Vec<_>>().join(", ")
}

fn result_of(text: &str) -> String {
    text.trim().strip_prefix("-> ").map_or_else(|| "void".to_owned(), type_of)
}

/// Converts a type to C; a pointer ends with `*`.
fn type_of(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut ") {
        let target = type_of(target);
        return if target.ends_with('*') { target + "*" } else { target + " *" };
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        let target = type_of(target);
        return if target.ends_with('*') {
            target + "const *"
        } else {
            format!("const {target} *")
        };
    }
    let known = [
        ("u8", "uint8_t"),
        ("u16", "uint16_t"),
        ("u32", "uint32_t"),
        ("u64", "uint64_t"),
        ("usize", "size_t"),
        ("bool", "bool"),
        ("c_int", "int"),
        ("c_char", "char"),
        ("c_void", "void"),
        ("App", "struct fl_app"),
        ("Lane<'_>", "struct fl_lane"),
        ("Message", "struct fl_message"),
        ("Packet", "struct fl_packet"),
        ("Turn", "struct fl_turn"),
    ];
    let found = known.iter().find(|(name, _)| *name == rust);
    found.unwrap_or_else(|| panic!("no type of C for {rust}")).1.to_owned()
}

/// Formats the assertions with the offsets of the Rust compiler.
fn assertions() -> String {
    use std::mem::offset_of;

    use fastlane_c::Packet;

    let mut header = ASSERTIONS.to_owned();
    let mut assert = |condition: String, text: &str| {
        writeln!(header, "FL_ASSERT({condition}, \"{text}\");").unwrap();
    };
    let size = size_of::<Packet>();
    assert(format!("sizeof(struct fl_packet) == {size}"), "64-bit machines only");
    for (member, offset) in [
        ("data", offset_of!(Packet, data)),
        ("token", offset_of!(Packet, token)),
        ("length", offset_of!(Packet, length)),
        ("headroom", offset_of!(Packet, headroom)),
        ("tailroom", offset_of!(Packet, tailroom)),
        ("port", offset_of!(Packet, port)),
        ("flags", offset_of!(Packet, flags)),
        ("verdict", offset_of!(Packet, verdict)),
    ] {
        let condition = format!("offsetof(struct fl_packet, {member}) == {offset}");
        assert(condition, &format!("the layout of {member}"));
    }
    header
}
