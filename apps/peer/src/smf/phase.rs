//! Phases of an SMF: establishes, modifies and deletes all sessions.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use fastlane_pfcp::Fault;

use super::client::{Client, Counts, verdict};
use super::{CpuTime, Established, Sessions, SmfError, request};
use crate::tunnel::Tunnel;

/// Procedure carried out for each session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Establishment of the session.
    Establish,
    /// Modification of the downlink FAR.
    Modify,
    /// Deletion of the session.
    Delete,
}

/// Result of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number of accepted requests.
    pub accepted: u32,
    /// Number of refused requests.
    pub refused: u32,
    /// Fault of the first refused request.
    pub fault: Option<Fault>,
    /// Duration of the phase.
    pub took: Duration,
    /// CPU time that the watched process used during the phase.
    pub cpu: Option<Duration>,
}

/// Subject of a response: the index of a session, or `None` for the association.
type Subject = Option<u32>;

/// SMF with its sessions.
pub struct Smf {
    client: Client<Subject>,
    sessions: Sessions,
    window: usize,
    watched: Option<CpuTime>,
    established: Vec<Option<Established>>,
}

impl Smf {
    /// Opens the socket and sets up the association.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket cannot be opened, or the UPF does not answer or refuses.
    pub fn associate(
        local: SocketAddr,
        upf: SocketAddr,
        sessions: Sessions,
        window: usize,
        watched: Option<CpuTime>,
    ) -> Result<Self, SmfError> {
        let client = Client::open(local, upf)?;
        let established = vec![None; sessions.count as usize];
        let mut smf = Self { client, sessions, window: window.max(1), watched, established };
        let (address, started) = (smf.client.address(), smf.client.started());
        let setup = |sequence| request::association(sequence, address, started);
        smf.ask("association setup", setup)?;
        Ok(smf)
    }

    /// Sends a node related request and waits for its response.
    fn ask(
        &mut self,
        what: &'static str,
        make: impl FnOnce(u32) -> Vec<u8>,
    ) -> Result<(), SmfError> {
        self.client.request(None, make)?;
        let mut result = None;
        while result.is_none() {
            self.client.turn(|_, answer| result = Some(verdict(answer)))?;
        }
        result.unwrap_or(Ok(())).map_err(|fault| SmfError::Refused { what, fault })
    }

    /// Carries out a phase for all sessions to which it applies.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails or the UPF does not answer. Refusals are counted, not
    /// errors.
    pub fn carry_out(&mut self, phase: Phase) -> Result<Report, SmfError> {
        let before = self.watched.map(CpuTime::read).transpose()?;
        let begun = Instant::now();
        let mut report =
            Report { accepted: 0, refused: 0, fault: None, took: Duration::ZERO, cpu: None };
        let is_up = phase != Phase::Establish;
        let wanted: Vec<u32> = (0..self.sessions.count)
            .filter(|index| self.established[*index as usize].is_some() == is_up)
            .collect();
        let mut wanted = wanted.into_iter();
        loop {
            while self.client.outstanding() < self.window {
                let Some(index) = wanted.next() else { break };
                self.send(phase, index)?;
            }
            if self.client.outstanding() == 0 {
                break;
            }
            let (sessions, established) = (&self.sessions, &mut self.established);
            let mut new = None;
            self.client.turn(|what, answer| {
                let Some(index) = what else { return };
                if let Err(fault) = verdict(answer) {
                    report.refused += 1;
                    report.fault = report.fault.or(Some(fault));
                    return;
                }
                report.accepted += 1;
                let session_slot = &mut established[index as usize];
                match phase {
                    Phase::Establish => {
                        let session = request::established(answer, sessions, index);
                        new = Some((request::seid(index), session.seid));
                        *session_slot = Some(session);
                    }
                    Phase::Modify => {}
                    Phase::Delete => *session_slot = None,
                }
            })?;
            if let Some((ours, theirs)) = new {
                self.client.remember(ours, theirs);
            }
        }
        report.took = begun.elapsed();
        let after = self.watched.map(CpuTime::read).transpose()?;
        report.cpu = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        Ok(report)
    }

    fn send(&mut self, phase: Phase, index: u32) -> Result<(), SmfError> {
        let address = self.client.address();
        let seid = self.established[index as usize].map_or(0, |session| session.seid);
        let sessions = &self.sessions;
        self.client.request(Some(index), |sequence| match phase {
            Phase::Establish => request::establish(sequence, address, sessions, index),
            Phase::Modify => request::modify(sequence, sessions, index, seid),
            Phase::Delete => request::delete(sequence, seid),
        })
    }

    /// Returns the tunnels of the established sessions, one for each address of a user.
    pub fn tunnels(&self) -> impl Iterator<Item = Tunnel> + '_ {
        let up = self.established.iter().zip(0..);
        let up = up.filter_map(|(session, index)| session.map(|session| (session, index)));
        up.flat_map(move |(session, index)| {
            let users = session.v4.map(IpAddr::V4).into_iter().chain(session.v6.map(IpAddr::V6));
            users.filter_map(move |user| {
                Some(Tunnel {
                    user,
                    upf: session.upf?,
                    uplink: session.uplink,
                    downlink: request::downlink_teid(index),
                    qfi: self.sessions.qfi,
                })
            })
        })
    }

    /// Serves requests of the UPF until `is_over` returns true. It is called at least every 50 ms.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn hold(&mut self, is_over: impl Fn() -> bool) -> Result<(), SmfError> {
        while !is_over() {
            self.client.turn(|_, _| {})?;
        }
        Ok(())
    }

    /// Releases the association and with it all sessions.
    ///
    /// # Errors
    ///
    /// Returns an error if the UPF does not answer or refuses.
    pub fn release(mut self) -> Result<Counts, SmfError> {
        let address = self.client.address();
        self.ask("association release", |sequence| request::release(sequence, address))?;
        Ok(self.client.counts())
    }

    /// Returns the counts of messages other than requests and their responses.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.client.counts()
    }
}
