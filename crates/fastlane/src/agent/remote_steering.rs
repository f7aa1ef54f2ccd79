//! Steering program that the agent has attached.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fastlane_af_xdp::{Error, Steering};
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

    fn change(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.client.change(request, descriptors).map_err(Error::Agent)
    }
}

impl Steering for RemoteSteering {
    fn replace_rules(&mut self, rules: &Rules) -> Result<(), Error> {
        let steer: Vec<Rule> = rules.as_slice().iter().map(Rule::from).collect();
        let device = self.device.clone();
        self.change(&Request::ReplaceRules { device, steer: steer.clone() }, &[])?;
        self.client.remember(&self.device, |it| it.attach.steer = steer);
        Ok(())
    }

    fn release(&mut self) -> Result<(), Error> {
        self.client.remember(&self.device, |it| it.is_released = true);
        self.change(&Request::Release { device: self.device.clone() }, &[])
    }

    fn set_max_length(&mut self, length: u32) -> Result<(), Error> {
        self.client.remember(&self.device, |it| it.attach.max_length = length);
        self.change(&Request::SetMaxLength { device: self.device.clone(), length }, &[])
    }

    fn insert_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.change(&Request::Claim { device: self.device.clone(), queue }, &[socket])
    }

    fn counts(&self) -> Result<Counts, Error> {
        let counts = self.client.counts(&self.device).map_err(Error::Agent)?;
        let [claimed, passed, uncovered, too_long, reentered] = counts;
        Ok(Counts { claimed, passed, uncovered, too_long, reentered })
    }

    fn detach(&mut self) {
        self.client.detach(&self.device);
    }
}
