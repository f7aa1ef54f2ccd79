//! Settings: the object `app` of the configuration.

use serde::Deserialize;

/// Settings of a router.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// True if there is an access list, in the table `acl`.
    pub acl: bool,
    /// True if the access list may have `police` rules, whose meters are in the table `police`.
    pub police: bool,
    /// True if packets are forwarded that leave by their ingress interface. Otherwise Linux
    /// forwards them and sends ICMP redirects.
    pub same_interface: bool,
}
