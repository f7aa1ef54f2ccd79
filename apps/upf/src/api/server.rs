//! HTTP server thread.

use std::future::IntoFuture;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::{Path, Query as UrlQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use utoipa::{IntoParams, OpenApi};

use super::drain_control::{
    __path_drain, __path_end_drain, __path_start_drain, Client, drain, end_drain, start_drain,
};
use super::listener::BoundedListener;
use super::metrics;
use super::query::{MAX_PAGE, Query, QueryReceiver, QuerySender, Reply, pair};
use super::refusal::{Refusal, refuse, unexpected};
use super::reload_control::{__path_check_reload, __path_reload, check_reload, reload};
use super::view::{
    AssociationView, CapturePlan, CaptureSubject, HealthView, Page, Readiness, Sample, SessionView,
    TopView, Trace, TraceSubject, protocol,
};
use crate::session::SessionIndex;

/// Content type of `/metrics` (OpenMetrics 1.0, section 4.1).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Default UE port of a sample packet: the first dynamic port (RFC 6335 section 6).
const USER_PORT: u16 = 49_152;
/// Default length of a sample packet in octets.
const LENGTH: u16 = 100;
/// Default number of sessions of a page.
const PAGE: usize = 100;

/// Reason why the API cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("app.api {address}: {what}: {source}; choose another address, or null to disable the API")]
pub struct ApiError {
    address: SocketAddr,
    what: &'static str,
    source: io::Error,
}

/// The API server, which stops when it is dropped.
#[derive(Debug)]
pub struct Api {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Api {
    /// Returns the listening address; the port is never 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Serves the API on `address` (port 0: chosen by the kernel) in a thread of its own, without
/// authentication. The queries arrive at the [`QueryReceiver`].
///
/// # Errors
/// If the server cannot listen on the address.
pub fn serve(address: SocketAddr) -> Result<(Api, QueryReceiver), ApiError> {
    let failed = |what| move |source| ApiError { address, what, source };
    let listener = std::net::TcpListener::bind(address).map_err(failed("cannot listen there"))?;
    listener.set_nonblocking(true).map_err(failed("cannot be waited for"))?;
    let address = listener.local_addr().map_err(failed("has no address"))?;
    let (sender, receiver) = pair().map_err(|error| failed("has no eventfd")(error.into()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed("cannot wait"))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("api".to_owned()).spawn(move || {
        let served = runtime.block_on(async move {
            let listener = BoundedListener::new(TcpListener::from_std(listener)?);
            let server = axum::serve(
                listener,
                router(sender).into_make_service_with_connect_info::<Client>(),
            );
            tokio::select! {
                served = server.into_future() => served,
                _ = stopped => Ok(()),
            }
        });
        if let Err(error) = served {
            tracing::error!("the API server has failed: {error}");
        }
    });
    let thread = Some(thread.map_err(failed("has no thread"))?);
    Ok((Api { address, stop: Some(stop), thread }, receiver))
}

/// Returns all routes with their handlers.
pub(super) fn routes() -> [(&'static str, MethodRouter<QuerySender>); 12] {
    [
        ("/associations", get(associations)),
        ("/sessions", get(sessions)),
        ("/sessions/{seid}", get(session)),
        ("/top", get(top)),
        ("/capture", get(capture)),
        ("/trace", get(trace)),
        ("/drain", get(drain).put(start_drain).delete(end_drain)),
        ("/reload", get(check_reload).put(reload)),
        ("/healthz", get(healthz)),
        ("/readyz", get(readyz)),
        ("/metrics", get(metrics)),
        ("/openapi.json", get(|| async { Json(document()) })),
    ]
}

fn router(sender: QuerySender) -> Router {
    let all = routes().into_iter();
    all.fold(Router::new(), |router, (path, method)| router.route(path, method)).with_state(sender)
}

/// Lists the associations with control plane functions.
#[utoipa::path(get, path = "/associations",
    responses((status = 200, body = Vec<AssociationView>), (status = 503, body = Refusal)))]
pub(super) async fn associations(
    State(sender): State<QuerySender>,
) -> Result<Json<Vec<AssociationView>>, Refusal> {
    match sender.ask(Query::Associations).await? {
        Reply::Associations(all) => Ok(Json(all)),
        _ => Err(unexpected()),
    }
}

/// Page of sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct Paging {
    /// Cursor: `next` of the previous page.
    after: Option<u32>,
    /// Maximum number of sessions: 1 to 1000, default 100.
    limit: Option<usize>,
}

/// Lists sessions by session index, one page at a time.
#[utoipa::path(get, path = "/sessions", params(Paging),
    responses((status = 200, body = Page), (status = 400, body = Refusal),
              (status = 503, body = Refusal)))]
pub(super) async fn sessions(
    State(sender): State<QuerySender>,
    UrlQuery(paging): UrlQuery<Paging>,
) -> Result<Json<Page>, Refusal> {
    let limit = checked_limit(paging.limit)?;
    match sender.ask(Query::Sessions { after: paging.after.map(SessionIndex), limit }).await? {
        Reply::Sessions(page) => Ok(Json(page)),
        _ => Err(unexpected()),
    }
}

/// Shows a session with all its rules.
#[utoipa::path(get, path = "/sessions/{seid}",
    params(("seid" = String, Path, description = "The SEID of this UPF, as 0x and hex digits.")),
    responses((status = 200, body = SessionView), (status = 400, body = Refusal),
              (status = 404, body = Refusal), (status = 503, body = Refusal)))]
pub(super) async fn session(
    State(sender): State<QuerySender>,
    Path(text): Path<String>,
) -> Result<Json<SessionView>, Refusal> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let seid = number.map_err(|_| {
        let what = format!("`{text}` is no SEID; write 0x and up to 16 hex digits");
        refuse(StatusCode::BAD_REQUEST, what)
    })?;
    match sender.ask(Query::Session(seid)).await? {
        Reply::Session(Some(session)) => Ok(Json(*session)),
        Reply::Session(None) => {
            let what = format!("no session has the SEID {seid:#x}; GET /sessions shows them");
            Err(refuse(StatusCode::NOT_FOUND, what))
        }
        _ => Err(unexpected()),
    }
}

/// Number of busiest sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    /// Maximum number of sessions: 1 to 1000, default 100.
    limit: Option<usize>,
}

/// Lists the busiest sessions, and the outcomes of packets, with rates since the last request by
/// anybody.
#[utoipa::path(get, path = "/top", params(TopQuery),
    responses((status = 200, body = TopView), (status = 400, body = Refusal),
              (status = 503, body = Refusal)))]
pub(super) async fn top(
    State(sender): State<QuerySender>,
    UrlQuery(asked): UrlQuery<TopQuery>,
) -> Result<Json<TopView>, Refusal> {
    match sender.ask(Query::Top(checked_limit(asked.limit)?)).await? {
        Reply::Top(top) => Ok(Json(*top)),
        _ => Err(unexpected()),
    }
}

/// Subject of a capture.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct CaptureQuery {
    /// SUPI (`imsi-` and digits), SEID (`0x` and hex digits), or UE address.
    who: String,
}

/// Returns what a capture of sessions needs: ports, tunnels and addresses.
#[utoipa::path(get, path = "/capture", params(CaptureQuery),
    responses((status = 200, body = CapturePlan), (status = 400, body = Refusal),
              (status = 404, body = Refusal), (status = 503, body = Refusal)))]
pub(super) async fn capture(
    State(sender): State<QuerySender>,
    UrlQuery(CaptureQuery { who }): UrlQuery<CaptureQuery>,
) -> Result<Json<CapturePlan>, Refusal> {
    let subject: CaptureSubject =
        who.parse().map_err(|what: String| refuse(StatusCode::BAD_REQUEST, what))?;
    match sender.ask(Query::Capture(subject)).await? {
        Reply::Capture(plan) if plan.sessions.is_empty() => {
            let what = format!("there is no session of {who}; `upf sessions` lists them");
            Err(refuse(StatusCode::NOT_FOUND, what))
        }
        Reply::Capture(plan) => Ok(Json(plan)),
        _ => Err(unexpected()),
    }
}

/// Returns a number of sessions for a page, or its default.
fn checked_limit(limit: Option<usize>) -> Result<usize, Refusal> {
    let limit = limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        let what = format!("limit: {limit} is not allowed; write 1 to {MAX_PAGE}");
        return Err(refuse(StatusCode::BAD_REQUEST, what));
    }
    Ok(limit)
}

/// Subject and sample packet of a trace.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceQuery {
    /// SUPI (`imsi-` and digits), UE address, or TEID (`0x` and hex digits).
    who: String,
    /// Remote address of a sample packet, which is decided in both directions. The other parameters
    /// refine it.
    #[param(value_type = Option<String>)]
    to: Option<IpAddr>,
    /// Protocol: tcp, udp (default), sctp, icmp, icmpv6 or a number.
    protocol: Option<String>,
    /// Remote port.
    port: Option<u16>,
    /// UE port.
    user_port: Option<u16>,
    /// QoS flow identifier that the gNB sets: 0 to 63.
    qfi: Option<u8>,
    /// Length of the IP packet in octets, default 100.
    length: Option<u16>,
}

impl TraceQuery {
    /// Returns the sample packet, if one is given.
    fn sample(&self) -> Result<Option<Sample>, String> {
        let Some(to) = self.to else { return Ok(None) };
        if self.qfi.is_some_and(|qfi| qfi > 63) {
            return Err("qfi: a QoS flow identifier has 6 bits; write 0 to 63".to_owned());
        }
        Ok(Some(Sample {
            to,
            protocol: protocol(self.protocol.as_deref().unwrap_or("udp"))?,
            ports: [self.port.unwrap_or(0), self.user_port.unwrap_or(USER_PORT)],
            qfi: self.qfi,
            length: self.length.unwrap_or(LENGTH).into(),
        }))
    }
}

/// Explains how packets of a subscriber, address or tunnel are forwarded.
#[utoipa::path(get, path = "/trace", params(TraceQuery),
    responses((status = 200, body = Trace), (status = 400, body = Refusal),
              (status = 404, body = Refusal), (status = 503, body = Refusal)))]
pub(super) async fn trace(
    State(sender): State<QuerySender>,
    UrlQuery(traced): UrlQuery<TraceQuery>,
) -> Result<Json<Trace>, Refusal> {
    let who: TraceSubject =
        traced.who.parse().map_err(|what: String| refuse(StatusCode::BAD_REQUEST, what))?;
    let sample = traced.sample().map_err(|what| refuse(StatusCode::BAD_REQUEST, what))?;
    match sender.ask(Query::Trace(who, sample)).await? {
        Reply::Trace(trace) if trace.sessions.is_empty() => {
            Err(refuse(StatusCode::NOT_FOUND, trace.summary()))
        }
        Reply::Trace(mut trace) => {
            trace.add_routes();
            Ok(Json(*trace))
        }
        _ => Err(unexpected()),
    }
}

/// Returns 200 if the control plane answers and the fast path process runs.
#[utoipa::path(get, path = "/healthz",
    responses((status = 200, description = "Both processes run."), (status = 503, body = Refusal)))]
pub(super) async fn healthz(State(sender): State<QuerySender>) -> Result<&'static str, Refusal> {
    match sender.ask(Query::Snapshot).await? {
        Reply::Snapshot(numbers) if numbers.is_fast_alive => Ok("ok\n"),
        Reply::Snapshot(_) => {
            let what = "the fast path process does not run; its supervisor restarts it";
            Err(refuse(StatusCode::SERVICE_UNAVAILABLE, what))
        }
        _ => Err(unexpected()),
    }
}

/// Other states that count as ready.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadyQuery {
    /// State that counts as ready, too, as `no-association` where the SMF needs the UPF first.
    accept: Option<Readiness>,
}

/// Returns 200 if new sessions are accepted, else 503. The body has the state in both cases.
#[utoipa::path(get, path = "/readyz", params(ReadyQuery),
    responses((status = 200, body = HealthView), (status = 503, body = HealthView)))]
pub(super) async fn readyz(
    State(sender): State<QuerySender>,
    UrlQuery(ReadyQuery { accept }): UrlQuery<ReadyQuery>,
) -> Result<(StatusCode, Json<HealthView>), Refusal> {
    let Reply::Snapshot(numbers) = sender.ask(Query::Snapshot).await? else {
        return Err(unexpected());
    };
    let health = HealthView::of(&numbers);
    let is_ready = health.state == Readiness::Ready || Some(health.state) == accept;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(health)))
}

/// Returns all counters in OpenMetrics format.
#[utoipa::path(get, path = "/metrics",
    responses((status = 200, content_type = "application/openmetrics-text", body = String),
              (status = 503, body = Refusal)))]
pub(super) async fn metrics(State(sender): State<QuerySender>) -> Result<Response, Refusal> {
    match sender.ask(Query::Snapshot).await? {
        Reply::Snapshot(numbers) => {
            Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], metrics::page(&numbers)).into_response())
        }
        _ => Err(unexpected()),
    }
}

/// OpenAPI description.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "UPF",
        description = "Associations, sessions, rules, and why packets are forwarded as \
        they are. Without authentication, and read only except for /drain and /reload, which only \
        this host may change."
    ),
    paths(
        associations,
        sessions,
        session,
        top,
        capture,
        trace,
        drain,
        start_drain,
        end_drain,
        check_reload,
        reload,
        healthz,
        readyz,
        metrics
    )
)]
struct Description;

/// Returns the OpenAPI document.
fn document() -> utoipa::openapi::OpenApi {
    Description::openapi()
}
