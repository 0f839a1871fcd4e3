//! A relay between files and a server of NVMe/TCP. It counts what passes, and may turn copies into a command that no server knows.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// PDU type of a command capsule; its entry follows the common header of 8 bytes.
const CAPSULE: u8 = 4;
const HEADER: usize = 8;
const COPY: u8 = 0x19;
/// Reserved in the NVM and the ZNS command set; it carries data to the controller as Copy does.
const UNKNOWN: u8 = 0x1D;

/// What passed.
#[derive(Debug, Default)]
pub struct Passed {
    pub to_server_bytes: AtomicU64,
    pub to_host_bytes: AtomicU64,
    pub copies: AtomicU64,
}

/// The relay; it ends with the process.
pub struct Relay {
    pub address: String,
    pub passed: Arc<Passed>,
}

impl Relay {
    /// In front of a server. The first `copies_max` copies pass, those after them do not.
    pub fn start(server: &str, copies_max: u64) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (passed, server) = (Arc::new(Passed::default()), server.to_owned());
        let counted = Arc::clone(&passed);
        std::thread::spawn(move || {
            for host in listener.incoming() {
                let (host, server) = (host.unwrap(), TcpStream::connect(&server).unwrap());
                let (mut to_server, mut to_host) = (server.try_clone().unwrap(), host.try_clone().unwrap());
                let passed = Arc::clone(&counted);
                std::thread::spawn(move || {
                    let _ = pass_commands(host, &mut to_server, copies_max, &passed);
                    let _ = to_server.shutdown(Shutdown::Both);
                });
                let passed = Arc::clone(&counted);
                std::thread::spawn(move || {
                    let _ = pass_answers(server, &mut to_host, &passed);
                    let _ = to_host.shutdown(Shutdown::Both);
                });
            }
        });
        Relay { address, passed }
    }
}

fn pass_commands(
    mut from: TcpStream,
    to: &mut TcpStream,
    copies_max: u64,
    passed: &Passed,
) -> std::io::Result<()> {
    loop {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let mut pdu = header.to_vec();
        pdu.resize(len, 0);
        from.read_exact(&mut pdu[HEADER..])?;
        // Opcode 19h of the admin queue is no command that these hosts send.
        if header[0] == CAPSULE && pdu[HEADER] == COPY {
            let number = passed.copies.fetch_add(1, Ordering::Relaxed);
            pdu[HEADER] = if number < copies_max { COPY } else { UNKNOWN };
        }
        to.write_all(&pdu)?;
        passed.to_server_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
}

fn pass_answers(mut from: TcpStream, to: &mut TcpStream, passed: &Passed) -> std::io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let len = from.read(&mut bytes)?;
        if len == 0 {
            return Ok(());
        }
        to.write_all(&bytes[..len])?;
        passed.to_host_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
}
