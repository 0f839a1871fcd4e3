//! What requests of the control interface bring, and how they are refused: a body, what a path names, a problem.

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use diecut_api::problem::{Problem, ProblemKind};
use std::time::Duration;

/// For a whole head, and for a whole body.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A refusal as an HTTP response.
pub(crate) struct Refusal(pub Problem);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.kind.http_status()).expect("statuses of problems are valid");
        (status, axum::Json(self.0)).into_response()
    }
}

/// A JSON body whose mistakes are answered like every other refusal.
pub(crate) struct Body<T>(pub T);

impl<T: serde::de::DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;
    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Refusal> {
        let read = axum::Json::<T>::from_request(request, state);
        let Ok(read) = tokio::time::timeout(PATIENCE, read).await else {
            let text = format!("the object did not come within {} seconds", PATIENCE.as_secs());
            return Err(Refusal(Problem::new(ProblemKind::Invalid, text)));
        };
        match read {
            Ok(axum::Json(value)) => Ok(Body(value)),
            Err(JsonRejection::MissingJsonContentType(_)) => {
                Err(Refusal(Problem::new(ProblemKind::Invalid, "send the object as `application/json`")))
            }
            Err(rejection) => Err(Refusal(Problem::new(ProblemKind::Invalid, rejection.body_text()))),
        }
    }
}

/// What a route's path names. A path that names nothing is answered like every other refusal.
pub(crate) struct Path<T>(pub T);

impl<T: serde::de::DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Refusal> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(names)) => Ok(Path(names)),
            Err(rejection) => Err(Refusal(Problem::new(ProblemKind::Invalid, rejection.body_text()))),
        }
    }
}
