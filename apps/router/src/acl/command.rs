//! The command `router acl`: shows and changes the access list of a running router.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use fastlane::slow;

use super::slow::Editor;
use super::{text, word};

const COLOURS: [&str; 3] = ["green", "yellow", "red"];

/// Subcommands of `router acl`.
#[allow(rustdoc::broken_intra_doc_links, reason = "the syntax of a rule has brackets")]
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show the rules with the packets and bytes that each has matched.
    List {
        /// The router: its name, or the path of its session.
        router: String,
    },
    /// Add a rule, as in: router acl add NAME 10 drop udp from 10.0.0.0/8 to any port 53
    Add {
        /// The router.
        router: String,
        /// PRIORITY permit|drop|police METER [ipv4|ipv6] [PROTOCOL] [from PREFIX [port N-M]] [to
        /// PREFIX [port N-M]], or: default permit|drop
        #[arg(required = true, trailing_var_arg = true)]
        rule: Vec<String>,
    },
    /// Delete rules.
    Delete {
        /// The router.
        router: String,
        /// Priorities of the rules.
        #[arg(required = true)]
        priorities: Vec<u32>,
    },
    /// Replace the whole list at once by that of a file with one rule in each line.
    Load {
        /// The router.
        router: String,
        /// The file; `-` is standard input.
        file: PathBuf,
    },
}

impl Command {
    /// Runs the command; returns the text to print.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub fn run(&self) -> Result<String, String> {
        let (Self::List { router }
        | Self::Add { router, .. }
        | Self::Delete { router, .. }
        | Self::Load { router, .. }) = self;
        // What is written wrong is found out before anything is asked of the router.
        let lines = match self {
            Self::Add { rule, .. } => text::read(&rule.join(" "))?,
            Self::Load { file, .. } => text::read(&read(file)?)?,
            Self::List { .. } | Self::Delete { .. } => vec![],
        };
        let slow = slow::attach(router).map_err(|error| error.to_string())?;
        let mut editor = Editor::attach(&slow).map_err(|error| error.to_string())?;
        match self {
            Self::List { .. } => return Ok(list(&editor)),
            Self::Add { .. } => editor.merge(&lines)?,
            Self::Load { .. } => editor.replace(&lines)?,
            Self::Delete { priorities, .. } => {
                if !editor.remove(priorities)? {
                    let there: Vec<_> =
                        editor.rules().rules().iter().map(|it| it.priority.to_string()).collect();
                    return Err(format!("not all are there; there are {}", there.join(", ")));
                }
            }
        }
        Ok(String::new())
    }
}

fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    if path != Path::new("-") {
        return std::fs::read_to_string(path).map_err(failed);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn list(editor: &Editor) -> String {
    let rules = editor.rules();
    let mut text = text::write_default(&rules) + "\n";
    for rule in rules.rules() {
        let [packets, octets] = editor.hits(rule);
        let line = text::write_rule(rule);
        let _ = write!(text, "{line} # {packets} packets, {octets} octets"); // a string takes all
        if rule.action == word::POLICE {
            for (name, [packets, octets]) in COLOURS.iter().zip(editor.colours(rule)) {
                let _ = write!(text, ", {name} {packets} {octets}");
            }
        }
        text.push('\n');
    }
    text
}
