//! `fastlane capture`: captures packets of a running application.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fastlane::capture::{
    CaptureFile, CaptureFileError, CaptureInterface, CaptureStream, Damaged, Label, Request,
};
use fastlane::describe::PortFacts;
use fastlane::session::Client;

use crate::Error;

mod filter;

/// Pause when no packet was captured.
const REST: Duration = Duration::from_millis(1);
/// Longest wait for all lanes to start capturing. A sleeping lane wakes ten times a second.
const START: Duration = Duration::from_secs(2);

/// Captures packets of a running application to a pcapng file or standard output.
///
/// A packet is captured when the application receives it, with its original bytes and its verdict,
/// and again when it leaves. Each port is an interface of the capture; lane and verdict are packet
/// comments. Packets that steering leaves to Linux do not reach the application and are not
/// captured.
///
/// The lanes never wait: packets that do not fit into the ring are counted as lost. Filters are
/// applied before copying. Only root and the user of the application may capture.
///
/// Live: `fastlane capture NAME | tshark -i -`, or `| wireshark -k -i -`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the application, or path of its session socket (any argument with a `/`)
    #[arg(value_name = "NAME|PATH")]
    application: String,
    /// Output file; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    write: PathBuf,
    /// Capture only this port; can be repeated
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<String>,
    /// Capture only this lane; can be repeated
    #[arg(long = "lane", value_name = "LANE")]
    lanes: Vec<usize>,
    /// Capture only received or only transmitted packets
    #[arg(long, value_name = "DIRECTION")]
    direction: Option<Direction>,
    /// Capture only packets with this verdict; can be repeated
    #[arg(long = "verdict", value_name = "VERDICT")]
    verdicts: Vec<Verdict>,
    /// Capture only every Nth packet that the filter accepts, in each lane
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..))]
    sample: u64,
    /// Maximum number of bytes per packet
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 1 << 18,
        value_parser = clap::value_parser!(u32).range(1..=1 << 18))]
    snaplen: u32,
    /// End after this number of packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this number of seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Size of each lane's capture ring in MiB: a power of two up to 256
    #[arg(short = 'B', long, value_name = "MIB", default_value_t = 8, value_parser = buffer)]
    buffer: usize,
    /// Filter expression as for tcpdump (pcap-filter(7))
    #[arg(trailing_var_arg = true, value_name = "FILTER")]
    filter: Vec<String>,
}

/// Direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direction {
    /// Received packets
    In,
    /// Transmitted packets
    Out,
}

/// Verdict of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Verdict {
    /// Passed to Linux
    Kernel,
    /// Packets labelled `Drop`
    Drop,
    /// Transmitted on the port of arrival
    Reflect,
    /// Transmitted on another port
    Forward,
    /// Held by the lane until the application resumes the key
    Hold,
    /// Invalid verdict of the application; the packet is dropped
    Invalid,
}

impl From<Verdict> for Label {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Kernel => Self::Kernel,
            Verdict::Drop => Self::Drop,
            Verdict::Reflect => Self::Reflect,
            Verdict::Forward => Self::Forward,
            Verdict::Hold => Self::Hold,
            Verdict::Invalid => Self::Invalid,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let to_output = arguments.write.as_os_str() == "-";
    if to_output && io::stdout().is_terminal() {
        let remedy = "write to a file with `-w FILE`, or pipe it into `tshark -i -`";
        return Err(Error::Failed(format!("a capture is nothing for a terminal; {remedy}")));
    }
    let program = filter::compile(&arguments.filter.join(" ")).map_err(Error::Failed)?;
    let client = crate::top::attach(&arguments.application)?;
    let request = Request { program, ..request(arguments, &client)? };
    let stop = stop_by_signal()?;
    let copies = client.capture(&request).map_err(|error| Error::Failed(error.to_string()))?;
    let path = (!to_output).then_some(arguments.write.as_path());
    let program = concat!("fastlane capture ", env!("CARGO_PKG_VERSION"));
    let application = &client.application;
    let interfaces: Vec<_> = application.ports.iter().map(interface).collect();
    let output = CaptureFile::create(path, program, application, &interfaces, request.snap_length)?;
    let deadline = arguments.seconds.map(|seconds| Instant::now() + seconds);
    let limit = arguments.count.unwrap_or(u64::MAX);
    Capturing { client: Some(client), copies, output, limit }.run(&stop, deadline)?;
    Ok(ExitCode::SUCCESS)
}

fn request(arguments: &Arguments, client: &Client) -> Result<Request, Error> {
    let known = &client.application.ports;
    let number = |name: &String| {
        let place = known.iter().position(|port| port.name == *name);
        place.and_then(|place| u16::try_from(place).ok()).ok_or_else(|| {
            let known: Vec<_> = known.iter().map(|port| port.name.as_str()).collect();
            Error::Failed(format!("no port `{name}`; there are: {}", known.join(", ")))
        })
    };
    Ok(Request {
        lanes: arguments.lanes.clone(),
        ports: arguments.ports.iter().map(number).collect::<Result<_, _>>()?,
        arriving: arguments.direction != Some(Direction::Out),
        leaving: arguments.direction != Some(Direction::In),
        labels: arguments.verdicts.iter().copied().map(Label::from).collect(),
        program: None,
        sample: arguments.sample,
        snap_length: arguments.snaplen,
        ring_bytes: arguments.buffer << 20,
    })
}

/// Returns the interface of a port: `af-xdp on eth0, native copy, 2 queues`.
fn interface(port: &PortFacts) -> CaptureInterface {
    let interface = port.interface.as_deref().map(|name| format!(" on {name}"));
    let mode = if port.mode.is_empty() { String::new() } else { format!(", {}", port.mode) };
    let queues = if port.queues == 1 { "queue" } else { "queues" };
    let (driver, interface) = (&port.driver, interface.unwrap_or_default());
    let description = format!("{driver}{interface}{mode}, {} {queues}", port.queues);
    CaptureInterface { name: port.name.clone(), description }
}

impl From<CaptureFileError> for Error {
    fn from(error: CaptureFileError) -> Self {
        match error {
            CaptureFileError::Output(error) => Self::Output(error),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Returns a flag that becomes true on SIGINT or SIGTERM.
pub(crate) fn stop_by_signal() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order the first signal ends the capture and the second the program.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Error::Failed(format!("cannot handle signals: {error}")))?;
    }
    Ok(stop)
}

/// Running capture.
struct Capturing {
    /// Connection to the application; `None` once the capture is stopped.
    client: Option<Client>,
    copies: CaptureStream,
    output: CaptureFile,
    /// Maximum number of packets.
    limit: u64,
}

/// Reason to end the capture.
enum Stop {
    Enough,
    Failed(Error),
}

impl From<Damaged> for Stop {
    fn from(damaged: Damaged) -> Self {
        Self::Failed(Error::Failed(damaged.to_string()))
    }
}

impl Capturing {
    fn run(mut self, stop: &AtomicBool, deadline: Option<Instant>) -> Result<(), Error> {
        self.announce(stop);
        let ended =
            || stop.load(Ordering::Relaxed) || deadline.is_some_and(|it| it <= Instant::now());
        loop {
            match self.step(false)? {
                None => break,
                Some(0) => {
                    self.output.is_wanted()?;
                    std::thread::sleep(REST);
                }
                Some(_) => {}
            }
            if ended() || !self.client.as_ref().is_some_and(Client::is_alive) {
                self.client = None; // the lanes are told to end
                self.step(true)?;
                break;
            }
        }
        let (captured, lost) = (self.output.packets(), self.copies.lost());
        let packets = if captured == 1 { "packet" } else { "packets" };
        eprintln!("fastlane: {captured} {packets} captured; {lost} were not captured");
        if lost > 0 {
            eprintln!(
                "fastlane: there was no room for them; narrow the filter, shorten the packets \
                 (--snaplen) or make more room (--buffer)"
            );
        }
        Ok(())
    }

    /// Prints a message once all lanes capture.
    fn announce(&self, stop: &AtomicBool) {
        let Some(client) = &self.client else { return };
        let latest = Instant::now() + START;
        while !self.copies.have_started() && client.is_alive() && !stop.load(Ordering::Relaxed) {
            if Instant::now() > latest {
                return eprintln!("fastlane: some lanes do not respond; capturing in the others");
            }
            std::thread::sleep(REST);
        }
        let application = &client.application;
        eprintln!("fastlane: capturing {} (process {})", application.name, application.pid);
    }

    /// Writes captured packets. Returns the number of records read, or `None` at the packet limit.
    fn step(&mut self, end: bool) -> Result<Option<usize>, Error> {
        let Self { copies, output, limit, .. } = self;
        let read = copies.read(end, |copy| {
            if output.packets() >= *limit {
                return Err(Stop::Enough);
            }
            let interface = u32::from(copy.record.port.0);
            output.add(interface, &copy, "").map_err(|error| Stop::Failed(error.into()))
        });
        output.write_out()?;
        match read {
            Ok(_) if output.packets() >= *limit => Ok(None),
            Ok(count) => Ok(Some(count)),
            Err(Stop::Enough) => Ok(None),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.001..=1e9).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a number from 0.001 on".to_owned())
}

fn buffer(text: &str) -> Result<usize, String> {
    let mebibytes = text.parse::<usize>().ok();
    let mebibytes = mebibytes.filter(|count| count.is_power_of_two() && *count <= 256);
    mebibytes.ok_or_else(|| "1, 2, 4, 8, 16, 32, 64, 128 or 256".to_owned())
}
