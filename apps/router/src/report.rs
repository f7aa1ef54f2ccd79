//! The command `router counters`: packet counters of a running router.

use std::fmt::Write;
use std::net::Ipv6Addr;

use clap::Args;
use fastlane::flow_tier::OutcomeCount;
use fastlane::mirror::flows::FlowStatus;
use fastlane::slow::{self, SlowError, SlowPath};
use fastlane::table::{EntryId, State};

use crate::counts::{CAUSE_WORDS, ROUTE_WORDS};
use crate::flows::list::tier_of;
use crate::flows::offload::STATUS;
use crate::names;

/// Arguments of `router counters`.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The router: its name, or the path of its session.
    router: String,
    /// Also show the routes in use by number, with the destination of the last packet.
    #[arg(long)]
    routes: bool,
}

/// Returns the outcomes of packets in the kernel tier; none if there is no such tier.
fn kernel_counts(slow: &SlowPath) -> Result<Vec<OutcomeCount>, String> {
    let status = match slow.record::<FlowStatus>(STATUS) {
        Err(SlowError::NoTable { .. }) => return Ok(Vec::new()), // a router without flows
        status => status.map_err(|error| error.to_string())?,
    };
    let Some(tier) = tier_of(&status)? else { return Ok(Vec::new()) };
    tier.outcomes().map_err(|error| format!("the kernel tier's counters cannot be read: {error}"))
}

impl Arguments {
    /// Returns a line for each outcome with packets and bytes, of the lanes and of the kernel tier.
    /// Outcomes without packets are omitted.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub fn run(&self) -> Result<String, String> {
        let slow = slow::attach(&self.router).map_err(|error| error.to_string())?;
        let kernel = kernel_counts(&slow)?;
        self.read(&slow, &kernel).map_err(|error| error.to_string())
    }

    fn read(&self, slow: &SlowPath, kernel: &[OutcomeCount]) -> Result<String, SlowError> {
        let mut text = String::new();
        let mut show = |name: &str, [packets, octets]: [u64; 2]| {
            if packets > 0 {
                let _ = writeln!(text, "{name} {packets} {octets}"); // a string takes all
            }
        };
        let of_kernel = |name: &str| {
            let count = kernel.iter().find(|count| count.outcome.name() == name);
            count.map_or([0; 2], |count| [count.packets, count.octets])
        };
        let causes: State<CAUSE_WORDS> = slow.state("causes")?;
        for (number, name) in names() {
            let ([packets, octets], more) = (causes.read(EntryId(number)), of_kernel(&name));
            show(&name, [packets + more[0], octets + more[1]]);
        }
        // The kernel tier has some outcomes that lanes do not have.
        for count in kernel {
            let name = count.outcome.name();
            if names().all(|(_, other)| other != name) {
                show(name, [count.packets, count.octets]);
            }
        }
        if self.routes {
            let routes: State<ROUTE_WORDS> = slow.state("routes")?;
            for number in 0..routes.capacity() as u32 {
                let [packets, octets, upper, lower] = routes.read(EntryId(number));
                if packets > 0 {
                    let last = u128::from(upper) << 64 | u128::from(lower);
                    let last = Ipv6Addr::from_bits(last).to_canonical();
                    let _ = writeln!(text, "route-{number} {packets} {octets} {last}");
                }
            }
        }
        Ok(text)
    }
}
