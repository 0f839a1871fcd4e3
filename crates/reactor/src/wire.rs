//! What carries the bytes of a host: the seam between a connection and its stream. A stream that encrypts is another implementation.

use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{IoSlice, Read, Result, Write};

/// A stream of a host that never blocks. Dispatch is static: a turn of a connection costs what its system calls cost.
pub(crate) trait Wire: Sized {
    /// What another thread needs to go on with the stream.
    type Handoff: Send;

    /// Goes on with a stream of another thread.
    fn from_handoff(handoff: Self::Handoff) -> Self;

    /// Gives the stream to another thread. It is not watched here any more.
    fn into_handoff(self) -> Self::Handoff;

    /// Has readiness of the stream told as `token`, once for each time it begins.
    ///
    /// # Errors
    /// What the system says.
    fn watch(&mut self, registry: &Registry, token: Token) -> Result<()>;

    /// Ends [`Wire::watch`].
    ///
    /// # Errors
    /// What the system says.
    fn unwatch(&mut self, registry: &Registry) -> Result<()>;

    /// Reads bytes of the host, wherever they are to lie. 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is there, or why the stream failed.
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize>;

    /// Writes the beginning of what `slices` hold, and says how many bytes that was.
    ///
    /// # Errors
    /// `WouldBlock` where the stream takes none at present, or why it failed.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> Result<usize>;

    /// Says that nothing more will be written.
    ///
    /// # Errors
    /// What the system says.
    fn finish(&mut self) -> Result<()>;
}

/// NVMe/TCP without encryption: the socket itself.
pub(crate) struct Plain(pub TcpStream);

impl Wire for Plain {
    type Handoff = TcpStream;

    fn from_handoff(stream: TcpStream) -> Plain {
        Plain(stream)
    }

    fn into_handoff(self) -> TcpStream {
        self.0
    }

    fn watch(&mut self, registry: &Registry, token: Token) -> Result<()> {
        self.0.register(registry, token, Interest::READABLE | Interest::WRITABLE)
    }

    fn unwatch(&mut self, registry: &Registry) -> Result<()> {
        self.0.deregister(registry)
    }

    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        self.0.read(bytes)
    }

    #[inline]
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> Result<usize> {
        match slices {
            [one] => self.0.write(one),
            slices => self.0.write_vectored(slices),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.0.shutdown(std::net::Shutdown::Write)
    }
}
