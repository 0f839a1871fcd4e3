//! Runs of the raw loop: both ends in one process, or one end per process.

use super::end::{End, EndCounters};
use super::far::{FarMemory, FarReads};
use crate::affinity::pin_this_thread;
use serde::Serialize;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Which 4 KiB command the sizes imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum RawShape {
    /// 72 B -> 4120 B.
    Read,
    /// 4168 B -> 24 B.
    Write,
}

impl RawShape {
    /// Bytes of a request.
    pub fn request_bytes(self) -> usize {
        match self {
            RawShape::Read => 72,
            RawShape::Write => 4168,
        }
    }
    /// Bytes of a response.
    pub fn response_bytes(self) -> usize {
        match self {
            RawShape::Read => 4120,
            RawShape::Write => 24,
        }
    }
}

/// What to run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RawSettings {
    /// Sizes of the messages.
    pub shape: RawShape,
    /// Connections.
    pub connections: usize,
    /// Requests under way on each connection.
    pub depth: usize,
    /// Measured time in milliseconds; a tenth of it is spent before, unmeasured.
    pub duration_ms: u64,
    /// Memory that the server reads the content of its responses from, in bytes; 0 to send the same bytes again and again.
    pub far_bytes: usize,
    /// What becomes of that content.
    pub far_reads: FarReads,
    /// Core of the server, or none to leave it to the scheduler.
    pub server_core: Option<usize>,
    /// Core of the load.
    pub load_core: Option<usize>,
}

impl RawSettings {
    /// The memory that the server reads from, if it does. It takes a while to fill: before a client can connect.
    pub fn far_memory(&self) -> Option<FarMemory> {
        (self.far_bytes > 0).then(|| FarMemory::new(self.far_bytes, self.far_reads))
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RawResult {
    /// The settings.
    #[serde(flatten)]
    pub settings: RawSettings,
    /// Responses received per second.
    pub operations_per_second: f64,
    /// System calls of the server per response; none where the server is another process.
    pub server_system_calls_per_operation: Option<f64>,
    /// System calls of the client per response.
    pub client_system_calls_per_operation: f64,
}

/// What can go wrong.
#[derive(Debug)]
pub enum RawError {
    /// The operating system refused something.
    Io(io::Error),
    /// The server thread failed.
    Server(io::Error),
}

impl From<io::Error> for RawError {
    fn from(error: io::Error) -> RawError {
        RawError::Io(error)
    }
}

impl std::fmt::Display for RawError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RawError::Io(error) => write!(f, "raw loop: {error}"),
            RawError::Server(error) => write!(f, "raw loop, server end: {error}"),
        }
    }
}

impl std::error::Error for RawError {}

/// Serves `settings.connections` connections on `listener` until all are closed; `far` is [`RawSettings::far_memory`].
///
/// # Errors
/// What the sockets say.
pub fn serve(
    listener: &TcpListener,
    settings: &RawSettings,
    far: Option<FarMemory>,
) -> io::Result<EndCounters> {
    if let Some(core) = settings.server_core {
        pin_this_thread(core)?;
    }
    let shape = settings.shape;
    let mut end = End::new(shape.request_bytes(), shape.response_bytes(), settings.depth)?;
    if let Some(far) = far {
        end.send_from(far);
    }
    for _ in 0..settings.connections {
        end.add(listener.accept()?.0, 0)?;
    }
    while !end.is_closed() {
        end.round()?;
    }
    Ok(end.counters())
}

/// Loads the server at `address` and measures.
///
/// # Errors
/// What the sockets say.
pub fn load(address: SocketAddr, settings: &RawSettings) -> io::Result<RawResult> {
    if let Some(core) = settings.load_core {
        pin_this_thread(core)?;
    }
    let shape = settings.shape;
    let mut end = End::new(shape.response_bytes(), shape.request_bytes(), settings.depth)?;
    for _ in 0..settings.connections {
        end.add(TcpStream::connect(address)?, settings.depth)?;
    }
    let duration = Duration::from_millis(settings.duration_ms);
    run_for(&mut end, duration / 10)?;
    let (before, start) = (end.counters(), Instant::now());
    run_for(&mut end, duration)?;
    let (after, elapsed) = (end.counters(), start.elapsed());
    let operations = (after.messages - before.messages) as f64;
    Ok(RawResult {
        settings: *settings,
        operations_per_second: operations / elapsed.as_secs_f64(),
        server_system_calls_per_operation: None,
        client_system_calls_per_operation: (after.system_calls - before.system_calls) as f64 / operations,
    })
}

fn run_for(end: &mut End, duration: Duration) -> io::Result<()> {
    let start = Instant::now();
    while start.elapsed() < duration {
        for _ in 0..16 {
            end.round()?;
        }
        if end.is_closed() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connections"));
        }
    }
    Ok(())
}

/// Runs both ends on threads of their own over loopback.
///
/// # Errors
/// What either end says.
pub fn run(settings: &RawSettings) -> Result<RawResult, RawError> {
    let far = settings.far_memory();
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let settings = *settings;
    let server = std::thread::spawn(move || serve(&listener, &settings, far));
    let client = std::thread::spawn(move || load(address, &settings));
    let result = client.join().expect("the client end does not panic");
    let served = match &result {
        Ok(_) => server.join().expect("the server end does not panic").map_err(RawError::Server)?,
        // The server may still wait for a connection that never comes; its thread ends with the process.
        Err(_) => return result.map_err(RawError::Io),
    };
    let mut result = result?;
    result.server_system_calls_per_operation =
        Some(served.system_calls as f64 / served.messages.max(1) as f64);
    Ok(result)
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: every request is answered once, with one and with several connections, and the calls are counted.
    #[test]
    fn both_shapes_move_messages() {
        for (shape, connections, far_bytes, far_reads) in
            [(RawShape::Read, 1, 0), (RawShape::Write, 3, 0), (RawShape::Read, 2, 1 << 20)]
                .into_iter()
                .flat_map(|(shape, connections, far_bytes)| {
                    let copied = FarReads::default();
                    [copied, FarReads { in_place: true, checked: true }]
                        .map(|reads| (shape, connections, far_bytes, reads))
                })
        {
            let settings = RawSettings {
                far_bytes,
                far_reads,
                shape,
                connections,
                depth: 4,
                duration_ms: 50,
                server_core: None,
                load_core: None,
            };
            let result = run(&settings).expect("loopback works");
            assert!(result.operations_per_second > 0.0);
            assert!(result.server_system_calls_per_operation.expect("same process") > 0.0);
        }
    }
}
