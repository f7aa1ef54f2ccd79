//! What an application answers.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::leases::Leases;
use super::peer::{Answer, Asker, Service};
use super::protocol::Kind;
use super::requests::{
    Changes, Keep, MessageRings, NewRules, Reload, ShardList, Shards, TableList, Write,
};
use crate::capture::Captures;
use crate::config::plan::MAX_TABLES;
use crate::kept::Keepsakes;
use crate::messages::Rings;
use crate::reshard::Resharder;
use crate::steering::Steering;
use crate::tables::Tables;

/// How often it is looked whether the lanes have let go of a capture that has ended.
const SWEEP: Duration = Duration::from_millis(50);

/// What an application has for its clients besides its description and its counters.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    pub(crate) captures: Captures,
    pub(crate) tables: Arc<Tables>,
    pub(crate) steering: Option<Steering>,
    pub(crate) messages: Option<Rings>,
    pub(crate) resharder: Option<Resharder>,
    pub(crate) keepsakes: Option<Arc<Keepsakes>>,
}

/// The application's side of all conversations.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) facts: Vec<u8>,
    pub(super) counters: Arc<OwnedFd>,
    pub(super) offers: Offers,
    leases: Leases,
    /// Who captures.
    capturing: Option<Arc<Asker>>,
}

impl Host {
    pub(super) fn new(facts: Vec<u8>, counters: OwnedFd, offers: Offers) -> Self {
        let (leases, capturing) = (Leases::default(), None);
        Self { facts, counters: Arc::new(counters), offers, leases, capturing }
    }

    fn capture(&mut self, asker: &Arc<Asker>, body: &[u8]) -> Result<Answer, String> {
        let (granted, rings) = self.offers.captures.start(body, asker.process)?;
        self.capturing = Some(Arc::clone(asker));
        let descriptors = vec![Arc::new(rings)];
        Ok(Answer { kind: Kind::Capture, body: granted, descriptors })
    }

    fn tables(&self) -> Result<Answer, String> {
        let holder = |name: &str| self.leases.holder(&lease_of(name)).map(ToString::to_string);
        let (tables, descriptors) = self.offers.tables.to_read(holder);
        Ok(Answer { descriptors, ..answer(Kind::Tables, &TableList { tables })? })
    }

    fn write(&mut self, asker: &Arc<Asker>, body: &[u8]) -> Result<Answer, String> {
        let Write { tables: names } = read(body)?;
        let is_twice = |(place, name): (usize, &String)| names[..place].contains(name);
        if names.len() > MAX_TABLES || names.iter().enumerate().any(is_twice) {
            return Err("a table is named twice; name each once".to_owned());
        }
        let (tables, descriptors) = self.offers.tables.to_write(&names)?;
        let leases: Vec<String> = names.iter().map(|name| lease_of(name)).collect();
        self.leases.take(&leases, asker)?;
        Ok(Answer { descriptors, ..answer(Kind::Write, &TableList { tables })? })
    }

    fn messages(&mut self, asker: &Arc<Asker>) -> Result<Answer, String> {
        let rings = self.offers.messages.as_ref();
        let rings = rings.ok_or("it has no messages; write `\"messages\": {}` and restart it")?;
        let (lanes, descriptors) = rings.parts();
        self.leases.take(&["its messages".to_owned()], asker)?;
        Ok(Answer { descriptors, ..answer(Kind::Messages, &MessageRings { lanes })? })
    }

    fn steering(&mut self) -> Result<&mut Steering, String> {
        self.offers.steering.as_mut().ok_or_else(|| "its steering is fixed".to_owned())
    }
}

/// What is leased of a table.
fn lease_of(table: &str) -> String {
    format!("the right to write table `{table}`")
}

impl Host {
    /// Moves a shard, or does not, and tells where all are.
    fn shards(&mut self, moved: Option<(u8, usize)>) -> Result<ShardList, String> {
        let Some(resharder) = &mut self.offers.resharder else {
            return Err("its packets do not change lanes; see `lane-by`".to_owned());
        };
        if let Some((shard, lane)) = moved {
            resharder.move_shard(shard, lane)?;
        }
        let (lanes, packets) = resharder.shares().iter().map(|it| (it.lane, it.packets)).unzip();
        Ok(ShardList { lanes, packets })
    }
}

impl Service for Host {
    fn welcome(&mut self) -> Answer {
        let descriptors = vec![Arc::clone(&self.counters)];
        Answer { kind: Kind::Application, body: self.facts.clone(), descriptors }
    }

    fn answer(&mut self, asker: &Arc<Asker>, kind: Kind, body: &[u8]) -> Result<Answer, String> {
        match kind {
            Kind::Capture => self.capture(asker, body),
            Kind::Tables => self.tables(),
            Kind::Write => self.write(asker, body),
            Kind::Rules => {
                let NewRules { port, rules } = read(body)?;
                let ports = vec![self.steering()?.replace(&port, rules)?];
                answer(kind, &Changes { ports })
            }
            Kind::Reload => {
                let Reload { file } = read(body)?;
                let ports = self.steering()?.reload(file)?;
                answer(kind, &Changes { ports })
            }
            Kind::Messages => self.messages(asker),
            Kind::Shards => {
                let Shards { moved } = read(body)?;
                answer(kind, &self.shards(moved)?)
            }
            Kind::Keep => {
                let Keep { from, .. } = read(body)?;
                let keepsakes = self.offers.keepsakes.as_ref();
                let keepsakes = keepsakes.ok_or("there is nothing to be kept")?;
                let lease = "what a successor needs".to_owned();
                if from == 0 {
                    self.leases.take(&[lease], asker)?;
                } else if !self.leases.has(&lease, asker) {
                    return Err("a keeper asks for the first descriptors first".to_owned());
                }
                keepsakes.answer(from)
            }
            Kind::Application | Kind::Refusal => Err("a message that is no request".to_owned()),
        }
    }

    fn gone(&mut self, asker: &Asker) {
        if self.capturing.as_ref().is_some_and(|it| std::ptr::eq(it.as_ref(), asker)) {
            self.capturing = None;
            self.offers.captures.stop();
        }
        self.leases.release(asker);
    }

    fn sweep(&mut self, now: Instant) -> Option<Instant> {
        self.offers.captures.sweep();
        self.offers.captures.are_held().then(|| now + SWEEP)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.offers.captures.stop();
    }
}

/// Reads the body of a request.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body)
        .map_err(|error| format!("the request cannot be read ({error}); use one release"))
}

/// An answer without descriptors.
pub(super) fn answer<T: Serialize>(kind: Kind, body: &T) -> Result<Answer, String> {
    let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    Ok(Answer::new(kind, body))
}
