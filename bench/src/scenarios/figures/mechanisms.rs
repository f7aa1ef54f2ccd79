//! The same application on each mechanism, selected by its configuration: cost per frame and CPU
//! use by load.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Result;
use crate::device::application::{Application, ApplicationKind, dpdk_driver};
use crate::device::load::{SETTLE, Sender, Usage, load};
use crate::device::memif_server::{self, Device};
use crate::device::veth_pair::{TapSide, Veth, in_namespace};
use crate::rivals::dpdk_loop::Compiled;

/// Length of a 64-byte Ethernet frame without the check sequence.
const LENGTH: usize = 60;
/// Maximum number of frames in flight over memif at the maximum rate.
const WINDOW: u64 = 512;
/// Name of the device of a TAP port.
const TAP: &str = "bench0";

/// Mechanism and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// AF_XDP in native copy mode, on veth.
    AfXdp,
    /// AF_XDP in native copy mode with busy polling, on veth.
    AfXdpBusyPoll,
    /// AF_XDP in generic mode, on veth.
    AfXdpGeneric,
    /// AF_PACKET, on veth.
    AfPacket,
    /// TAP device.
    Tap,
    /// Native memif.
    Memif,
    /// The memif driver of DPDK.
    DpdkMemif,
    /// The AF_XDP driver of DPDK, on veth.
    DpdkAfXdp,
    /// The AF_PACKET driver of DPDK, on veth.
    DpdkAfPacket,
    /// The TAP driver of DPDK.
    DpdkTap,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Self; 10] = [
        Self::AfXdp,
        Self::AfXdpBusyPoll,
        Self::AfXdpGeneric,
        Self::AfPacket,
        Self::Tap,
        Self::Memif,
        Self::DpdkMemif,
        Self::DpdkAfXdp,
        Self::DpdkAfPacket,
        Self::DpdkTap,
    ];

    /// Returns the driver as written in a configuration; `interface` is one end of a veth pair.
    fn driver(self, interface: &str) -> Value {
        let xdp = |mode| json!({ "af-xdp": { "interface": interface, "mode": mode } });
        match self {
            Self::AfXdp => xdp("native-copy"),
            Self::AfXdpBusyPoll => {
                let mut driver = xdp("native-copy");
                driver["af-xdp"]["busy-poll"] = json!({ "time-us": 20, "budget": 64 });
                driver
            }
            Self::AfXdpGeneric => xdp("generic-copy"),
            Self::AfPacket => json!({ "af-packet": { "interface": interface } }),
            Self::Tap => json!({ "tap": { "name": TAP } }),
            // These mechanisms have a socket instead of an interface.
            Self::Memif | Self::DpdkMemif => Value::Null,
            Self::DpdkAfXdp => dpdk_driver(&format!("net_af_xdp0,iface={interface},force_copy=1")),
            Self::DpdkAfPacket => dpdk_driver(&format!(
                "net_af_packet0,iface={interface},blocksz=4096,framesz=2048,framecnt=2048,\
                 qdisc_bypass=1"
            )),
            Self::DpdkTap => dpdk_driver(&format!("net_tap0,iface={TAP}")),
        }
    }

    /// Returns the program that serves memif, for the memif mechanisms.
    fn memif(self) -> Option<memif_server::MemifContender> {
        match self {
            Self::Memif => Some(memif_server::MemifContender::Native),
            Self::DpdkMemif => Some(memif_server::MemifContender::OnDpdk),
            _ => None,
        }
    }
}

impl std::fmt::Display for Mechanism {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::AfXdp => "AF_XDP",
            Self::AfXdpBusyPoll => "AF_XDP, busy polling",
            Self::AfXdpGeneric => "AF_XDP, generic",
            Self::AfPacket => "AF_PACKET",
            Self::Tap => "TAP",
            Self::Memif => "memif",
            Self::DpdkMemif => "DPDK, memif",
            Self::DpdkAfXdp => "DPDK, AF_XDP",
            Self::DpdkAfPacket => "DPDK, AF_PACKET",
            Self::DpdkTap => "DPDK, TAP",
        })
    }
}

/// Measures macswap on `mechanism` with the idle policy `idle`: at the maximum rate, then at each
/// of `loads`, which are fractions of that rate.
///
/// # Errors
/// Returns an error if the program does not start or no frame comes back.
pub fn usages(
    mechanism: Mechanism,
    idle: &str,
    loads: &[f64],
    length: Duration,
    compiled: &Compiled,
) -> Result<Vec<Usage>> {
    let mut usages = Vec::new();
    let mut all = |at: &mut dyn FnMut(Option<f64>) -> Result<Usage>| {
        let most = at(None)?;
        if most.rate < 1.0 {
            return Err(format!("{mechanism}, {idle}: no frame came back").into());
        }
        usages.push(most);
        for load in loads {
            usages.push(at(Some(load * most.rate))?);
        }
        Ok(())
    };
    match mechanism.memif() {
        Some(who) => {
            let mut device = Device::start(who, LENGTH, idle, compiled)?;
            all(&mut |rate| over_memif(&mut device, rate, length))?;
        }
        None => in_namespace(|| {
            let (application, sender) = start(mechanism, idle)?;
            all(&mut |rate| load(&*sender, &application, rate, length))
        })?,
    }
    Ok(usages)
}

/// Starts the application and returns it with the sender of its frames.
fn start(mechanism: Mechanism, idle: &str) -> Result<(Application, Box<dyn Sender>)> {
    let lanes = json!({ "idle": idle });
    let run = |driver: &Value| {
        let application = Application::start(&ApplicationKind::Macswap, driver, &lanes)?;
        // The application gets the sender's priority. Without the permission the result is noisier,
        // but still correct.
        let _ = crate::rivals::ffi::set_real_time_of(application.thread, true);
        Ok::<_, crate::Error>(application)
    };
    if matches!(mechanism, Mechanism::Tap | Mechanism::DpdkTap) {
        let application = run(&mechanism.driver(""))?;
        return Ok((application, Box::new(TapSide::new(TAP, LENGTH)?)));
    }
    let veth = Veth::new(1, LENGTH, false)?;
    Ok((run(&mechanism.driver(&veth.name))?, Box::new(veth)))
}

fn over_memif(device: &mut Device, rate: Option<f64>, length: Duration) -> Result<Usage> {
    let mut run = |time: Duration| {
        device.during(|client| match rate {
            None => client.closed(WINDOW, time),
            Some(0.0) => {
                std::thread::sleep(time);
                Ok(0)
            }
            Some(rate) => Ok(client.paced(rate, time)?.sent),
        })
    };
    run(SETTLE)?;
    let (packets, cpu) = run(length)?;
    let seconds = length.as_secs_f64();
    Ok(Usage { core: cpu.as_secs_f64() / seconds, rate: packets as f64 / seconds })
}
