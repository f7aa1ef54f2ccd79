//! Thread that sends requests to rtnetlink. A request blocks while Linux configures interfaces or
//! routes of any namespace, which must not delay the reading of events.

use std::io;
use std::sync::mpsc::{Sender, channel};

use super::super::socket::Socket;

/// Handle of a thread that sends requests in the network namespace of its creator. The thread ends
/// when the handle is dropped.
#[derive(Debug)]
pub(super) struct RequestSender(Sender<Vec<u8>>);

impl RequestSender {
    pub(super) fn start() -> io::Result<Self> {
        let mut socket = Socket::of_requests()?;
        let (request_sender, requests) = channel::<Vec<u8>>();
        let body = move || requests.iter().for_each(|request| socket.request(&request));
        std::thread::Builder::new().name("mirror-request".to_owned()).spawn(body)?;
        Ok(Self(request_sender))
    }

    /// Enqueues a request without waiting for its acknowledgement. Returns false if the thread has
    /// ended.
    pub(super) fn send(&self, request: Vec<u8>) -> bool {
        self.0.send(request).is_ok()
    }
}
