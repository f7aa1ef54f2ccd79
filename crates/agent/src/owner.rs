//! Owner of devices: a user of the configuration, or a grant.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::token::is_token;

/// Maximum length of the name of a grant. It becomes part of the name of a directory.
const MAX_NAME: usize = 64;
/// Begin of the name of a directory with the pins of a grant. The id of a user has digits only.
const GRANT: &str = "grant-";

/// Owner of devices, which another connection of the same owner may take over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// User of the configuration, by its id.
    User(u32),
    /// Grant, by its name.
    Grant(String),
}

impl Owner {
    /// Returns the directory of the pins of a device.
    pub(crate) fn directory(&self, pins: &Path, token: &str) -> PathBuf {
        match self {
            Self::User(user) => pins.join(format!("{user}-{token}")),
            Self::Grant(name) => pins.join(format!("{GRANT}{name}-{token}")),
        }
    }

    /// Returns the owner and the token of a directory with pins.
    pub(crate) fn of_directory(name: &str) -> Option<(Self, &str)> {
        let (owner, token) = name.rsplit_once('-')?;
        let owner = match owner.strip_prefix(GRANT) {
            Some(name) => is_grant_name(name).then(|| Self::Grant(name.to_owned())),
            None => owner.parse().ok().map(Self::User),
        };
        owner.filter(|_| is_token(token)).map(|owner| (owner, token))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(formatter, "user {user}"),
            Self::Grant(name) => write!(formatter, "grant `{name}`"),
        }
    }
}

/// Returns true if a grant may have this name: 1 to 64 letters, digits, `-` and `_`.
pub(crate) fn is_grant_name(name: &str) -> bool {
    // A BPF file system has no dots in its names.
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn an_owner_is_found_by_the_name_of_its_directory() {
        let uid = "3b0e2d2c-5a4a-4d34-9b1e-1f2f3a4b5c6d";
        for owner in [Owner::User(1500), Owner::Grant(uid.to_owned()), Owner::Grant("5-x".into())] {
            let directory = owner.directory(Path::new("/pins"), TOKEN);
            let name = directory.file_name().and_then(|name| name.to_str()).unwrap();
            assert_eq!(Owner::of_directory(name), Some((owner, TOKEN)));
        }
    }

    #[test]
    fn other_directories_have_no_owner() {
        for name in ["", "x", "-", "grant--x", "1500-", "1500-beef", "x-", "grant-a.b-", "grant-"] {
            assert_eq!(Owner::of_directory(&format!("{name}{}", &TOKEN[..31])), None, "{name}");
        }
        for name in ["x-", "grant-a.b-", "grant--", "-", "4294967296-"] {
            assert_eq!(Owner::of_directory(&format!("{name}{TOKEN}")), None, "{name}");
        }
    }

    #[test]
    fn the_name_of_a_grant_is_no_path() {
        assert!(is_grant_name("3b0e2d2c-5a4a") && is_grant_name(&"x".repeat(64)));
        for name in ["", "a/b", "..", "a.b", "a b", "\u{e4}", &"x".repeat(65)] {
            assert!(!is_grant_name(name), "{name}");
        }
    }
}
