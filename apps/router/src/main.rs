//! Forwards IPv4 and IPv6 by the routes of Linux; `router acl` and `router counters` control a
//! running router.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use fastlane::{Error, LaneInfo, Shape};
use router::acl::command;
use router::acl::compiled::{AccessList, entries};
use router::counts::Counts;
use router::settings::Settings;
use router::{FlowHash, Router, report};

/// Commands besides running as an application.
#[derive(Debug, Parser)]
enum Tool {
    /// Change what a running router may forward.
    #[command(subcommand)]
    Acl(command::Command),
    /// Show the packet counters of a running router, by outcome and by route.
    Counters(report::Arguments),
}

fn main() -> ExitCode {
    let first = std::env::args().nth(1);
    if !matches!(first.as_deref(), Some("acl" | "counters")) {
        let hash = FlowHash::random();
        return fastlane::main(|lane| router(lane, hash));
    }
    let result = match Tool::parse() {
        Tool::Acl(command) => command.run(),
        Tool::Counters(arguments) => arguments.run(),
    };
    match result {
        Ok(text) => {
            // That nobody reads it is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("router: {error}");
            ExitCode::FAILURE
        }
    }
}

fn router(lane: &LaneInfo<'_>, hash: FlowHash) -> Result<Router<fastlane::mirror::Mirror>, Error> {
    let settings: Settings = lane.settings()?;
    let causes = lane.state("causes", Shape::PerLane)?;
    let mirror = lane.mirror()?;
    let routes =
        mirror.counts_routes().then(|| lane.route_state("routes", Shape::PerLane)).transpose()?;
    let router = Router::new(mirror, Counts::new(causes, routes), hash)
        .with_same_interface(settings.same_interface);
    if !settings.acl {
        return Ok(router);
    }
    let hits = lane.state("acl", Shape::PerLane)?;
    let mut list = AccessList::new(lane.classifier("acl", entries)?, hits);
    if settings.police {
        list = list.with_meters(lane.state("police", Shape::PerLane)?);
    }
    Ok(router.with_access_list(list))
}
