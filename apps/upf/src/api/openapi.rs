//! OpenAPI description.

use utoipa::OpenApi;

use super::server;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "UPF",
        description = "Associations, sessions, rules, and why packets are forwarded as \
        they are. Read only and without authentication."
    ),
    paths(
        server::associations,
        server::sessions,
        server::session,
        server::trace,
        server::healthz,
        server::metrics
    )
)]
struct Description;

/// Returns the OpenAPI document.
pub(super) fn document() -> utoipa::openapi::OpenApi {
    Description::openapi()
}
