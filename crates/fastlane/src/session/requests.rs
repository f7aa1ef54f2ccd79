//! The bodies of requests and answers.

use serde::{Deserialize, Serialize};

use crate::config::rules::Rule;

/// What a part of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// What the slow path writes and the lanes read.
    Table,
    /// What the lanes write for each entry and the slow path reads.
    State,
    /// Events of entries that must not be lost.
    Pending,
}

/// A table of a running application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct TableFacts {
    pub(crate) name: String,
    pub(crate) parts: Vec<PartFacts>,
    /// Who writes it now.
    pub(crate) writer: Option<String>,
}

/// A part of it: the memory behind a descriptor says itself what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct PartFacts {
    pub(crate) role: Role,
    /// The place of the descriptor among those of the answer.
    pub(crate) descriptor: usize,
}

/// The answer to `tables` and `write`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct TableList {
    pub(crate) tables: Vec<TableFacts>,
}

/// Which tables a client will write.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Write {
    pub(crate) tables: Vec<String>,
}

/// New steering rules of a port.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct NewRules {
    pub(crate) port: String,
    pub(crate) rules: Vec<Rule>,
}

/// A configuration whose `steer` shall hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Reload {
    /// Its name and its text; `None`: the file with which the application was started.
    pub(crate) file: Option<(String, String)>,
}

/// The rules of a port before and after a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Replaced {
    /// Its name.
    pub port: String,
    /// The rules that it had.
    pub before: Vec<Rule>,
    /// The rules that it has now.
    pub now: Vec<Rule>,
}

/// The answer to `rules` and `reload`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Changes {
    pub(crate) ports: Vec<Replaced>,
}

/// The answer to `messages`. Its descriptors: the rings, the slow path's bell, each lane's bell.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct MessageRings {
    pub(crate) lanes: usize,
}

/// What shall become of the shards.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Shards {
    /// A shard and the lane to which it shall go.
    pub(crate) moved: Option<(u8, usize)>,
}

/// Which lane has which shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ShardList {
    /// The lane of each of the 256 shards.
    pub lanes: Vec<usize>,
    /// The packets of each that were given their lane, since the start.
    pub packets: Vec<u64>,
}

/// What a keeper asks for, and a successor of the keeper.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Keep {
    /// The first descriptor of the answer.
    pub(crate) from: usize,
    /// A successor cannot use it: the keeper closes what it has.
    pub(crate) give_up: bool,
}
