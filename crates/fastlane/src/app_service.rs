//! Service behind the session of an application: replies to requests for tables, messages,
//! captures, steering rules, shards and the handover.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastlane_table::counters::Counters;
use serde::Serialize;

use crate::capture::Captures;
use crate::config::plan::MAX_TABLES;
use crate::describe::{Application, Description};
use crate::handover::Handover;
use crate::message_rings::MessageRings;
use crate::port_switch::Switcher;
use crate::reshard::Resharder;
use crate::rule_reload::RuleReloader;
use crate::session::{
    Changes, ClientIdentity, HandoverRequest, Kind, LIMIT, MessageRingList, NewRules, Reload,
    ReplacedRules, Reply, Reservation, Response, Service, Session, SessionError, ShardList, Shards,
    TableList, Write, read_request, serve,
};
use crate::tables::{Tables, read_only};

/// Interval at which ended captures are checked until all lanes have released them.
const SWEEP: Duration = Duration::from_millis(50);

/// Resources that clients of the session can ask for, besides description and counters.
#[derive(Debug, Default)]
pub(crate) struct SessionResources {
    pub(crate) captures: Captures,
    pub(crate) tables: Arc<Tables>,
    pub(crate) rules: Option<RuleReloader>,
    pub(crate) messages: Option<MessageRings>,
    pub(crate) resharder: Option<Resharder>,
    pub(crate) handover: Option<Arc<Handover>>,
    pub(crate) switcher: Option<Switcher>,
}

impl Session {
    /// Opens the session at `path` (see [`session::path`](crate::session::path)) and serves it on
    /// its own thread. A missing directory is created; a socket that a dead process left is
    /// replaced.
    ///
    /// # Errors
    /// Fails if the socket cannot be created or another process listens there.
    pub fn open(
        path: &Path,
        application: &Application,
        counters: &Counters,
    ) -> Result<Self, SessionError> {
        let resources = SessionResources::default();
        let description = Description::new(application.clone());
        Self::serve(Reservation::new(path)?, description, counters, resources)
    }

    /// Serves the session at a reserved path, with all `resources` of the application.
    pub(crate) fn serve(
        reservation: Reservation,
        description: Description,
        counters: &Counters,
        resources: SessionResources,
    ) -> Result<Self, SessionError> {
        let path = reservation.path().to_owned();
        let failed = |what| {
            let path = path.clone();
            move |source| SessionError::Start { path, what, source }
        };
        let body = serde_json::to_vec(&*description.get()).map_err(io::Error::other);
        let body = body.map_err(failed("the application cannot be described"))?;
        if body.len() > LIMIT {
            return Err(SessionError::TooLong { path: path.clone(), limit: LIMIT });
        }
        let counters = read_only(counters.memory().as_fd())
            .map_err(failed("the counters cannot be reopened read-only through /proc"))?;
        let service = AppService::new(description, counters, resources);
        serve(reservation, service).map_err(failed("no eventfd or thread could be created"))
    }
}

/// Service of a running application.
#[derive(Debug)]
struct AppService {
    description: Description,
    counters: Arc<OwnedFd>,
    resources: SessionResources,
    /// Rules and shards. Their changes wait for the kernel and for lanes, so workers make them.
    rules: Arc<Mutex<Option<RuleReloader>>>,
    resharder: Arc<Mutex<Option<Resharder>>>,
    /// The client that holds descriptors for a successor.
    holder: Option<Arc<ClientIdentity>>,
    /// The client that captures.
    capturing: Option<Arc<ClientIdentity>>,
}

impl AppService {
    fn new(description: Description, counters: OwnedFd, mut resources: SessionResources) -> Self {
        let (holder, capturing, counters) = (None, None, Arc::new(counters));
        let rules = Arc::new(Mutex::new(resources.rules.take()));
        let resharder = Arc::new(Mutex::new(resources.resharder.take()));
        Self { description, counters, resources, rules, resharder, holder, capturing }
    }

    fn capture(&mut self, client: &Arc<ClientIdentity>, body: &[u8]) -> Result<Reply, String> {
        let (granted, rings) = self.resources.captures.start(body, client.process())?;
        self.capturing = Some(Arc::clone(client));
        let descriptors = vec![Arc::new(rings)];
        Ok(Reply { kind: Kind::Capture, body: granted, descriptors })
    }

    fn tables(&self) -> Result<Reply, String> {
        let (tables, descriptors) = self.resources.tables.to_read();
        Ok(Reply { descriptors, ..reply(Kind::Tables, &TableList { tables })? })
    }

    /// Returns tables with writable descriptors. The client becomes their writer if it can lock
    /// them ([`crate::write_lock`]).
    fn write(&self, body: &[u8]) -> Result<Reply, String> {
        let Write { tables: names } = read_request(body)?;
        let is_twice = |(index, name): (usize, &String)| names[..index].contains(name);
        if names.len() > MAX_TABLES || names.iter().enumerate().any(is_twice) {
            return Err("a table is named twice; name each once".to_owned());
        }
        let (tables, descriptors) = self.resources.tables.to_write(&names)?;
        Ok(Reply { descriptors, ..reply(Kind::Write, &TableList { tables })? })
    }

    /// Returns the message rings. The client becomes their peer if it can lock them.
    fn messages(&self) -> Result<Reply, String> {
        let rings = self.resources.messages.as_ref();
        let rings = rings
            .ok_or("the application has no messages; write `\"messages\": {}` and restart it")?;
        let (lanes, descriptors) = rings.parts();
        Ok(Reply { descriptors, ..reply(Kind::Messages, &MessageRingList { lanes })? })
    }

    /// Returns the work of a change of steering rules.
    fn change_rules<F>(&self, kind: Kind, change: F) -> Response
    where
        F: FnOnce(&mut RuleReloader) -> Result<Vec<ReplacedRules>, String> + Send + 'static,
    {
        let rules = Arc::clone(&self.rules);
        Response::Work(Box::new(move || {
            let mut rules = rules.lock().unwrap_or_else(PoisonError::into_inner);
            let rules = rules.as_mut();
            let rules = rules.ok_or("the application's steering rules cannot be replaced")?;
            reply(kind, &Changes { ports: change(rules)? })
        }))
    }

    /// Returns the work that moves a shard if `moved` names one, and lists the lanes of all shards.
    fn shards(&self, moved: Option<(u8, usize)>) -> Response {
        let resharder = Arc::clone(&self.resharder);
        Response::Work(Box::new(move || {
            let mut resharder = resharder.lock().unwrap_or_else(PoisonError::into_inner);
            let resharder = resharder.as_mut();
            let resharder =
                resharder.ok_or("no port passes packets between lanes; set its `lane-by`")?;
            if let Some((shard, lane)) = moved {
                resharder.move_shard(shard, lane)?;
            }
            let shares = resharder.shares();
            let (lanes, packets) = shares.iter().map(|it| (it.lane, it.packets)).unzip();
            reply(Kind::Shards, &ShardList { lanes, packets })
        }))
    }

    fn handover(&mut self, client: &Arc<ClientIdentity>, from: usize) -> Result<Reply, String> {
        let handover = self.resources.handover.as_ref();
        let handover = handover.ok_or("the application has nothing to hand over")?;
        // The end of a connection may be reported by the same poll(2) as this request.
        let holder = self.holder.as_ref().filter(|holder| !holder.has_disconnected());
        let is_held = holder.is_some_and(|holder| Arc::ptr_eq(holder, client));
        match holder {
            _ if from > 0 && is_held => {}
            _ if from > 0 => return Err("the first descriptors must be requested first".to_owned()),
            Some(_) if is_held => {
                let reason = "the handover is already held by this client; use the earlier reply";
                return Err(reason.to_owned());
            }
            Some(holder) => {
                return Err(format!(
                    "the handover is held by {holder}; only one client may hold it, so end that \
                     one first"
                ));
            }
            None => self.holder = Some(Arc::clone(client)),
        }
        handover.reply(from)
    }
}

impl Service for AppService {
    fn greeting(&mut self) -> Reply {
        let descriptors = vec![Arc::clone(&self.counters)];
        // The names in it are checked, so it always becomes JSON.
        let body = serde_json::to_vec(&*self.description.get()).unwrap_or_default();
        Reply { kind: Kind::Application, body, descriptors }
    }

    fn reply(
        &mut self,
        client: &Arc<ClientIdentity>,
        kind: Kind,
        body: &[u8],
    ) -> Result<Response, String> {
        let reply = match kind {
            Kind::Capture => self.capture(client, body),
            Kind::Tables => self.tables(),
            Kind::Write => self.write(body),
            Kind::Rules => {
                let NewRules { port, rules } = read_request(body)?;
                let replace =
                    move |reloader: &mut RuleReloader| Ok(vec![reloader.replace(&port, rules)?]);
                return Ok(self.change_rules(kind, replace));
            }
            Kind::Reload => {
                let Reload { file } = read_request(body)?;
                return Ok(self.change_rules(kind, |reloader| reloader.reload(file)));
            }
            Kind::Messages => self.messages(),
            Kind::Shards => {
                let Shards { moved } = read_request(body)?;
                return Ok(self.shards(moved));
            }
            Kind::Switch => {
                let switcher = self.resources.switcher.clone();
                let switcher = switcher.ok_or("the application's ports cannot be switched")?;
                let request = read_request(body)?;
                let work = move || reply(kind, &switcher.switch(request)?);
                return Ok(Response::Work(Box::new(work)));
            }
            Kind::Handover => {
                let HandoverRequest { from, .. } = read_request(body)?;
                self.handover(client, from)
            }
            Kind::Application | Kind::Refusal => Err("a message that is no request".to_owned()),
        };
        reply.map(Response::Reply)
    }

    fn disconnected(&mut self, client: &ClientIdentity) {
        if self.capturing.as_ref().is_some_and(|it| std::ptr::eq(it.as_ref(), client)) {
            self.capturing = None;
            self.resources.captures.stop();
        }
        if self.holder.as_ref().is_some_and(|it| std::ptr::eq(it.as_ref(), client)) {
            self.holder = None;
            self.resources.handover.iter().for_each(|it| it.holder_disconnected());
        }
    }

    fn sweep(&mut self, now: Instant) -> Option<Instant> {
        self.resources.captures.sweep();
        self.resources.captures.are_held().then(|| now + SWEEP)
    }
}

impl Drop for AppService {
    fn drop(&mut self) {
        self.resources.captures.stop();
    }
}

/// Returns a reply without descriptors.
fn reply<T: Serialize>(kind: Kind, body: &T) -> Result<Reply, String> {
    let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    Ok(Reply { kind, body, descriptors: vec![] })
}
