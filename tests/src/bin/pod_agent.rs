//! Agent that takes grants from its standard input, one request a line: the front door of the
//! stories of the agent. Usage: `pod_agent PINS`.
//!
//! * `{"grant": NAME, "pool": POOL, "socket": PATH, "cgroup": WORDS}`: gives a grant. If `cgroup`
//!   is there, the control groups of who connects must contain it.
//! * `{"revoke": NAME}`
//! * `{"use": true}`: prints the use of all grants.
//!
//! It prints a line for each request: `done`, a reason, or the use.

use std::io::BufRead;
use std::sync::Arc;

use fastlane_agent::{Admission, Agent, Configuration, Grant, Peer};
use serde_json::Value;

/// Lets processes in that are in a control group.
#[derive(Debug)]
struct InControlGroup(String);

impl Admission for InControlGroup {
    fn admit(&self, peer: &Peer) -> Result<(), String> {
        let groups = peer.cgroups().map_err(|error| error.to_string())?;
        match groups.contains(&self.0) {
            true => Ok(()),
            false => Err(format!("process {} is in another pod", peer.process)),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    fastlane::log(1);
    let pins = std::env::args_os().nth(1).ok_or("usage: pod_agent PINS")?;
    let agent = Agent::start(Configuration { pins: pins.into(), ..Configuration::default() })?;
    eprintln!("the front door is open");
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        match respond(&agent, &request) {
            Ok(response) => println!("{response}"),
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}

fn respond(agent: &Agent, request: &Value) -> Result<String, Box<dyn std::error::Error>> {
    let done = "done".to_owned();
    if let Some(name) = request["grant"].as_str() {
        let admission = request["cgroup"].as_str().map(|words| {
            let admission: Arc<dyn Admission> = Arc::new(InControlGroup(words.to_owned()));
            admission
        });
        let pool = serde_json::from_value(request["pool"].clone())?;
        let socket = request["socket"].as_str().ok_or("no socket")?.into();
        agent.grant(name, Grant { pool, socket, admission })?;
        return Ok(done);
    }
    if let Some(name) = request["revoke"].as_str() {
        return Ok(if agent.revoke(name) { done } else { "there is no such grant".to_owned() });
    }
    let uses = agent.grants().into_iter();
    let uses = uses.map(|it| format!("{} {} {}", it.name, it.connections, it.interfaces.join(",")));
    Ok(format!("[{}]", uses.collect::<Vec<_>>().join("; ")))
}
