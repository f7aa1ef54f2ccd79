//! Transfers over HTTP beside the fast path.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use crate::Host;

/// A page of pseudo-random bytes, the same in each run.
#[derive(Debug)]
pub struct Page(pub Vec<u8>);

impl Page {
    /// Creates a page of `length` bytes (xorshift64*, Vigna 2016).
    #[must_use]
    pub fn new(length: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes()
        };
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| next()).collect();
        bytes.truncate(length);
        Self(bytes)
    }
}

/// Serves `page` once from an address of `host`. Returns the URL and the server's thread.
///
/// # Panics
/// When the address is not available.
#[track_caller]
pub fn serve(
    host: &Host,
    address: &str,
    page: Vec<u8>,
) -> (String, JoinHandle<std::io::Result<()>>) {
    let listener = host.enter(|| TcpListener::bind((address, 0))).expect("a TCP port");
    let local: SocketAddr = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        let request = BufReader::new(stream.try_clone()?);
        // The request ends with an empty line (RFC 9112, section 2.1).
        for line in request.lines() {
            if line?.is_empty() {
                break;
            }
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len())?;
        stream.write_all(&page)
    });
    (format!("http://{local}/"), server)
}
