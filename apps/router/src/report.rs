//! The command `router counters`: packet counters of a running router.

use std::fmt::Write;
use std::net::Ipv6Addr;

use clap::Args;
use fastlane::slow::{self, SlowError, SlowPath};
use fastlane::table::{EntryId, State};

use crate::counts::{CAUSE_WORDS, ROUTE_WORDS};
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

impl Arguments {
    /// Returns a line for each outcome with packets and bytes. Outcomes without packets are
    /// omitted.
    ///
    /// # Errors
    /// The mistake and its remedy.
    pub fn run(&self) -> Result<String, String> {
        let attached = slow::attach(&self.router).and_then(|slow| self.read(&slow));
        attached.map_err(|error| error.to_string())
    }

    fn read(&self, slow: &SlowPath) -> Result<String, SlowError> {
        let mut text = String::new();
        let causes: State<CAUSE_WORDS> = slow.state("causes")?;
        for (number, name) in names() {
            let [packets, octets] = causes.read(EntryId(number));
            if packets > 0 {
                let _ = writeln!(text, "{name} {packets} {octets}"); // a string takes all
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
