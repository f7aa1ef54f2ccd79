//! The command `router flows`: shows the flows of a running router.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fastlane::slow;

pub use super::explain::ExplainArguments;
use super::list::{FlowList, FlowTierName, ListedFlow};

/// Time between two looks of `--follow`.
const INTERVAL: Duration = Duration::from_millis(500);

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlowPhase {
    /// No packet that ends it was seen.
    Open,
    /// A packet that ends it was seen: Linux handles it.
    Closing,
}

/// Arguments of `router flows`.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The router: its name, or the path of its session.
    router: String,
    /// Show only flows with this address, before or after translation.
    #[arg(long)]
    address: Option<IpAddr>,
    /// Show only flows with this port, before or after translation.
    #[arg(long)]
    port: Option<u16>,
    /// Show only flows in this state.
    #[arg(long)]
    state: Option<FlowPhase>,
    /// Show only flows that this tier forwards.
    #[arg(long)]
    tier: Option<FlowTierName>,
    /// Show flows as they come (+) and go (-), until the router ends.
    #[arg(long)]
    follow: bool,
    /// Show the counters of `router offload` instead.
    #[arg(long, conflicts_with_all = ["address", "port", "state", "tier", "follow"])]
    statistics: bool,
}

impl Arguments {
    /// Returns a line for each flow.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub fn run(&self) -> Result<String, String> {
        let slow = slow::attach(&self.router).map_err(|error| error.to_string())?;
        let mut list = FlowList::attach(&slow)?;
        let mut text = String::new();
        if self.statistics {
            let Some(status) = list.status() else {
                return Err("`router offload` has not run yet".to_owned());
            };
            let capacity = ("offload_capacity".to_owned(), list.capacity() as u64);
            for (name, count) in [capacity].into_iter().chain(status.statistics.named()) {
                let _ = writeln!(text, "{name} {count}"); // a string takes all
            }
            return Ok(text);
        }
        if !self.follow {
            for flow in list.flows().filter(|flow| self.selects(flow)) {
                let _ = writeln!(text, "{flow}");
            }
            return Ok(text);
        }
        let mut known: HashMap<String, (u32, String)> = HashMap::new();
        while slow.is_alive() {
            list.look_for_tier()?;
            known = match self.changes(&list, &known) {
                Ok(current) => current,
                // As `head` does, after its lines.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                Err(error) => return Err(format!("standard output cannot be written: {error}")),
            };
            std::thread::sleep(INTERVAL);
        }
        Ok(String::new())
    }

    /// Prints flows that have come or gone since `known`, and returns those that exist.
    fn changes(
        &self,
        list: &FlowList,
        known: &HashMap<String, (u32, String)>,
    ) -> io::Result<HashMap<String, (u32, String)>> {
        let mut output = io::stdout().lock();
        let mut current = HashMap::new();
        for flow in list.flows().filter(|flow| self.selects(flow)) {
            let name = format!("{:?} {}", flow.arrives, flow.zone);
            let is_new = known.get(&name).is_none_or(|(id, _)| *id != flow.id);
            if is_new {
                writeln!(output, "+ {flow}")?;
            }
            current.insert(name, (flow.id, flow.to_string()));
        }
        for (name, (id, line)) in known {
            if current.get(name).is_none_or(|(other, _)| other != id) {
                writeln!(output, "- {line}")?;
            }
        }
        Ok(current)
    }

    fn selects(&self, flow: &ListedFlow) -> bool {
        let state = if flow.is_closing() { FlowPhase::Closing } else { FlowPhase::Open };
        self.address.is_none_or(|address| flow.addresses().contains(&address))
            && self.port.is_none_or(|port| flow.ports().contains(&port))
            && self.state.is_none_or(|wanted| wanted == state)
            && self.tier.is_none_or(|wanted| flow.tier() == Some(wanted))
    }
}
