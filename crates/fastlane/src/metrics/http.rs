//! The part of HTTP/1.1 that a scrape needs: one request and one response within a second (RFC
//! 9112).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fastlane_table::Doorbell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum length of a request head in bytes.
const LONGEST_HEAD: usize = 8192;
/// Time that a client has for the whole exchange.
const PATIENCE: Duration = Duration::from_secs(1);

/// Page at a path.
pub(super) struct Page {
    /// Media type.
    pub(super) kind: &'static str,
    pub(super) text: String,
}

/// Exchange with one client.
pub(super) struct Exchange<'a> {
    stream: TcpStream,
    /// Becomes readable when the endpoint ends, which aborts the exchange.
    wake: &'a Doorbell,
    deadline: Instant,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(stream: TcpStream, wake: &'a Doorbell) -> Self {
        Self { stream, wake, deadline: Instant::now() + PATIENCE }
    }

    /// Reads the request and sends the page of its path.
    pub(super) fn run(mut self, page: impl Fn(&str) -> Option<Page>) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let answer = match self.head()? {
            None => status("431 Request Header Fields Too Large", ""),
            Some(head) => answer(&head, page),
        };
        self.write(answer.as_bytes())?;
        // Remaining input must be read, otherwise closing resets the connection and the client may
        // lose the response (RFC 9112, section 9.6).
        self.stream.shutdown(Shutdown::Write)?;
        while self.read(&mut [0; 1024])? > 0 {}
        Ok(())
    }

    /// Reads request line and header fields. `None` if they are too long.
    fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut head = Vec::new();
        let mut part = [0; 1024];
        loop {
            let count = self.read(&mut part)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            head.extend_from_slice(&part[..count]);
            if head.windows(4).any(|four| four == b"\r\n\r\n") {
                return Ok(Some(head));
            }
            if head.len() > LONGEST_HEAD {
                return Ok(None);
            }
        }
    }

    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(part) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::IN)?,
                other => return other,
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                other => bytes = &bytes[other?..],
            }
        }
        Ok(())
    }

    /// Waits until the stream is ready or the deadline has passed.
    fn wait(&self, ready: PollFlags) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let wake = PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN);
        let mut events = [wake, PollFd::new(&self.stream, ready)];
        match poll(&mut events, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) if !events[0].revents().is_empty() => Err(ErrorKind::ConnectionAborted.into()),
            Ok(_) => Ok(()),
        }
    }
}

/// Returns the response to a request.
fn answer(head: &[u8], page: impl Fn(&str) -> Option<Page>) -> String {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = words[..] else {
        return status("400 Bad Request", "");
    };
    let Some(target) = std::str::from_utf8(target).ok().filter(|_| version.starts_with(b"HTTP/1."))
    else {
        return status("400 Bad Request", "");
    };
    if method != b"GET" {
        return status("405 Method Not Allowed", "Allow: GET\r\n");
    }
    let path = target.split('?').next().unwrap_or_default();
    match page(path) {
        Some(Page { kind, text }) => format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: \
             close\r\n\r\n{text}",
            text.len()
        ),
        None => status("404 Not Found", ""),
    }
}

/// Returns a response whose body is its status.
fn status(status: &str, fields: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{status}\n",
        status.len() + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_a_request_is_answered() {
        let page = |path: &str| {
            (path == "/metrics").then(|| Page { kind: "text/plain", text: "all".to_owned() })
        };
        let request = b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n";
        for at in 0..request.len() {
            for value in 0..=u8::MAX {
                let mut changed = request.to_vec();
                changed[at] = value;
                let answer = answer(&changed, page);
                let expected: &[&str] = match at {
                    _ if value == request[at] => &["200"],
                    0..3 => &["400", "405"],
                    3..22 => &["200", "400", "404"],
                    _ => &["200"],
                };
                assert!(expected.contains(&&answer[9..12]), "{value} at {at}: {answer}");
            }
            let _ = super::answer(&request[..at], page);
        }
    }
}
