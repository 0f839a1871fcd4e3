//! The client of the control interface: HTTP over the server's Unix socket.

use diecut_api::object::Repair;
use diecut_api::problem::{Problem, ProblemKind};
use diecut_api::route;
use diecut_api::status::{RepairReport, Status};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use std::path::PathBuf;
use tokio::net::UnixStream;

/// Answers longer than this are not the server's: 64 MiB.
const ANSWER_MAX_BYTES: usize = 64 << 20;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the socket.
    #[error(
        "no server answers at {socket} ({source}); start one with `make run` or name its socket with --socket"
    )]
    NoServer {
        /// The socket.
        socket: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The server refused; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// The conversation broke off.
    #[error("the server broke off: {0}; see its log")]
    Broken(String),
    /// Something about the command itself.
    #[error("{0}")]
    Usage(String),
}

impl ClientError {
    /// The error as JSON, for programs.
    pub fn to_json(&self) -> String {
        let problem = match self {
            ClientError::Refused(problem) => problem.clone(),
            ClientError::Usage(message) => Problem::new(ProblemKind::Invalid, message.clone()),
            other => Problem::new(ProblemKind::Unavailable, other.to_string()),
        };
        serde_json::to_string(&problem).expect("problems are plain data")
    }
}

/// A server's control interface.
pub struct Client {
    socket: PathBuf,
    timeout_s: Option<u64>,
}

impl Client {
    /// The server behind `socket`; nothing is connected yet. A change is answered after so many seconds, done or not; `None`
    /// leaves it to the server, 0 waits for as long as it takes.
    pub fn new(socket: PathBuf, timeout_s: Option<u64>) -> Client {
        Client { socket, timeout_s }
    }

    /// Everything that exists.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        let body = self.exchange(Method::GET, route::STATUS, None).await?;
        serde_json::from_slice(&body)
            .map_err(|error| ClientError::Broken(format!("its status cannot be read ({error})")))
    }

    /// Creates an object.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create(&self, path: &str, object: &impl Serialize) -> Result<(), ClientError> {
        let body = serde_json::to_vec(object).expect("objects are plain data");
        self.exchange(Method::POST, path, Some(body)).await.map(drop)
    }

    /// Repairs a vSSD.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn repair(&self, vssd: &str, repair: Repair) -> Result<RepairReport, ClientError> {
        let body = serde_json::to_vec(&repair).expect("objects are plain data");
        let body = self.exchange(Method::POST, &route::repair(vssd), Some(body)).await?;
        serde_json::from_slice(&body)
            .map_err(|error| ClientError::Broken(format!("its report cannot be read ({error})")))
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.exchange(Method::DELETE, path, None).await.map(drop)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Bytes, ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::NoServer { socket: self.socket.display().to_string(), source })?;
        let broken = |error: &dyn std::fmt::Display| ClientError::Broken(error.to_string());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(&error))?;
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "diecut");
        if let Some(seconds) = self.timeout_s {
            request = request.header(route::TIMEOUT_HEADER, seconds);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| ClientError::Usage(format!("the name cannot be sent: {error}")))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX_BYTES)
            .collect()
            .await
            .map_err(|error| broken(&error))?
            .to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(ClientError::Refused(problem)),
            Err(_) => Err(ClientError::Broken(format!("it answered with HTTP status {status}"))),
        }
    }
}
