//! `/reload`: the configuration file of the UPF is checked (GET) or applied (PUT).
//!
//! A request names no content: the UPF reads its own file again, which only its operator can write.
//! So whoever can reach the API on this host can at most apply what the operator has written.

use std::path::PathBuf;

use axum::extract::{ConnectInfo, Query as UrlQuery, State};
use axum::response::Json;
use serde::Deserialize;
use utoipa::IntoParams;

use super::drain_control::Client;
use super::query::{Query, QuerySender, Reply};
use super::refusal::{Refusal, unexpected};
use crate::pfcp::ReloadReport;

/// Parameters of a reload.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ReloadQuery {
    /// Absolute path of the file that the client means. If the UPF runs another one, it refuses.
    config: Option<String>,
}

/// Compares the configuration file with the configuration in force. Nothing is changed.
#[utoipa::path(get, path = "/reload", params(ReloadQuery),
    responses((status = 200, body = ReloadReport), (status = 503, body = Refusal)))]
pub(super) async fn check_reload(
    State(sender): State<QuerySender>,
    UrlQuery(query): UrlQuery<ReloadQuery>,
) -> Result<Json<ReloadReport>, Refusal> {
    ask(&sender, query, false).await
}

/// Applies the configuration file, or lists all reasons against it and changes nothing.
#[utoipa::path(put, path = "/reload", params(ReloadQuery),
    responses((status = 200, body = ReloadReport), (status = 403, body = Refusal),
              (status = 503, body = Refusal)))]
pub(super) async fn reload(
    State(sender): State<QuerySender>,
    ConnectInfo(client): ConnectInfo<Client>,
    UrlQuery(query): UrlQuery<ReloadQuery>,
) -> Result<Json<ReloadReport>, Refusal> {
    client.check("reload")?;
    ask(&sender, query, true).await
}

async fn ask(
    sender: &QuerySender,
    ReloadQuery { config }: ReloadQuery,
    is_applied: bool,
) -> Result<Json<ReloadReport>, Refusal> {
    let config = config.map(PathBuf::from);
    match sender.ask(Query::Reload { config, is_applied }).await? {
        Reply::Reload(report) => Ok(Json(report)),
        _ => Err(unexpected()),
    }
}
