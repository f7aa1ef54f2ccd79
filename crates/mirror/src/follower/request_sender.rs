//! Asks Linux for what it takes its time to do: a request waits while Linux works on interfaces and
//! routes, of any namespace. Whoever follows events must not wait with it.

use std::io;
use std::sync::mpsc::{Sender, channel};

use super::super::socket::Socket;

/// A thread that sends requests, in the network namespace of who started it. It ends with this.
#[derive(Debug)]
pub(super) struct RequestSender(Sender<Vec<u8>>);

impl RequestSender {
    pub(super) fn start() -> io::Result<Self> {
        let mut socket = Socket::of_requests()?;
        let (request_sender, requests) = channel::<Vec<u8>>();
        let body = move || requests.iter().for_each(|request| socket.ask(&request));
        std::thread::Builder::new().name("mirror-ask".to_owned()).spawn(body)?;
        Ok(Self(request_sender))
    }

    /// Sends a request whose answer nobody waits for; false when it cannot be sent.
    pub(super) fn ask(&self, request: Vec<u8>) -> bool {
        self.0.send(request).is_ok()
    }
}
