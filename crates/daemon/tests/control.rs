//! The control interface over a Unix socket as strangers use it: bytes that are no HTTP, bodies that are too large or not what
//! was asked for, many clients at once, clients that go away. Whatever comes, the next client is answered.
#![allow(clippy::disallowed_methods, reason = "drives real sockets")]

use diecut_daemon::control_port::{Answer, ControlPort};
use diecut_shard::control::{ControlRequest, ControlResponse};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Counts what changes something.
#[derive(Default)]
struct Port(AtomicU32);

impl ControlPort for Port {
    fn request(&self, request: ControlRequest) -> Answer {
        let response = match request {
            ControlRequest::Status => ControlResponse::Status(Box::default()),
            // No server answers so: who asks fails a check.
            ControlRequest::Latency => ControlResponse::Unchanged,
            _ => {
                self.0.fetch_add(1, Ordering::Relaxed);
                ControlResponse::Done
            }
        };
        Box::pin(async move { Ok(response) })
    }
}

fn with_server(scenario: impl FnOnce(&Path, &Port)) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let port = Arc::new(Port::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(async { tokio::net::UnixListener::bind(&socket) }).unwrap();
    let router = diecut_daemon::http::router(port.clone(), "127.0.0.1:4420".to_owned());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                result = async { axum::serve(listener, router).await } => result.unwrap(),
                _ = stopped => {}
            }
        });
    });
    scenario(&socket, &port);
    stop.send(()).unwrap();
    server.join().unwrap();
}

/// Sends bytes and gives all that comes back.
fn send(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A server that refuses early may hang up before it has read all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let head = "HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json";
    format!("POST {path} {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn is_alive(socket: &Path) {
    let answer = send(socket, b"GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Goal: every refusal is a problem in JSON with the status of its kind, also where no handler of a route is reached. Method: a path that
/// is no text, a method that the route does not take, and a route that there is not.
#[test]
fn refusals_are_problems_whatever_refuses() {
    let end = "HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    with_server(|socket, _| {
        for (line, status, kind) in [
            ("DELETE /v1/tenants/%zz%ff", 422, "invalid"),
            ("PUT /v1/status", 404, "not_found"),
            ("GET /v1/nothing", 404, "not_found"),
        ] {
            let answer = send(socket, format!("{line} {end}").as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
            assert!(answer.contains(&format!("\"kind\":\"{kind}\",\"message\":\"")), "{line}: {answer}");
        }
    });
}

#[test]
fn bad_input_is_refused_and_the_next_client_is_answered() {
    with_server(|socket, port| {
        let header = "x-long: ".to_owned() + &"y".repeat(600 << 10);
        let bad: Vec<Vec<u8>> = vec![
            b"\0\xff\x13 nonsense\r\n\r\n".to_vec(),
            post("/v1/tenants", "{"),
            post("/v1/tenants", "{\"name\": 7}"),
            post("/v1/tenants", "{\"nama\": \"a\"}"),
            post("/v1/nothing", "{}"),
            b"PUT /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(),
            format!("GET /v1/status HTTP/1.1\r\n{header}\r\n\r\n").into_bytes(),
        ];
        for bytes in bad {
            let answer = send(socket, &bytes);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
            is_alive(socket);
        }
        // Hung up in the midst of a body.
        let mut half = post("/v1/tenants", "{\"name\": \"a\"}");
        half.truncate(half.len() - 4);
        UnixStream::connect(socket).unwrap().write_all(&half).unwrap();
        is_alive(socket);
        assert_eq!(port.0.load(Ordering::Relaxed), 0, "nothing of it came through");
    });
}

#[test]
fn a_huge_body_is_refused() {
    with_server(|socket, port| {
        let body = format!("{{\"name\": \"{}\"}}", "n".repeat(64 << 20));
        let answer = send(socket, &post("/v1/tenants", &body));
        // Refused, or hung up on before all of it was sent.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert_eq!(port.0.load(Ordering::Relaxed), 0);
        is_alive(socket);
    });
}

#[test]
fn many_clients_at_once_are_all_answered() {
    with_server(|socket, port| {
        // Some that connect and say nothing are in nobody's way.
        let silent: Vec<UnixStream> = (0..50).map(|_| UnixStream::connect(socket).unwrap()).collect();
        std::thread::scope(|scope| {
            for client in 0..16 {
                scope.spawn(move || {
                    for number in 0..20 {
                        let body = format!("{{\"name\": \"t{client}-{number}\"}}");
                        let answer = send(socket, &post("/v1/tenants", &body));
                        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
                    }
                });
            }
        });
        assert_eq!(port.0.load(Ordering::Relaxed), 320);
        drop(silent);
        is_alive(socket);
    });
}

/// Goal: a failed check in the thread of administrators ends the request that met it, and nothing else. Method: a port that answers a
/// question with what is no answer, between others and many times.
#[test]
fn a_panic_of_one_request_is_felt_by_no_other() {
    with_server(|socket, _| {
        for _ in 0..20 {
            let answer = send(socket, b"GET /v1/latency HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            assert_eq!(answer, "", "nobody answers what cannot be answered");
            is_alive(socket);
        }
    });
}
