//! Leases: resources that one client may hold at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::peer::ClientIdentity;

/// Holders of all leases, by the name of the resource. A lease ends with the connection.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: BTreeMap<String, Arc<ClientIdentity>>,
}

impl Leases {
    /// Grants all of `things` to `client`, or none.
    ///
    /// # Errors
    /// Names the holder of the first resource that is taken.
    pub(crate) fn take(
        &mut self,
        things: &[String],
        client: &Arc<ClientIdentity>,
    ) -> Result<(), String> {
        // The end of a connection may be reported by the same poll(2) as this request.
        self.held.retain(|_, holder| !holder.has_disconnected());
        for thing in things {
            let Some(holder) = self.held.get(thing) else { continue };
            return Err(if Arc::ptr_eq(holder, client) {
                format!("{thing} is already held by this client; use the earlier reply")
            } else {
                format!(
                    "{thing} is held by {holder}; only one client may hold it, so end that one \
                     first"
                )
            });
        }
        let taken = things.iter().map(|thing| (thing.clone(), Arc::clone(client)));
        self.held.extend(taken);
        Ok(())
    }

    /// Returns true if `client` holds `thing`.
    pub(crate) fn has(&self, thing: &str, client: &Arc<ClientIdentity>) -> bool {
        self.held.get(thing).is_some_and(|holder| Arc::ptr_eq(holder, client))
    }

    /// Returns the client that holds `thing`.
    pub(crate) fn holder(&self, thing: &str) -> Option<&ClientIdentity> {
        self.held.get(thing).map(AsRef::as_ref).filter(|holder| !holder.has_disconnected())
    }

    /// Releases all leases of a client that has disconnected.
    pub(crate) fn release(&mut self, client: &ClientIdentity) {
        self.held.retain(|_, holder| !std::ptr::eq(holder.as_ref(), client));
    }
}
