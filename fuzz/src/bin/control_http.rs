//! The control interface: any bytes on its socket, cut in two; every request gets an answer, and the stream ends when
//! its other end does.
#![no_main]

use axum::serve::Listener;
use diecut_daemon::control_port::{Answer, ControlPort};
use diecut_daemon::http::router;
use diecut_fuzz::{Input, bounded};
use diecut_shard::control::{ControlError, ControlErrorKind, ControlRequest, ControlResponse};
use diecut_spec::{Isolation, Size, TenantSpec, VolumeSpec, VssdSpec};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

diecut_fuzz::target!(seeds, check);

fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    [&[0, 20][..], format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let tenant = serde_json::to_string(&TenantSpec::new("alpha")).expect("plain data");
    let vssd = VssdSpec {
        capacity: Size(64 << 20),
        ..VssdSpec::new("alpha-flash", "alpha", Isolation::Software, 280)
    };
    let volume = VolumeSpec {
        nguid: "0123456789abcdef0123456789abcdef".parse().ok(),
        ..VolumeSpec::new("alpha-disk", "alpha-flash", Size(1 << 20))
    };
    let subsystem = r#"{"nqn":"nqn.x","tenant":"alpha","namespaces":[{"nsid":1,"volume":"alpha-disk"}]}"#;
    vec![
        request("GET", "/v1/status", ""),
        request("POST", "/v1/tenants", &tenant),
        request("DELETE", "/v1/tenants/alpha", ""),
        request("POST", "/v1/vssds", &serde_json::to_string(&vssd).expect("plain data")),
        request("POST", "/v1/volumes", &serde_json::to_string(&volume).expect("plain data")),
        request("POST", "/v1/subsystems", subsystem),
        request("POST", "/v1/subsystems/nqn.x/hosts", r#"{"nqn":"nqn.y"}"#),
        request("DELETE", "/v1/subsystems/nqn.x/namespaces/1", ""),
        [
            &[1, 60][..],
            b"POST /v1/tenants HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"nam\r\n0\r\n\r\n",
        ]
        .concat(),
    ]
}

/// Shards that have nothing, or refuse everything.
struct Shards {
    refuse: bool,
}

impl ControlPort for Shards {
    fn request(&self, request: ControlRequest) -> Answer {
        let request = match request {
            ControlRequest::Within { request, .. } => *request,
            other => other,
        };
        let response = match request {
            ControlRequest::Status => ControlResponse::Status(Box::default()),
            // Only a repair is answered with more than that it is done.
            _ if self.refuse || matches!(request, ControlRequest::RepairVssd { .. }) => {
                let message = "there is none".to_owned();
                ControlResponse::Refused(ControlError { kind: ControlErrorKind::NotFound, message })
            }
            _ => ControlResponse::Done,
        };
        Box::pin(async move { Ok(response) })
    }
}

/// Accepts one stream.
struct Once(Option<DuplexStream>);

impl Listener for Once {
    type Io = DuplexStream;
    type Addr = ();
    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.take() {
            Some(stream) => (stream, ()),
            None => std::future::pending().await,
        }
    }
    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let refuse = input.byte() & 1 != 0;
    let cut = usize::from(input.byte());
    let (front, rest) = (input.bytes(cut), input.rest());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let answer = bounded((4 << 20) + 256 * bytes.len(), || {
        runtime.block_on(async {
            let (near, far) = tokio::io::duplex(1 << 16);
            let routes = router(Arc::new(Shards { refuse }), "127.0.0.1:4420".to_owned());
            let served = async { axum::serve(Once(Some(far)), routes).await };
            let asked = async {
                let (mut reader, mut writer) = tokio::io::split(near);
                let send = async {
                    // A server that has enough hangs up; the rest is not sent then.
                    if writer.write_all(front).await.is_ok() {
                        tokio::task::yield_now().await;
                        let _ = writer.write_all(rest).await;
                    }
                    let _ = writer.shutdown().await;
                };
                let mut answer = Vec::new();
                let receive = reader.read_to_end(&mut answer);
                let _ = tokio::join!(send, receive);
                answer
            };
            tokio::select! {
                answer = asked => answer,
                _ = served => panic!("the server goes on"),
            }
        })
    });
    drop(runtime);
    // Whatever was answered is HTTP.
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{answer:?}");
}
