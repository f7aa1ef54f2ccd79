//! The links of ports whose devices Linux does not have: their state is that of the TAP devices
//! that stand for them in Linux.

use fastlane_kernel::tap::Carrier;

/// The link of one port.
pub(super) struct Link {
    port: String,
    device: Box<dyn State>,
    peer: Option<Carrier>,
    /// What was said last: whether it is up, and why not.
    said: Option<(bool, String)>,
}

/// Whoever knows whether a link is up.
pub(super) trait State: Send {
    /// Whether packets can come and go; and what else an operator should know, to stand behind `up`
    /// or `down`.
    fn look(&self) -> (bool, String);
}

impl Link {
    /// Of the port with this name; `peer` follows it.
    pub(super) fn new(port: &str, device: Box<dyn State>, peer: Option<Carrier>) -> Self {
        Self { port: port.to_owned(), device, peer, said: None }
    }

    /// Looks at the device, and passes on what has changed.
    pub(super) fn follow(&mut self) {
        let now = self.device.look();
        if self.said.as_ref() == Some(&now) {
            return;
        }
        let (up, detail) = &now;
        tracing::info!("port `{}`: link {}{detail}", self.port, if *up { "up" } else { "down" });
        let up = *up;
        let before = self.said.replace(now);
        if before.is_some_and(|(before, _)| before == up) {
            return;
        }
        let Some(Err(error)) = self.peer.as_ref().map(|peer| peer.set(up)) else { return };
        tracing::warn!("port `{}`: its TAP in Linux does not follow the link: {error}", self.port);
    }
}
