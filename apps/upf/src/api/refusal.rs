//! Error responses of the API.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::query::QueryError;

/// Error response.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Refusal {
    /// Object, reason and remedy.
    error: String,
    #[serde(skip)]
    status: StatusCode,
}

/// Creates an error response.
pub(super) fn refuse(status: StatusCode, error: impl Into<String>) -> Refusal {
    Refusal { error: error.into(), status }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}

impl From<QueryError> for Refusal {
    fn from(unanswered: QueryError) -> Self {
        refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            match unanswered {
                QueryError::Busy => "the control plane has too many queries waiting; try again",
                QueryError::Ended => {
                    "the control plane process is ending, or waits for the fast path process; \
                     try again"
                }
            },
        )
    }
}

/// Returns the error for a reply to another query, which [`answer`](super::answer) never gives.
pub(super) fn unexpected() -> Refusal {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "the control plane answered another query")
}
