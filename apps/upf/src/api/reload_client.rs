//! Command `upf reload`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use super::client::{ClientError, escaped, fetch_by, pretty};
use crate::pfcp::ReloadReport;

/// Applies the configuration file of a running UPF, or only checks it. `config` is the path that it
/// must have. Returns the changes as text or JSON.
///
/// # Errors
/// There is no reply, or the UPF refuses; the message has all reasons.
pub fn reload(
    address: SocketAddr,
    config: Option<&Path>,
    is_applied: bool,
    is_json: bool,
) -> Result<String, ClientError> {
    let config = config.map(|path| format!("?config={}", escaped(&path.to_string_lossy())));
    let method = if is_applied { "PUT" } else { "GET" };
    let report: ReloadReport =
        fetch_by(method, address, &format!("/reload{}", config.unwrap_or_default()))?;
    if is_json && report.refusals.is_empty() {
        return Ok(pretty(&report));
    }
    if !report.refusals.is_empty() {
        let mut text = "nothing was changed:".to_owned();
        for refusal in &report.refusals {
            let _ = write!(text, "\n  {refusal}"); // a String takes it
        }
        return Err(ClientError::Refused(text));
    }
    let mut text = String::new();
    for change in &report.changes {
        let _ = writeln!(text, "{change}");
    }
    text += match (report.changes.is_empty(), is_applied) {
        (true, _) => "nothing differs\n",
        (false, true) => "in force\n",
        (false, false) => "can be applied\n",
    };
    Ok(text)
}
