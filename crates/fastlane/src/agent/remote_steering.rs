//! Steering program that the agent has attached, of an AF_XDP or AF_PACKET port.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fastlane_af_xdp as af_xdp;
use fastlane_kernel::{self as kernel, af_packet};
use fastlane_steer::{Counts, Rules};

use super::AgentClient;
use super::records::{Request, Token};
use crate::config::Rule;

/// Steering program of one device, controlled through the agent. It stays attached while a process
/// has the connection, unless it is detached.
#[derive(Debug)]
pub(crate) struct RemoteSteering {
    client: Arc<AgentClient>,
    device: Token,
}

impl RemoteSteering {
    pub(crate) fn new(client: Arc<AgentClient>, device: Token) -> Self {
        Self { client, device }
    }

    fn change(&self, request: &Request) -> Result<(), String> {
        self.client.change(request, &[])
    }

    fn replace(&self, rules: &Rules) -> Result<(), String> {
        let steer: Vec<Rule> = rules.as_slice().iter().map(Rule::from).collect();
        let device = self.device.clone();
        self.change(&Request::ReplaceRules { device, steer: steer.clone() })?;
        self.client.remember(&self.device, |it| it.attach.steer = steer);
        Ok(())
    }

    fn leave_all(&self) -> Result<(), String> {
        self.client.remember(&self.device, |it| it.is_released = true);
        self.change(&Request::Release { device: self.device.clone() })
    }

    fn read(&self) -> Result<Counts, String> {
        let [claimed, passed, uncovered, too_long, reentered] = self.client.counts(&self.device)?;
        Ok(Counts { claimed, passed, uncovered, too_long, reentered })
    }
}

impl af_xdp::Steering for RemoteSteering {
    fn replace_rules(&mut self, rules: &Rules) -> Result<(), af_xdp::Error> {
        self.replace(rules).map_err(af_xdp::Error::Agent)
    }

    fn release(&mut self) -> Result<(), af_xdp::Error> {
        self.leave_all().map_err(af_xdp::Error::Agent)
    }

    fn set_max_length(&mut self, length: u32) -> Result<(), af_xdp::Error> {
        self.client.remember(&self.device, |it| it.attach.max_length = length);
        let request = Request::SetMaxLength { device: self.device.clone(), length };
        self.change(&request).map_err(af_xdp::Error::Agent)
    }

    fn insert_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), af_xdp::Error> {
        let request = Request::Claim { device: self.device.clone(), queue };
        self.client.change(&request, &[socket]).map_err(af_xdp::Error::Agent)
    }

    fn counts(&self) -> Result<Counts, af_xdp::Error> {
        self.read().map_err(af_xdp::Error::Agent)
    }

    fn detach(&mut self) {
        self.client.detach(&self.device);
    }
}

impl af_packet::Steering for RemoteSteering {
    fn replace_rules(&mut self, rules: &Rules) -> Result<(), kernel::Error> {
        self.replace(rules).map_err(kernel::Error::Agent)
    }

    fn release(&mut self) -> Result<(), kernel::Error> {
        self.leave_all().map_err(kernel::Error::Agent)
    }

    fn counts(&self) -> Result<Counts, kernel::Error> {
        self.read().map_err(kernel::Error::Agent)
    }

    fn detach(&mut self) {
        self.client.detach(&self.device);
    }
}
