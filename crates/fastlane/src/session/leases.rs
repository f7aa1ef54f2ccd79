//! What only one client may have at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::peer::Asker;

/// Who has what. It ends with the connection.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: BTreeMap<String, Arc<Asker>>,
}

impl Leases {
    /// Gives all of `things` to `asker`, or none: then it says who has the first of them.
    pub(super) fn take(&mut self, things: &[String], asker: &Arc<Asker>) -> Result<(), String> {
        // Its end may be in the same look at the sockets as this request.
        self.held.retain(|_, holder| !holder.has_gone());
        for thing in things {
            let Some(holder) = self.held.get(thing) else { continue };
            return Err(if Arc::ptr_eq(holder, asker) {
                format!("{thing} is with this client already; use what it got before")
            } else {
                format!("{thing} is with {holder}, and only one may have it; end that one first")
            });
        }
        let taken = things.iter().map(|thing| (thing.clone(), Arc::clone(asker)));
        self.held.extend(taken);
        Ok(())
    }

    /// Whether `asker` has it.
    pub(super) fn has(&self, thing: &str, asker: &Arc<Asker>) -> bool {
        self.held.get(thing).is_some_and(|holder| Arc::ptr_eq(holder, asker))
    }

    /// Who has it.
    pub(super) fn holder(&self, thing: &str) -> Option<&Asker> {
        self.held.get(thing).map(AsRef::as_ref).filter(|holder| !holder.has_gone())
    }

    /// Takes everything back from a client that has gone.
    pub(super) fn release(&mut self, asker: &Asker) {
        self.held.retain(|_, holder| !std::ptr::eq(holder.as_ref(), asker));
    }
}
