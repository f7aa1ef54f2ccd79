//! API backend: answers queries of the API in the control plane's loop.

use fastlane::slow::{SlowError, SlowPath};
use fastlane::table::{ArrayWriter, EntryId, Spec, State};
use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, clock_gettime};

use super::rate_sampler::{Outcomes, RateSampler};
use super::slice_counts::SliceCounts;
use crate::api::view::{CapturePlan, DrainView, DryRun, ExternalView, TopView};
use crate::api::{
    self, Api, ApiError, NodeView, PendingQuery, Query, QueryReceiver, Reply, RouteSource,
    Snapshot, TraceSubject, answer,
};
use crate::config::{Role, Settings};
use crate::datapath::DROP_REASON_WORDS;
use crate::datapath::classify::{Action, Classifier, PacketFields};
use crate::export::{ExportError, UsageExporter};
use crate::pfcp::associations::Association;
use crate::pfcp::run::LoopService;
use crate::pfcp::sessions::Sessions;
use crate::pfcp::{Node, ReloadReport, Reloader};
use crate::rules::layout::counter_slots::WORDS;
use crate::rules::layout::drop_reason::{DROP_REASONS, DropReason};
use crate::rules::layout::session_rules::Block;
use crate::rules::layout::slices::{SLICE_COUNTERS, SLICE_WORDS};
use crate::rules::layout::table;
use crate::rules::publish::Published;
use crate::session::{InstanceId, Network, Session, SessionIndex};
use crate::time::Now;
use crate::transactions::UsageRecord;

/// Queries answered per iteration of the loop.
const QUESTIONS: usize = 4;

/// The API server and what it needs in addition to the node.
pub(crate) struct Backend {
    api: Option<(Api, QueryReceiver)>,
    configured: Configured,
    /// Counters of the attached fast path's lanes.
    fast: Option<FastPath>,
    /// Numbers of the last node, for the time without a fast path.
    last: Snapshot,
    sampler: RateSampler,
    exporter: Option<UsageExporter>,
    /// Path of the fast path's session socket.
    session_socket: String,
}

/// Counters of an attached fast path.
struct FastPath {
    slow: SlowPath,
    outcomes: State<DROP_REASON_WORDS>,
    slices: State<SLICE_WORDS>,
}

/// Reason why a service beside the node cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Export(#[from] ExportError),
}

impl Backend {
    /// Serves the API, and exports usage, where the settings say.
    pub(crate) fn open(settings: &Settings, session: &str) -> Result<Self, BackendError> {
        let api = settings.api.map(api::serve).transpose()?;
        if let Some((api, _)) = &api {
            tracing::info!("the API is at http://{}", api.address());
        }
        let exporter = UsageExporter::open(settings, Now::read())?;
        let configured = Configured::new(settings);
        let session_socket = match std::path::absolute(session) {
            Ok(path) => path.to_string_lossy().into_owned(),
            Err(_) => session.to_owned(),
        };
        let last = Snapshot { capacity: settings.sessions as usize, ..Snapshot::default() };
        let sampler = RateSampler::default();
        Ok(Self { api, configured, fast: None, last, sampler, exporter, session_socket })
    }

    /// Returns packets and octets by outcome, over all lanes.
    fn outcomes(&self) -> Outcomes {
        let Some(fast) = &self.fast else { return Outcomes::new() };
        DROP_REASONS.iter().map(|it| (*it, fast.outcomes.read(EntryId(*it as u32)))).collect()
    }

    /// Returns the counters by slice and DNN.
    fn slices(&self, sessions: &Sessions) -> Vec<SliceCounts> {
        SliceCounts::all(sessions, self.fast.as_ref().map(|fast| &fast.slices))
    }

    /// Continues a scan for the busiest sessions, and replies when it is complete.
    fn sample(&mut self, node: &Node, now: Now) {
        let mut sampler = std::mem::take(&mut self.sampler);
        let counters = || (self.outcomes(), self.slices(node.sessions()));
        let done = sampler.advance(node.sessions(), &counters, now);
        let is_scanning = sampler.is_scanning();
        self.sampler = sampler;
        if let Some((queries, top)) = done {
            for query in queries {
                let view = BackendView { top: Some(&top), ..BackendView::new(self, node) };
                let _ = query.answer.send(answer(&query.query, &view));
            }
        } else if is_scanning && let Some((_, receiver)) = &self.api {
            receiver.ring();
        }
    }

    /// Serves queries, until one has reloaded the configuration.
    fn answer_queries(&mut self, node: &mut Node, reloader: &mut Reloader<'_>, now: Now) {
        for _ in 0..QUESTIONS {
            if reloader.is_reloaded() {
                return;
            }
            let query = self.api.as_ref().and_then(|(_, receiver)| receiver.next());
            let Some(query) = query else { return };
            let mut reload = ReloadReport::default();
            match &query.query {
                Query::Top(_) => {
                    self.sampler.ask(query);
                    continue;
                }
                Query::StartDrain(period_s) => node.drain(now, *period_s),
                // The reply tells if the process is ending.
                Query::EndDrain => drop(node.undrain(now)),
                Query::Reload { config, is_applied } => {
                    reload = reloader.reload_from(config.as_deref(), node.sessions(), *is_applied);
                    log_reload(&reload, *is_applied);
                }
                _ => {}
            }
            // The client may have disconnected.
            let view = BackendView { reload, ..BackendView::new(self, node) };
            let _ = query.answer.send(answer(&query.query, &view));
        }
    }
}

/// Values that follow from the settings.
struct Configured {
    instances: Vec<String>,
    network: Network,
    /// Network instances of N3 and N6, the first of each.
    arrivals: [Option<InstanceId>; 2],
    settings: Settings,
}

impl Configured {
    fn new(settings: &Settings) -> Self {
        let instances = settings.instances().into_iter().map(str::to_owned).collect();
        let network = settings.network();
        let unlisted = network.unlisted();
        let arrivals = [Role::N3, Role::N6].map(|role| {
            let first = settings.interfaces.values().find(|it| it.role == role);
            let name = first.map(|it| it.network_instances.first());
            name.map(|name| name.and_then(|it| settings.instance(it)).unwrap_or(unlisted))
        });
        Self { instances, network, arrivals, settings: settings.clone() }
    }
}

impl LoopService for Backend {
    fn attached(&mut self, slow: &SlowPath) -> Result<(), SlowError> {
        let (outcomes, slices) = (slow.state(table::CAUSES)?, slow.state(SLICE_COUNTERS)?);
        self.fast = Some(FastPath { slow: slow.clone(), outcomes, slices });
        Ok(())
    }

    fn detached(&mut self, node: &Node) {
        let numbers = BackendView::new(self, node).numbers();
        self.last = Snapshot { is_fast_alive: false, ..numbers };
        self.fast = None; // releases its memory
    }

    fn configured(&mut self, settings: &Settings) {
        self.configured = Configured::new(settings);
    }

    fn exports_usage(&self) -> bool {
        self.exporter.is_some()
    }

    fn take_records(&mut self, records: Vec<UsageRecord>) {
        if let Some(exporter) = self.exporter.as_mut().filter(|_| !records.is_empty()) {
            exporter.take_records(&records, Now::read());
        }
    }

    fn poll<'a>(&'a self, descriptors: &mut Vec<PollFd<'a>>) {
        descriptors
            .extend(self.api.as_ref().map(|(_, receiver)| PollFd::new(receiver, PollFlags::IN)));
        if let Some(exporter) = &self.exporter {
            exporter.poll(descriptors);
        }
    }

    fn serve(&mut self, node: &mut Node, reloader: &mut Reloader<'_>, now: Now) {
        if let Some(exporter) = &mut self.exporter {
            exporter.serve(node.sessions(), now);
        }
        self.answer_queries(node, reloader, now);
        self.sample(node, now);
    }

    fn serve_detached(&mut self) {
        for _ in 0..QUESTIONS {
            let query = self.api.as_ref().and_then(|(_, receiver)| receiver.next());
            let Some(PendingQuery { query, answer }) = query else { return };
            // All else needs a node. Its clients get a refusal, because the channel closes.
            if query == Query::Snapshot {
                let _ = answer.send(Reply::Snapshot(Box::new(self.last.clone())));
            }
        }
    }
}

/// Logs a reload that a client asked for, who also gets the refusals.
fn log_reload(report: &ReloadReport, is_applied: bool) {
    if is_applied && report.is_in_force {
        let (changes, generation) = (report.changes.len(), report.generation);
        tracing::info!("reload: {changes} changes; the configuration has number {generation}");
    }
}

/// View of the node and the backend during a query.
struct BackendView<'a> {
    backend: &'a Backend,
    node: &'a Node,
    reload: ReloadReport,
    /// Result of the last scan for the busiest sessions.
    top: Option<&'a TopView>,
}

impl<'a> BackendView<'a> {
    fn new(backend: &'a Backend, node: &'a Node) -> Self {
        Self { backend, node, reload: ReloadReport::default(), top: None }
    }

    /// Returns the Node IDs of associations with their numbers of sessions.
    fn by_association(&self) -> Vec<(String, usize)> {
        let all = self.node.associations();
        all.map(|it| (it.peer.node_id.to_string(), self.sessions_of(it.peer.index))).collect()
    }
}

impl NodeView for BackendView<'_> {
    fn associations(&self) -> Vec<&Association> {
        self.node.associations().collect()
    }

    fn sessions_of(&self, peer: u16) -> usize {
        self.node.sessions_of(peer)
    }

    fn sessions(&self) -> usize {
        self.node.sessions().len() as usize
    }

    fn after(&self, place: Option<SessionIndex>, limit: usize) -> Vec<Session> {
        let sessions = self.node.sessions();
        let from = place.map_or(0, |place| place.0.saturating_add(1));
        sessions.ids_from(from).filter_map(|id| sessions.get(id)).take(limit).collect()
    }

    fn session(&self, seid: u64) -> Option<Session> {
        self.node.sessions().find(seid)
    }

    fn find(&self, who: &TraceSubject, limit: usize) -> Vec<Session> {
        let sessions = self.node.sessions();
        let found: Vec<SessionIndex> = match who {
            TraceSubject::Supi(supi) => return sessions.find_supi(supi).take(limit).collect(),
            TraceSubject::Teid(teid) => sessions.find_tunnel(*teid).into_iter().collect(),
            TraceSubject::Address(address) => {
                let named = 0..self.backend.configured.instances.len() as InstanceId;
                let instances = named.chain([self.backend.configured.network.unlisted()]);
                instances.filter_map(|it| sessions.find_user(it, *address)).collect()
            }
        };
        found.into_iter().take(limit).filter_map(|id| sessions.get(id)).collect()
    }

    fn counted(&self, line: u32) -> [u64; 4] {
        self.node.sessions().published().counters(line)
    }

    fn external(&self, session: SessionIndex) -> Option<ExternalView> {
        let tables = self.node.sessions().published().tables();
        tables.nat_users.get(session.0 as usize).map(ExternalView::from)
    }

    fn instance(&self, instance: InstanceId) -> Option<&str> {
        self.backend.configured.instances.get(usize::from(instance)).map(String::as_str)
    }

    fn arrival(&self, is_uplink: bool) -> Option<InstanceId> {
        self.backend.configured.arrivals[usize::from(!is_uplink)]
    }

    fn route_source(&self, instance: Option<InstanceId>, is_n6: bool) -> RouteSource {
        let interface = self.backend.configured.settings.leading(instance, is_n6);
        match interface.and_then(|it| Some((it.next_hop.clone()?, it.port.clone()))) {
            Some((hop, port)) => RouteSource::Fixed(hop, port),
            None => RouteSource::Table(interface.and_then(|it| it.route_table)),
        }
    }

    fn dry_run(&self, session: &Session, fields: &PacketFields) -> Option<DryRun> {
        let instance =
            self.backend.configured.network.domain(fields.instance).unwrap_or(fields.instance);
        let fields = PacketFields { instance, ..*fields };
        dry_run(self.node.sessions().published(), session, &fields)
    }

    fn top(&self) -> TopView {
        self.top.cloned().unwrap_or_default()
    }

    fn capture_plan(&self, sessions: &[Session]) -> CapturePlan {
        let Backend { configured, session_socket, .. } = self.backend;
        let sessions = sessions.iter().map(|it| (it.clone(), self.external(it.id)));
        CapturePlan::of(&sessions.collect::<Vec<_>>(), &configured.settings, session_socket)
    }

    fn drain(&self) -> DrainView {
        self.node.drain_status(Now::read()).into()
    }

    fn reload(&self) -> ReloadReport {
        self.reload.clone()
    }

    fn numbers(&self) -> Snapshot {
        let up = self.node.associations().filter(|it| it.peer.is_up).count();
        let down = self.node.associations().count() - up;
        let answering = self.node.paths().iter().filter(|(_, has_failed)| !*has_failed).count();
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let fast = self.backend.fast.as_ref();
        let now = Now::read();
        Snapshot {
            associations: [up, down],
            sessions: self.sessions(),
            capacity: self.backend.configured.settings.sessions as usize,
            by_association: self.by_association(),
            rules: self.node.rules(),
            reports: *self.node.reports(),
            tables: self.node.sessions().published().entries(),
            nat: self.node.sessions().published().nat_counts(),
            causes: self.backend.outcomes(),
            slices: self.backend.slices(self.node.sessions()),
            limited_slices: self.node.limited_slices(),
            limited_smfs: self.node.limited_smfs(),
            is_open: self.node.is_open(),
            drain: self.node.drain_status(now),
            is_congested: self.node.is_congested(now),
            export: self.backend.exporter.as_ref().map(UsageExporter::counts),
            statistics: self.node.statistics().clone(),
            paths: [answering, self.node.paths().len() - answering],
            is_fast_alive: fast.is_some_and(|fast| fast.slow.is_alive()),
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
        }
    }
}

/// Decides about a packet as a lane would, on a copy of the session's counter slots. `None` if the
/// session is not published, or memory is insufficient.
fn dry_run(published: &Published, session: &Session, fields: &PacketFields) -> Option<DryRun> {
    let rules = published.rules(session.id)?;
    let tables = published.tables();
    // Only the pages of the session's slots are touched.
    let memory = Spec::state::<WORDS>("peek", tables.state.capacity(), 0).create().ok()?;
    let state = State::<WORDS>::attach(&memory).ok()?.lane(0);
    let lines = session.urrs.iter().map(|urr| urr.progress.line);
    let lines = lines.chain(session.qers.iter().map(|qer| qer.line)).chain([session.id.0]);
    for line in lines.map(EntryId) {
        for (word, value) in tables.state.read(line).into_iter().enumerate() {
            state.at(line).set(word, value);
        }
    }
    let blocks: &ArrayWriter<Block> = &tables.blocks;
    let now = Now::read().monotonic;
    let state = &state;
    let classifier = Classifier { rules, session: session.id, blocks, state, now };
    let decision = classifier.decide(fields);
    // A packet that would leave must pass meters and quotas, too.
    let fate = match decision.action {
        Action::Forward(path) if path.redirects(decision.direction, fields) => {
            Action::Drop(DropReason::Redirected)
        }
        Action::Forward(_) => {
            classifier.passes(decision.charge).refused.map_or(decision.action, Action::Drop)
        }
        fate => fate,
    };
    let (fate, cause) = match fate {
        Action::Forward(_) => ("forward", None),
        Action::Hold(_) => ("hold", None),
        Action::Drop(cause) => ("drop", Some(cause)),
    };
    Some(DryRun { pdr: decision.pdr, fate, cause })
}
