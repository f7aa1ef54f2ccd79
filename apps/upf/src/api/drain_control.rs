//! The part of the API that changes something: `/drain`, and `/reload` by the same rule. Requests
//! must come from this host.
//!
//! The methods are PUT and DELETE, which a browser sends to another origin only after that allowed
//! it, and the API allows nothing.

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Query as UrlQuery, State};
use axum::http::StatusCode;
use axum::response::Json;
use axum::serve::IncomingStream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::listener::BoundedListener;
use super::query::{Query, QuerySender, Reply};
use super::refusal::{Refusal, refuse, unexpected};
use super::view::{DrainStage, DrainView};

/// Longest release period in seconds: a day.
const MAX_PERIOD_S: u64 = 86_400;

/// Sender of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    is_local: bool,
}

impl Connected<IncomingStream<'_, BoundedListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        let remote = stream.remote_addr().ip().to_canonical();
        let own = stream.io().local_address().map(|own| own.ip().to_canonical());
        Self { is_local: remote.is_loopback() || own == Some(remote) }
    }
}

impl Client {
    /// Checks that the request comes from the host of the UPF. `command` is to be used there.
    pub(super) fn check(self, command: &str) -> Result<(), Refusal> {
        if self.is_local {
            return Ok(());
        }
        let what = format!("only the host of the UPF may do this; use `upf {command}` there");
        Err(refuse(StatusCode::FORBIDDEN, what))
    }
}

/// Shows the state of the drain.
#[utoipa::path(get, path = "/drain",
    responses((status = 200, body = DrainView), (status = 503, body = Refusal)))]
pub(super) async fn drain(State(sender): State<QuerySender>) -> Result<Json<DrainView>, Refusal> {
    ask(&sender, Query::Drain).await.map(Json)
}

/// Parameters of a drain.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainQuery {
    /// Release period in seconds that control plane functions are told; default `n4.release-s`, 0
    /// for an immediate release.
    period_s: Option<u64>,
}

/// Starts a drain: new sessions and associations are refused, and control plane functions are asked
/// to release their associations. Repeated, it asks again.
#[utoipa::path(put, path = "/drain", params(DrainQuery),
    responses((status = 200, body = DrainView), (status = 400, body = Refusal),
              (status = 403, body = Refusal), (status = 503, body = Refusal)))]
pub(super) async fn start_drain(
    State(sender): State<QuerySender>,
    ConnectInfo(client): ConnectInfo<Client>,
    UrlQuery(DrainQuery { period_s }): UrlQuery<DrainQuery>,
) -> Result<Json<DrainView>, Refusal> {
    client.check("drain")?;
    if period_s.is_some_and(|period| period > MAX_PERIOD_S) {
        let what = format!("period_s: write 0 to {MAX_PERIOD_S}");
        return Err(refuse(StatusCode::BAD_REQUEST, what));
    }
    ask(&sender, Query::StartDrain(period_s)).await.map(Json)
}

/// Ends a drain: sessions and associations are accepted again.
#[utoipa::path(delete, path = "/drain",
    responses((status = 200, body = DrainView), (status = 403, body = Refusal),
              (status = 409, body = Refusal), (status = 503, body = Refusal)))]
pub(super) async fn end_drain(
    State(sender): State<QuerySender>,
    ConnectInfo(client): ConnectInfo<Client>,
) -> Result<Json<DrainView>, Refusal> {
    client.check("drain")?;
    let view = ask(&sender, Query::EndDrain).await?;
    if view.state == DrainStage::Exiting {
        let what = "the process is ending and goes on draining; start it anew";
        return Err(refuse(StatusCode::CONFLICT, what));
    }
    Ok(Json(view))
}

/// Sends a query and returns the state of the drain.
async fn ask(sender: &QuerySender, query: Query) -> Result<DrainView, Refusal> {
    match sender.ask(query).await? {
        Reply::Drain(view) => Ok(view),
        _ => Err(unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_may_change_something() {
        assert!(Client { is_local: true }.check("drain").is_ok());
        assert!(Client { is_local: false }.check("drain").is_err());
    }
}
