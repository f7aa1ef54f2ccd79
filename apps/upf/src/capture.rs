//! Command `upf capture`: the packets of a session on N3 and N6, as pcapng.
//!
//! The API tells the ports, tunnels and addresses of the session ([`CapturePlan`]). The fast path
//! copies the frames that the program of a `session_filter` accepts, by the capture that each
//! Fastlane application has; without a capture, lanes do nothing for it. While the capture runs the
//! plan is followed: after a handover another program takes the place of the first one.

mod assembler;
mod session_filter;

use std::io::{self, ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane::capture::{
    CaptureFile, CaptureFileError, CaptureInterface, CaptureStream, CapturedPacket, Damaged,
    Request,
};
use fastlane::describe::Application;
use fastlane::session::{self, Client, SessionError};

use self::session_filter::SessionFilter;
use crate::api::client::{self, ClientError};
use crate::api::view::{CapturePlan, CaptureSubject};

/// Pause when no packet was captured.
const REST: Duration = Duration::from_millis(1);
/// Interval at which the session is followed.
const FOLLOW: Duration = Duration::from_secs(1);
/// Time that the lanes get to begin, and to let go of an earlier capture.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interfaces of the capture, by the name of the reference point.
const ROLES: [(&str, &str); 3] = [
    ("N3", "GTP-U from and to the access network"),
    ("N6", "IP from and to the data network"),
    ("N9", "GTP-U from and to other UPFs"),
];

/// Options of `upf capture`.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Session or subscriber.
    pub subject: CaptureSubject,
    /// Output file; `None` for the standard output.
    pub file: Option<PathBuf>,
    /// Maximum number of captured octets of a packet.
    pub snap_length: u32,
    /// Maximum number of packets.
    pub count: Option<u64>,
    /// Maximum duration.
    pub duration: Option<Duration>,
}

/// Error of a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The API does not reply, or knows no such session.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The fast path refuses.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A ring is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] CaptureFileError),
    /// The standard output is a terminal.
    #[error(
        "a capture is nothing for a terminal; write to a file with `-w FILE`, or pipe it into \
         `wireshark -k -i -`"
    )]
    Terminal,
    /// The sessions cannot be captured.
    #[error("{0}")]
    Impossible(String),
}

impl CaptureError {
    /// Returns true if the reader of the output has closed it, which ends a capture well.
    #[must_use]
    pub fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output(CaptureFileError::Output(error))
            if error.kind() == ErrorKind::BrokenPipe)
    }
}

/// Captures until `stop` is true, a limit is reached, or the session or the fast path ends.
///
/// # Errors
/// There is no such session, the fast path refuses, or the output cannot be written.
pub fn capture(
    api: SocketAddr,
    options: &CaptureOptions,
    stop: &AtomicBool,
) -> Result<(), CaptureError> {
    if options.file.is_none() && io::stdout().is_terminal() {
        return Err(CaptureError::Terminal);
    }
    let plan: CapturePlan = client::capture_plan(api, &options.subject)?;
    let first = session::connect(Path::new(&plan.session_socket))?;
    let mut capture = SessionCapture {
        api,
        options,
        stop,
        deadline: options.duration.map(|duration| Instant::now() + duration),
        file: create_file(options, &first.application, &plan)?,
        plan,
        lost: 0,
    };
    drop(first);
    let reason = capture.run()?;
    let (captured, lost) = (capture.file.packets(), capture.lost);
    let packets = if captured == 1 { "packet" } else { "packets" };
    eprintln!("upf: {captured} {packets} captured; {lost} were not captured{reason}");
    Ok(())
}

/// Creates the output with an interface for each reference point of the sessions.
fn create_file(
    options: &CaptureOptions,
    application: &Application,
    plan: &CapturePlan,
) -> Result<CaptureFile, CaptureFileError> {
    let interfaces = ROLES.map(|(name, description)| {
        let ports = plan.ports.iter().filter(|port| port.role == name);
        let ports: Vec<&str> = ports.map(|port| port.port.as_str()).collect();
        let description = format!("{description}, port {}", ports.join(" and "));
        CaptureInterface { name: name.to_owned(), description }
    });
    // N9 is the last one, which most UPFs do not have.
    let has_n9 = plan.ports.iter().any(|port| port.role == "N9");
    let interfaces = &interfaces[..if has_n9 { 3 } else { 2 }];
    let program = concat!("upf capture ", env!("CARGO_PKG_VERSION"));
    let file = options.file.as_deref();
    CaptureFile::create(file, program, application, interfaces, options.snap_length)
}

/// Capture of sessions, which may take several captures of the fast path.
struct SessionCapture<'a> {
    api: SocketAddr,
    options: &'a CaptureOptions,
    stop: &'a AtomicBool,
    deadline: Option<Instant>,
    file: CaptureFile,
    plan: CapturePlan,
    /// Packets that the lanes had no room for.
    lost: u64,
}

/// Result of following the sessions.
enum Followed {
    Same,
    Changed(CapturePlan),
    Gone,
}

impl SessionCapture<'_> {
    /// Captures to the end. Returns its reason if nobody has asked for it.
    fn run(&mut self) -> Result<&'static str, CaptureError> {
        loop {
            let client = session::connect(Path::new(&self.plan.session_socket))?;
            let ports = PortRoles::of(&self.plan, &client.application);
            let request = self.request(&ports)?;
            let mut stream = self.start(&client, &request)?;
            let followed = self.copy(&client, &mut stream, &ports)?;
            let is_alive = client.is_alive();
            drop(client); // the lanes are told to end
            self.read(&mut stream, &ports, true)?;
            self.lost += stream.lost();
            match followed {
                _ if self.is_over() => return Ok(""),
                Followed::Changed(plan) if is_alive => self.plan = plan,
                Followed::Gone => return Ok("; the session has ended"),
                Followed::Same | Followed::Changed(_) => return Ok("; the fast path has ended"),
            }
        }
    }

    fn request(&self, ports: &PortRoles) -> Result<Request, CaptureError> {
        let filter = SessionFilter::of(&self.plan.sessions);
        let filter = filter.ok_or_else(|| {
            let what = "the API's reply is not understood; use programs of one release";
            CaptureError::Impossible(what.to_owned())
        })?;
        let program = filter.program().ok_or_else(|| {
            let what = "the sessions have too many tunnels and addresses for one filter; name \
                        one by its SEID, or use `fastlane capture`";
            CaptureError::Impossible(what.to_owned())
        })?;
        Ok(Request {
            ports: ports.numbers(),
            program: Some(program),
            snap_length: self.options.snap_length,
            ..Request::default()
        })
    }

    /// Starts a capture of the fast path and waits until all lanes take part.
    fn start(&self, client: &Client, request: &Request) -> Result<CaptureStream, CaptureError> {
        let end = Instant::now() + PATIENCE;
        let stream = loop {
            match client.capture(request) {
                // The lanes may still hold the capture that this one replaces.
                Err(SessionError::Refused { .. }) if Instant::now() < end && !self.is_over() => {
                    std::thread::sleep(10 * REST);
                }
                other => break other?,
            }
        };
        while !stream.have_started() && client.is_alive() && Instant::now() < end {
            std::thread::sleep(REST);
        }
        let sessions: Vec<&str> = self.plan.sessions.iter().map(|it| it.seid.as_str()).collect();
        eprintln!("upf: capturing session {}", sessions.join(", "));
        Ok(stream)
    }

    /// Copies packets to the file until the capture is over or the sessions change.
    fn copy(
        &mut self,
        client: &Client,
        stream: &mut CaptureStream,
        ports: &PortRoles,
    ) -> Result<Followed, CaptureError> {
        let mut follow = Instant::now() + FOLLOW;
        while client.is_alive() && !self.is_over() {
            if self.read(stream, ports, false)? == 0 {
                self.file.is_wanted()?;
                std::thread::sleep(REST);
            }
            if Instant::now() >= follow {
                follow = Instant::now() + FOLLOW;
                match self.follow() {
                    Followed::Same => {}
                    other => return Ok(other),
                }
            }
        }
        Ok(Followed::Same)
    }

    /// Asks the API for the sessions again. A control plane that restarts changes nothing.
    fn follow(&self) -> Followed {
        match client::capture_plan(self.api, &self.options.subject) {
            Ok(plan) if plan == self.plan => Followed::Same,
            Ok(plan) => Followed::Changed(plan),
            Err(ClientError::Refused(_)) => Followed::Gone,
            Err(ClientError::Silent { .. } | ClientError::Strange(..)) => Followed::Same,
        }
    }

    /// Writes captured packets. Returns the number of records read.
    fn read(
        &mut self,
        stream: &mut CaptureStream,
        ports: &PortRoles,
        is_end: bool,
    ) -> Result<usize, CaptureError> {
        let limit = self.options.count.unwrap_or(u64::MAX);
        let file = &mut self.file;
        let read = stream.read(is_end, |copy| {
            if file.packets() < limit
                && let Some((interface, port)) = ports.interface(&copy)
            {
                file.add(interface, &copy, &format!(", port {port}"))?;
            }
            Ok::<(), CaptureError>(())
        })?;
        self.file.write_out()?;
        Ok(read)
    }

    /// Returns true if the capture has what it was asked for.
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
            || self.options.count.is_some_and(|count| self.file.packets() >= count)
    }
}

/// Ports of the sessions with their reference points.
struct PortRoles {
    /// Number, name and interfaces of each port: one that has several tells tunnels apart.
    ports: Vec<(u16, String, Vec<u32>)>,
}

impl PortRoles {
    fn of(plan: &CapturePlan, application: &Application) -> Self {
        let mut ports: Vec<(u16, String, Vec<u32>)> = Vec::new();
        for planned in &plan.ports {
            let number = application.ports.iter().position(|port| port.name == planned.port);
            let number = number.and_then(|number| u16::try_from(number).ok());
            let interface = ROLES.iter().position(|(name, _)| *name == planned.role);
            let (Some(number), Some(interface)) = (number, interface) else { continue };
            let interface = interface as u32;
            match ports.iter_mut().find(|(other, ..)| *other == number) {
                Some((.., interfaces)) => interfaces.push(interface),
                None => ports.push((number, planned.port.clone(), vec![interface])),
            }
        }
        Self { ports }
    }

    fn numbers(&self) -> Vec<u16> {
        self.ports.iter().map(|(number, ..)| *number).collect()
    }

    /// Returns the interface of a packet and the name of its port.
    fn interface(&self, copy: &CapturedPacket<'_>) -> Option<(u32, &str)> {
        let number = copy.record.port.0;
        let (_, name, interfaces) = self.ports.iter().find(|(other, ..)| *other == number)?;
        let is_tunnel = session_filter::is_gtp_u(copy.record.bytes);
        let is_fitting = |interface: &&u32| (ROLES[**interface as usize].0 != "N6") == is_tunnel;
        let interface = interfaces.iter().find(is_fitting).or(interfaces.first())?;
        Some((*interface, name))
    }
}
