//! What a namespace lets through.

use super::Namespace;
use crate::contract::{
    COPY_LBAS_MAX, COPY_RANGES_MAX, LbaRange, NamespaceCopy, NamespaceError, NamespaceOperation,
};
use crate::{chunks, zones};

impl Namespace {
    #[inline]
    pub(super) fn check(&self, operation: &NamespaceOperation) -> Result<(), NamespaceError> {
        if self.closing {
            return Err(NamespaceError::NoSuchNamespace);
        }
        match operation {
            NamespaceOperation::Read { range, destination } => {
                self.check_transfer(*range)?;
                self.check_length(*range, destination.len())
            }
            NamespaceOperation::Write { range, data, .. } => {
                self.check_transfer(*range)?;
                self.check_length(*range, data.len())?;
                self.check_writable()
            }
            NamespaceOperation::Compare { range, data } => {
                self.check_transfer(*range)?;
                self.check_length(*range, data.len())
            }
            NamespaceOperation::Flush => Ok(()),
            NamespaceOperation::Purge => self.check_writable(),
            NamespaceOperation::WriteZeroes { range, .. } => {
                self.check_range(*range)?;
                self.check_writable()
            }
            NamespaceOperation::Verify { range } => self.check_range(*range),
            NamespaceOperation::WriteUncorrectable { range } => {
                self.check_range(*range)?;
                self.check_writable()
            }
            NamespaceOperation::Copy(copy) => self.check_copy(copy),
            NamespaceOperation::Zone(request) => {
                zones::check(request, &self.definition)?;
                if zones::changes_something(request) { self.check_writable() } else { Ok(()) }
            }
            NamespaceOperation::Chunk(request) => {
                chunks::check(request, &self.definition)?;
                if chunks::changes_something(request) { self.check_writable() } else { Ok(()) }
            }
            NamespaceOperation::Deallocate { ranges } => {
                for range in ranges {
                    self.check_end(*range)?;
                }
                self.check_writable()
            }
        }
    }

    #[inline]
    fn check_transfer(&self, range: LbaRange) -> Result<(), NamespaceError> {
        self.check_range(range)?;
        if range.lba_count > self.definition.transfer_max_lbas {
            return Err(NamespaceError::InvalidField { what: "the transfer is larger than the maximum" });
        }
        Ok(())
    }

    #[inline]
    fn check_range(&self, range: LbaRange) -> Result<(), NamespaceError> {
        if range.lba_count == 0 {
            return Err(NamespaceError::InvalidField { what: "the range has no logical block" });
        }
        self.check_end(range)
    }

    fn check_copy(&self, copy: &NamespaceCopy) -> Result<(), NamespaceError> {
        for source in &copy.sources {
            self.check_range(*source)?;
        }
        let destination = copy.destination();
        self.check_range(destination)?;
        if copy.sources.len() as u64 > u64::from(COPY_RANGES_MAX) || destination.lba_count > COPY_LBAS_MAX {
            return Err(NamespaceError::InvalidField { what: "the copy is larger than the maximum" });
        }
        self.check_writable()
    }

    #[inline]
    fn check_end(&self, range: LbaRange) -> Result<(), NamespaceError> {
        let size_lbas = self.definition.size_lbas;
        match range.first_lba.checked_add(range.lba_count.into()) {
            Some(end) if end <= size_lbas => Ok(()),
            _ => Err(NamespaceError::LbaOutOfRange { size_lbas }),
        }
    }

    #[inline]
    fn check_length(&self, range: LbaRange, len: usize) -> Result<(), NamespaceError> {
        if len == range.lba_count as usize * self.definition.content_mode.bytes_per_iu() {
            return Ok(());
        }
        Err(NamespaceError::InvalidField { what: "the data is not as long as the range" })
    }

    #[inline]
    fn check_writable(&self) -> Result<(), NamespaceError> {
        match self.read_only_reason {
            Some(reason) => Err(NamespaceError::ReadOnly { reason }),
            None => Ok(()),
        }
    }
}
