//! The description of the API.

use utoipa::OpenApi;

use super::server;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "UPF",
        description = "Associations, sessions, rules and why packets go where \
        they go. Read only; whoever reaches it is answered."
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

/// The document.
pub(super) fn document() -> utoipa::openapi::OpenApi {
    Description::openapi()
}
