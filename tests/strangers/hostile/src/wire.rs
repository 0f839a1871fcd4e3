//! One connection of a hostile host: it says what the protocol wants until it has what it needs, and then what it likes.

use diecut_nvme::fabrics::{ConnectCommand, ConnectData, PropertyCommand};
use diecut_nvme::opcode::io as opcode;
use diecut_nvme::property::{Configuration, offset};
use diecut_nvme::tcp::{CapsuleCommand, Digests, InitializeRequest};
use diecut_nvme::{QualifiedName, SglDescriptor, SubmissionEntry};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Bytes of ICResp and of a response capsule.
const INITIALIZE_RESPONSE_BYTES: usize = 128;
const RESPONSE_BYTES: usize = 24;
/// A server that answers nothing for so long has hung up, or should have.
const PATIENCE: Duration = Duration::from_secs(5);
/// NVMe's logical blocks of the server under attack.
const LBA_BYTES: u32 = 4096;

/// Who a hostile host says it is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Subsystem.
    pub subsystem: QualifiedName,
    /// NQN it claims.
    pub host: QualifiedName,
    /// HOSTID.
    pub host_id: [u8; 16],
}

/// A connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    next_id: u16,
    is_admin: bool,
}

impl Wire {
    /// A TCP connection that has said nothing.
    ///
    /// # Errors
    /// The server does not take it.
    pub fn open(address: SocketAddr) -> io::Result<Wire> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        stream.set_nodelay(true)?;
        Ok(Wire { stream, next_id: 0, is_admin: true })
    }

    /// Whether it is no I/O queue.
    pub fn is_admin(&self) -> bool {
        self.is_admin
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The stream is full or gone.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Takes `bytes` answers, or what comes of them before the patience ends.
    ///
    /// # Errors
    /// The stream is gone, or nothing came.
    pub fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut answer = vec![0; bytes];
        self.stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// ICReq and its answer.
    ///
    /// # Errors
    /// The server hung up.
    pub fn initialize(&mut self) -> io::Result<()> {
        self.send(InitializeRequest::new(Digests::NONE).as_bytes())?;
        self.take(INITIALIZE_RESPONSE_BYTES).map(drop)
    }

    fn command(&mut self, mut entry: SubmissionEntry, data: &[u8]) -> Vec<u8> {
        self.next_id = self.next_id.wrapping_add(1);
        entry.command_id = self.next_id.into();
        entry.flags |= 0x40;
        let mut bytes = CapsuleCommand::new(entry, data.len() as u32, Digests::NONE).as_bytes().to_vec();
        bytes.extend_from_slice(data);
        bytes
    }

    /// Takes one answer without data: whether it says success, and its dword 0.
    fn answer(&mut self) -> io::Result<(bool, u32)> {
        let answer = self.take(RESPONSE_BYTES)?;
        let status = u16::from_le_bytes([answer[22], answer[23]]) >> 1;
        Ok((status == 0, u32::from_le_bytes([answer[8], answer[9], answer[10], answer[11]])))
    }

    /// Connect of a queue; the controller's id if the server agrees.
    ///
    /// # Errors
    /// The server hung up.
    pub fn connect(
        &mut self,
        identity: &Identity,
        queue: u16,
        entries: u16,
        controller: u16,
    ) -> io::Result<Option<u16>> {
        self.is_admin = queue == 0;
        let connect = ConnectCommand::new(0, queue, entries - 1, 0);
        let data = ConnectData::new(identity.host_id, controller, &identity.subsystem, &identity.host);
        let bytes = self.command(connect.entry(), data.as_bytes());
        self.send(&bytes)?;
        let (success, result) = self.answer()?;
        Ok(success.then_some(result as u16))
    }

    /// Sets CC.EN.
    ///
    /// # Errors
    /// The server hung up.
    pub fn enable(&mut self) -> io::Result<bool> {
        let bytes =
            self.command(PropertyCommand::set(0, offset::CC, Configuration::enable(6).0).entry(), &[]);
        self.send(&bytes)?;
        Ok(self.answer()?.0)
    }

    fn read_or_write(&mut self, code: u8, blocks: u32, sgl: SglDescriptor, data: &[u8]) -> Vec<u8> {
        let mut entry = SubmissionEntry { opcode: code, nsid: 1.into(), sgl, ..SubmissionEntry::default() };
        diecut_nvme::io::LbaRange::plain(0, blocks).encode(&mut entry);
        self.command(entry, data)
    }

    /// A read as bytes to send.
    pub fn read_command(&mut self, blocks: u32) -> Vec<u8> {
        self.read_or_write(opcode::READ, blocks, SglDescriptor::transport(blocks * LBA_BYTES), &[])
    }

    /// A write that waits to be asked for its data, as bytes to send.
    pub fn write_command(&mut self, blocks: u32) -> Vec<u8> {
        self.read_or_write(opcode::WRITE, blocks, SglDescriptor::transport(blocks * LBA_BYTES), &[])
    }

    /// A write with its data in the capsule, as bytes to send.
    pub fn in_capsule_command(&mut self, blocks: u32) -> Vec<u8> {
        let data = vec![0x5A; (blocks * LBA_BYTES) as usize];
        self.read_or_write(opcode::WRITE, blocks, SglDescriptor::in_capsule(blocks * LBA_BYTES), &data)
    }

    /// A command that moves no data, as bytes to send.
    pub fn flush_command(&mut self) -> Vec<u8> {
        let entry = SubmissionEntry { opcode: opcode::FLUSH, nsid: 1.into(), ..SubmissionEntry::default() };
        self.command(entry, &[])
    }
}

/// An admin queue and I/O queues of one controller, as many as the server gives.
///
/// # Errors
/// The server hung up while the admin queue came up.
pub fn controller(
    address: SocketAddr,
    identity: &Identity,
    queues: u16,
    entries: u16,
) -> io::Result<Vec<Wire>> {
    let mut admin = Wire::open(address)?;
    admin.initialize()?;
    let Some(id) = admin.connect(identity, 0, 32, 0xFFFF)? else { return Ok(Vec::new()) };
    admin.enable()?;
    let mut wires = vec![admin];
    for queue in 1..=queues {
        let mut wire = Wire::open(address)?;
        wire.initialize()?;
        match wire.connect(identity, queue, entries, id) {
            Ok(Some(_)) => wires.push(wire),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(wires)
}
