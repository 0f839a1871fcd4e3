//! The client of the control interface: HTTP over the server's Unix socket.

use diecut_api::object::Repair;
use diecut_api::problem::{Problem, ProblemKind};
use diecut_api::route;
use diecut_api::status::{RepairReport, Status};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;

/// Answers longer than this are not the server's: 64 MiB.
const ANSWER_MAX_BYTES: usize = 64 << 20;

/// How long a question waits for its answer, unless something else is said.
const QUESTION_PATIENCE_S: u64 = 30;
/// When the server answers a change at the latest, unless it is told something else.
const CHANGE_PATIENCE_S: u64 = 60;
/// How much longer a change is waited for: the server says what it waits for when its time is over.
const CHANGE_GRACE_S: u64 = 10;

/// What to do when nobody answers.
fn advice_without_server(kind: std::io::ErrorKind) -> &'static str {
    match kind {
        std::io::ErrorKind::PermissionDenied => "only the user whom the server runs as may ask it",
        _ => "start one with `make run` or name its socket with --socket",
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the socket.
    #[error("no server answers at {socket} ({source}); {}", advice_without_server(source.kind()))]
    NoServer {
        /// The socket.
        socket: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Somebody holds the socket and does not answer.
    #[error(
        "the server at {socket}{process} does not answer within {seconds} s: it is starting, stopped (SIGSTOP), or has too much to do; \
         see its log and its process, or wait longer with --timeout SECONDS (0: for as long as it takes)"
    )]
    NoAnswer {
        /// The socket.
        socket: String,
        /// Who holds it, for people; empty if it is not known.
        process: String,
        /// How long was waited.
        seconds: u64,
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

/// Asks a server for what lies at a path.
///
/// # Errors
/// See [`ClientError`].
pub async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, ClientError> {
    let (_, body) = client.exchange(Method::GET, path, None).await?;
    read(&body)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body)
        .map_err(|error| ClientError::Broken(format!("its answer cannot be read ({error})")))
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
        get(self, route::STATUS).await
    }

    /// Creates an object, or changes one; whether that changed anything.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create(&self, path: &str, object: &impl Serialize) -> Result<bool, ClientError> {
        let body = serde_json::to_vec(object).expect("objects are plain data");
        let (status, _) = self.exchange(Method::POST, path, Some(body)).await?;
        Ok(status != StatusCode::OK)
    }

    /// Repairs a vSSD.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn repair(&self, vssd: &str, repair: Repair) -> Result<RepairReport, ClientError> {
        let body = serde_json::to_vec(&repair).expect("objects are plain data");
        let (_, body) = self.exchange(Method::POST, &route::repair(vssd), Some(body)).await?;
        serde_json::from_slice(&body)
            .map_err(|error| ClientError::Broken(format!("its report cannot be read ({error})")))
    }

    /// Lifts the fence of a vSSD.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn unfence(&self, vssd: &str) -> Result<(), ClientError> {
        self.exchange(Method::POST, &route::unfence(vssd), None).await.map(drop)
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.exchange(Method::DELETE, path, None).await.map(drop)
    }

    /// Has something made or changed, of which the server says more than that it is done.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(object).expect("objects are plain data");
        let (_, body) = self.exchange(Method::POST, path, Some(body)).await?;
        read(&body)
    }

    /// Takes an object away, of which the server says what it was.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let (_, body) = self.exchange(Method::DELETE, path, None).await?;
        read(&body)
    }

    /// How long an answer is waited for, in seconds; `None`: for as long as it takes.
    fn patience_s(&self, method: &Method) -> Option<u64> {
        if self.timeout_s == Some(0) {
            return None;
        }
        Some(match *method {
            Method::GET => self.timeout_s.unwrap_or(QUESTION_PATIENCE_S),
            _ => self.timeout_s.unwrap_or(CHANGE_PATIENCE_S).saturating_add(CHANGE_GRACE_S),
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let socket = || self.socket.display().to_string();
        let no_server = |source| ClientError::NoServer { socket: socket(), source };
        // A server that is stopped (SIGSTOP) is connected to by the kernel, unless many wait already.
        let patience_s = self.patience_s(&method);
        let mut process = String::new();
        let conversation = async {
            let stream = UnixStream::connect(&self.socket).await.map_err(no_server)?;
            if let Some(pid) = stream.peer_cred().ok().and_then(|peer| peer.pid()) {
                process = format!(" (process {pid})");
            }
            self.converse(stream, method, path, body).await
        };
        let Some(seconds) = patience_s else { return conversation.await };
        match tokio::time::timeout(Duration::from_secs(seconds), conversation).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ClientError::NoAnswer { socket: socket(), process, seconds }),
        }
    }

    async fn converse(
        &self,
        stream: UnixStream,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
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
            return Ok((status, body));
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(ClientError::Refused(problem)),
            Err(_) => Err(ClientError::Broken(format!("it answered with HTTP status {status}"))),
        }
    }
}
