//! Requests to switch a port to another driver while the application runs: they come from the
//! session, and the main thread's [`PortMonitor`](crate::port_monitor::PortMonitor) carries them
//! out.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;

use fastlane_table::Doorbell;

use crate::Error;
use crate::session::{SWITCH_PATIENCE, Switch, SwitchReport};

/// Switch that the session asks for.
pub(crate) struct SwitchRequest {
    pub(crate) switch: Switch,
    /// Takes the result. A client that has gone does not end the switch.
    pub(crate) reply: SyncSender<Result<SwitchReport, String>>,
}

/// Asks the main thread for switches.
#[derive(Clone, Debug)]
pub(crate) struct Switcher {
    requests: Sender<SwitchRequest>,
    bell: Arc<Doorbell>,
}

/// Requests in the main thread.
#[derive(Debug)]
pub(crate) struct SwitchRequests {
    requests: Receiver<SwitchRequest>,
    bell: Arc<Doorbell>,
}

/// Creates both sides.
///
/// # Errors
/// Returns an error if the process has too many descriptors.
pub(crate) fn channel() -> Result<(Switcher, SwitchRequests), Error> {
    let bell = Doorbell::create().map_err(|error| {
        let reason = format!("no descriptor for requests ({error}); raise `ulimit -n`");
        Error::Service { what: "session", reason }
    })?;
    let bell = Arc::new(bell);
    let (sender, receiver) = mpsc::channel();
    let switcher = Switcher { requests: sender, bell: Arc::clone(&bell) };
    Ok((switcher, SwitchRequests { requests: receiver, bell }))
}

impl Switcher {
    /// Asks for a switch and waits for its end.
    ///
    /// # Errors
    /// The reason why the port stays on its driver.
    pub(crate) fn switch(&self, switch: Switch) -> Result<SwitchReport, String> {
        let (reply, result) = mpsc::sync_channel(1);
        let ends = "the application ends; switch the port after its start";
        self.requests.send(SwitchRequest { switch, reply }).map_err(|_| ends.to_owned())?;
        self.bell.ring();
        // The reply must reach the client before it gives up.
        let patience = SWITCH_PATIENCE - Duration::from_secs(1);
        result.recv_timeout(patience).unwrap_or_else(|error| match error {
            RecvTimeoutError::Disconnected => Err(ends.to_owned()),
            RecvTimeoutError::Timeout => Err(format!(
                "the switch has not ended within {} s; it goes on, and the log of the application \
                 tells its end",
                patience.as_secs()
            )),
        })
    }
}

impl SwitchRequests {
    /// Returns the next request, if there is one.
    pub(crate) fn next(&self) -> Option<SwitchRequest> {
        self.bell.drain();
        self.requests.try_recv().ok()
    }

    /// Returns the descriptor that becomes readable when there is a request.
    pub(crate) fn interrupt(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
