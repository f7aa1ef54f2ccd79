//! The object `app` of the configuration.

use serde::Deserialize;

/// What a router can be told.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// Whether there is an access list, in the table `acl`.
    pub acl: bool,
    /// Whether packets are forwarded that leave by the interface that they came by. Else Linux does
    /// that, and tells their senders of the better way.
    pub same_interface: bool,
}
