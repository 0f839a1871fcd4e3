//! A host over real sockets, for tests of the binary.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod known;

use diecut_initiator::{Admin, Collect, QueuePair, QueueParameters, Token};
use diecut_nvme::{QualifiedName, Status, SubmissionEntry};
use diecut_units::Time;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A host of one tenant: admin queue and one I/O queue.
pub struct Host {
    admin: (TcpStream, Admin),
    stream: TcpStream,
    pub queue: QueuePair,
}

fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn receive(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; 64 << 10];
    match stream.read(&mut bytes)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        len => {
            bytes.truncate(len);
            Ok(bytes)
        }
    }
}

impl Host {
    /// To subsystem `nqn.2026-11.org.diecut:TENANT`.
    pub fn connect(address: SocketAddr, tenant: &str) -> std::io::Result<Host> {
        Host::connect_as(address, tenant, [tenant.as_bytes()[0]; 16])
    }

    /// As [`Host::connect`], with a host identifier of its own.
    pub fn connect_as(address: SocketAddr, tenant: &str, id: [u8; 16]) -> std::io::Result<Host> {
        let host = QualifiedName::new(&format!("nqn.2014-08.org.nvmexpress:uuid:{tenant}")).unwrap();
        let subsystem = QualifiedName::new(&format!("nqn.2026-11.org.diecut:{tenant}")).unwrap();
        let mut admin = Admin::new(QueueParameters::admin(host, id, subsystem), 1);
        let mut first = dial(address)?;
        while admin.facts().is_none() {
            let bytes = admin.output().to_vec();
            admin.sent(bytes.len());
            first.write_all(&bytes)?;
            admin.receive(&receive(&mut first)?, Time::ZERO, &mut Collect::default()).unwrap();
        }
        let queue = QueuePair::new(admin.io_queue(1, 32));
        let mut host = Host { admin: (first, admin), stream: dial(address)?, queue };
        while !host.queue.is_ready() {
            host.exchange(&mut Collect::default())?;
        }
        Ok(host)
    }

    /// Asks its controller for `to_host_bytes` bytes with an admin command.
    pub fn ask(&mut self, entry: SubmissionEntry, to_host_bytes: u32) -> std::io::Result<(Status, Vec<u8>)> {
        let (stream, admin) = &mut self.admin;
        let token = Token(1);
        admin.submit_entry(token, entry, None, to_host_bytes);
        let mut sink = Collect::default();
        loop {
            let bytes = admin.output().to_vec();
            admin.sent(bytes.len());
            stream.write_all(&bytes)?;
            admin.receive(&receive(stream)?, Time::ZERO, &mut sink).unwrap();
            if let Some(completion) = sink.completions.iter().find(|one| one.token == token) {
                let data = sink.data.remove(&token).unwrap_or_default();
                return Ok((completion.status, data));
            }
        }
    }

    /// Sends what is to be sent, and takes what comes next.
    pub fn exchange(&mut self, sink: &mut Collect) -> std::io::Result<()> {
        let bytes = self.queue.output().to_vec();
        self.queue.sent(bytes.len());
        self.stream.write_all(&bytes)?;
        let bytes = receive(&mut self.stream)?;
        self.queue.receive(&bytes, sink).unwrap();
        Ok(())
    }
}
