//! Forwards IPv4 and IPv6 by the routes of Linux; `router acl` and `router counters` control a
//! running router.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use fastlane::{Error, LaneInfo, Shape};
use router::acl::command;
use router::acl::compiled::{AccessList, entries};
use router::counts::Counts;
use router::flows::flows_command::ExplainArguments;
use router::flows::{self, LaneFlows, kernel_outcomes, offload, offload_metrics};
use router::settings::{FlowsSettings, Settings, program};
use router::{FlowHash, Router, names, report};

/// Commands besides running as an application.
#[derive(Debug, Parser)]
enum Tool {
    /// Change what a running router may forward.
    #[command(subcommand)]
    Acl(command::Command),
    /// Show the packet counters of a running router, by outcome and by route.
    Counters(report::Arguments),
    /// Show the flows of a running router.
    Flows(flows::flows_command::Arguments),
    /// Show who forwards the packets of a connection, and why.
    Explain(ExplainArguments),
    /// Follow the connections of Linux, and make those fast that it has marked.
    Offload(offload::Arguments),
}

fn main() -> ExitCode {
    let first = std::env::args().nth(1);
    let is_tool =
        |first: &str| matches!(first, "acl" | "counters" | "flows" | "explain" | "offload");
    if !first.as_deref().is_some_and(is_tool) {
        let hash = FlowHash::random();
        let arguments = std::env::args_os();
        let run = |lane: &LaneInfo<'_>| router(lane, hash);
        fastlane::abort_on_panic();
        return program().main_from(arguments, &Arc::default(), run).into();
    }
    let result = match Tool::parse() {
        Tool::Acl(command) => command.run(),
        Tool::Counters(arguments) => arguments.run(),
        Tool::Flows(arguments) => arguments.run(),
        Tool::Explain(arguments) => arguments.run(),
        Tool::Offload(arguments) => arguments.run(),
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
    let causes = lane.outcomes("causes", names())?;
    let mirror = lane.mirror()?;
    let routes =
        mirror.counts_routes().then(|| lane.route_state("routes", Shape::PerLane)).transpose()?;
    let router = Router::new(mirror, Counts::new(causes, routes), hash)
        .with_same_interface(settings.same_interface);
    if let Some(settings) = &settings.flows {
        return Ok(router.with_flows(lane_flows(lane, settings)?));
    }
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

fn lane_flows(lane: &LaneInfo<'_>, settings: &FlowsSettings) -> Result<LaneFlows, Error> {
    let mut zones = vec![0; lane.port_names().count()];
    for (name, zone) in &settings.zones {
        // A port of the kernel tier is not one of lanes.
        if let Some(port) = lane.port(name) {
            zones[usize::from(port.0)] = *zone;
        }
    }
    let state = lane.state("flows", Shape::PerLane)?;
    let status = lane.record("offload")?;
    lane.add_outcomes("causes", kernel_outcomes(lane.record("offload")?));
    lane.add_metrics("offload", offload_metrics(lane.record("offload")?));
    let flows = LaneFlows::new(lane.hash("flows")?, state, status, zones);
    Ok(flows.with_prefetch(settings.prefetch))
}
