//! Ports over memif.

use super::Opening;
use crate::Error;
use crate::config::plan::PortPlan;
use crate::config::written;

impl Opening<'_> {
    pub(super) fn open_memif(&mut self, port: &PortPlan, _: &written::Memif) -> Result<(), Error> {
        Err(Error::port(&port.name, "memif is being built"))
    }
}
