//! The links of ports whose devices Linux does not have: their state is that of the TAP devices
//! that stand for them in Linux.

use fastlane_kernel::tap::Carrier;

/// The link of one port.
pub(super) struct Link {
    port: String,
    device: Box<dyn State>,
    peer: Option<Carrier>,
    /// What was said last.
    up: Option<bool>,
}

/// Whoever knows whether a link is up.
pub(super) trait State {
    /// Whether packets can come and go.
    fn is_up(&self) -> bool;

    /// What else an operator should know of its state, to stand behind `up` or `down`.
    fn detail(&self) -> String {
        String::new()
    }
}

impl Link {
    /// Of the port with this name; `peer` follows it.
    pub(super) fn new(port: &str, device: Box<dyn State>, peer: Option<Carrier>) -> Self {
        Self { port: port.to_owned(), device, peer, up: None }
    }

    /// Looks at the device, and passes on what has changed.
    pub(super) fn follow(&mut self) {
        let up = self.device.is_up();
        if self.up.replace(up) == Some(up) {
            return;
        }
        let state = if up { "up" } else { "down" };
        tracing::info!("port `{}`: link {state}{}", self.port, self.device.detail());
        let Some(Err(error)) = self.peer.as_ref().map(|peer| peer.set(up)) else { return };
        tracing::warn!("port `{}`: its TAP in Linux does not follow the link: {error}", self.port);
    }
}
